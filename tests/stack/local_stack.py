"""Runs the services of a compose file as local processes: same commands, environment, order and health checks.

What Docker would give and a process has not is replaced in one place each: service names become loopback
addresses (`_localised`), named volumes become folders, and what the stock image of PostgreSQL does before its
command is done here (`_initialise_postgres`). Everything else is taken from the file as it stands.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from tests.stack.compose_file import Service, start_order

POSTGRES_BIN = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
_MARK = "PAGEMILL_STACK_RUN"


class ServiceFailed(AssertionError):
    """A service ended, or did not become healthy in its time. Carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One running process of a service."""

    service: Service
    process: subprocess.Popen[bytes]
    log: Path


def missing_programs() -> list[str]:
    """The Debian packages that this machine lacks to run the stack."""
    missing = [] if shutil.which("redis-server") else ["redis-server"]
    return missing if POSTGRES_BIN else [*missing, "postgresql"]


class LocalStack:
    """`with LocalStack(services, scale={"worker": 2}) as stack:` starts everything, in order, healthy; and stops it."""

    def __init__(self, services: Mapping[str, Service], scale: Mapping[str, int] | None = None) -> None:
        self.services = services
        self.scale = dict(scale or {})
        self.replicas: list[Replica] = []
        self.started: list[str] = []
        self._mark = uuid.uuid4().hex
        self._sessions: set[int] = set()
        # Not pytest's folder: PostgreSQL's user must be able to walk through it.
        self.folder = Path(tempfile.mkdtemp(prefix="pagemill-stack-"))
        self.folder.chmod(0o755)
        self._ports = {(name, port): _free_port() for name, service in services.items() for port in service.ports}

    def __enter__(self) -> LocalStack:
        try:
            self.up()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.down()
        finally:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def up(self) -> None:
        """Start every service after what it depends on is as it demands.

        Raises:
            ServiceFailed: one ended, or was not healthy in its time.
        """
        for name in start_order(self.services):
            service = self.services[name]
            for other, condition in service.depends_on.items():
                if condition == "service_healthy":
                    self.wait_healthy(other)
            for _ in range(self.scale.get(name, 1)):
                self.start(name)
        for name in self.services:
            self.wait_healthy(name)

    def down(self) -> None:
        """Ask every service to stop, users before what they use; each has its grace period.

        Raises:
            ServiceFailed: one had to be killed.
        """
        late = []
        for name in reversed(self.started):
            for replica in self.of(name):
                late += [] if self.stop(replica) else [name]
        if late:
            raise ServiceFailed(f"killed after the grace period: {late}\n" + "\n".join(map(self.tail, late)))

    def start(self, name: str) -> Replica:
        service = self.services[name]
        prefix: list[str] = []
        if service.image.startswith("postgres:"):
            prefix = self._initialise_postgres(service)
        log = self.folder / f"{name}-{len(self.of(name)) + 1}.log"
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [*prefix, *self._localised(service, self._own_options(service))],
                env=self._environment(service),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.add(process.pid)
        replica = Replica(service, process, log)
        self.replicas.append(replica)
        if name not in self.started:
            self.started.append(name)
        return replica

    def stop(self, replica: Replica, how: signal.Signals | None = None) -> bool:
        """Ask one process to stop; kill it after its grace period. True if it went by itself."""
        # The stock image of PostgreSQL declares SIGINT (fast shutdown) as its stop signal; the others SIGTERM.
        default = signal.SIGINT if replica.service.image.startswith("postgres:") else signal.SIGTERM
        if replica.process.poll() is None:
            replica.process.send_signal(how or default)
        try:
            replica.process.wait(replica.service.grace)
        except subprocess.TimeoutExpired:
            replica.process.kill()
            replica.process.wait()
            return False
        finally:
            if replica in self.replicas:
                self.replicas.remove(replica)
        return True

    def wait_healthy(self, name: str) -> None:
        """Run the service's health check until it passes.

        Raises:
            ServiceFailed: the process ended, or the check's own retries are used up.
        """
        service, health = self.services[name], self.services[name].health
        if health is None:
            return
        command = self._localised(service, health.command)
        deadline = time.monotonic() + health.start_period + health.retries * health.interval
        while True:
            for replica in self.of(name):
                if replica.process.poll() is not None:
                    raise ServiceFailed(f"{name} ended with {replica.process.returncode}\n{self.tail(name)}")
            check = _run(command, self._environment(service), self.folder, health.timeout)
            if check.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise ServiceFailed(f"{name} is not healthy: {check.stdout.decode()}\n{self.tail(name)}")
            time.sleep(min(0.3, health.interval))

    def of(self, name: str) -> list[Replica]:
        return [replica for replica in self.replicas if replica.service.name == name]

    def address(self, name: str) -> str:
        """`127.0.0.1:PORT` of a service with one port."""
        (port,) = self.services[name].ports
        return f"127.0.0.1:{self._ports[name, port]}"

    def tail(self, name: str, lines: int = 60) -> str:
        logs = sorted(self.folder.glob(f"{name}-*.log"))
        return "\n".join(
            f"--- {log.name}\n" + "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:]) for log in logs
        )

    def processes_left(self) -> list[psutil.Process]:
        """Every process on this machine that some service of this stack started, directly or not.

        By their session or by a variable that they inherit: redis-server and PostgreSQL write over their
        environment, page processes leave the session.
        """
        found = []
        for process in psutil.process_iter():
            try:
                ours = os.getsid(process.pid) in self._sessions or process.environ().get(_MARK) == self._mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def kill(self) -> None:
        """End whatever is still there, without asking."""
        for process in self.processes_left():
            try:
                process.kill()
            except psutil.Error:
                continue
        for replica in self.replicas:
            replica.process.wait()
        self.replicas.clear()

    def volume(self, name: str) -> Path:
        path = self.folder / "volumes" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _environment(self, service: Service) -> dict[str, str]:
        """The service's own variables and what any process needs; nothing of the caller's PAGEMILL_ names."""
        path = [str(Path(sys.executable).parent), *(str(folder) for folder in POSTGRES_BIN[-1:]), os.environ["PATH"]]
        own = {key: self._localised(service, [value])[0] for key, value in service.environment.items()}
        base = {"PATH": os.pathsep.join(path), "HOME": str(self.folder), "LANG": "C.UTF-8", _MARK: self._mark}
        return {**base, **own}

    def _localised(self, service: Service, strings: Sequence[str]) -> list[str]:
        """Strings of a service with container addresses and paths replaced by this machine's."""
        result = []
        for text in strings:
            for (name, port), local in self._ports.items():
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}:{port}\b", f"127.0.0.1:{local}", text)
            for port in service.ports:
                text = re.sub(rf"(?<!\d){port}(?!\d)", str(self._ports[service.name, port]), text)
            for volume, target in service.volumes:
                text = re.sub(rf"^{re.escape(target)}(?=/|$)", str(self.volume(volume)), text)
            result.append("127.0.0.1" if text == "0.0.0.0" else text)
        return result

    def _own_options(self, service: Service) -> list[str]:
        """The command, with what a shared machine demands: sockets in the stack's folder, loopback only."""
        if service.image.startswith("postgres:"):
            sockets = self.volume("sockets")
            return [*service.command, "-c", f"unix_socket_directories={sockets}", "-c", "listen_addresses=127.0.0.1"]
        if service.image.startswith("redis:"):
            return [*service.command, "--bind", "127.0.0.1"]
        return list(service.command)

    def _initialise_postgres(self, service: Service) -> list[str]:
        """What the stock image's entry point does: a cluster with its user, password and database. Once.

        Returns:
            What to put before its commands: PostgreSQL refuses to run as root.
        """
        environment = self._environment(service)
        data = Path(environment["PGDATA"])
        sockets = self.volume("sockets")
        prefix: list[str] = []
        if os.geteuid() == 0:
            prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            user = pwd.getpwnam("postgres")
            for folder in (data.parent, sockets):
                os.chown(folder, user.pw_uid, user.pw_gid)
        if not (data / "PG_VERSION").exists():
            password = self.folder / "postgres-password"
            password.write_text(environment["POSTGRES_PASSWORD"])
            password.chmod(0o644)
            name, database = environment["POSTGRES_USER"], environment["POSTGRES_DB"]
            initdb = ["initdb", "-D", str(data), "-U", name, "--pwfile", str(password), "--auth=scram-sha-256"]
            _checked([*prefix, *initdb, "--no-sync", "--encoding=UTF8"], environment, self.folder)
            single = [*prefix, "postgres", "--single", "-D", str(data), "postgres"]
            _checked(single, environment, self.folder, stdin=f'CREATE DATABASE "{database}";\n'.encode())
            password.unlink()
        environment["PGDATA"] = str(data)
        return prefix


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command, env=environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout
        )
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(command, 124, late.stdout or b"timed out")


def _checked(command: Sequence[str], environment: Mapping[str, str], cwd: Path, stdin: bytes = b"") -> None:
    done = subprocess.run(
        command, env=environment, cwd=cwd, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise ServiceFailed(f"{command}: {done.stdout.decode('utf-8', 'replace')}")
