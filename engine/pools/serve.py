"""The program of one instance: HTTP in the main thread, the engine in its own.

Started by `pagemill engine serve` or, with the settings on standard input, by the supervisor:
`python -m engine.pools.serve LIFELINE_FD`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.pools.settings import InstanceSettings
from engine.role import Role

if TYPE_CHECKING:
    import uvicorn

    from engine.pools.instance import Instance

log = logging.getLogger(__name__)

ENGINE_DIED = 70
START_FAILED = 71
GRACE_SECONDS = 5


def serve(settings: InstanceSettings) -> int:
    """Serve until a signal ends it. The answer is an exit status: 0, ENGINE_DIED or START_FAILED."""
    set_threads(settings.threads)
    if settings.cpu_share is not None:
        log.info("%s: steps are held to %g of one core", settings.engine_id, settings.cpu_share)
    listening = listen(settings.host, settings.port)
    host, port = settings.advertise or settings.host, listening.getsockname()[1]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return asyncio.run(_serve(replace(settings, port=port), url, listening))


def set_threads(threads: int) -> None:
    """For the numerical libraries; before any of them is imported."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=512)


async def _serve(settings: InstanceSettings, url: str, listening: socket.socket) -> int:
    import torch
    import uvicorn

    from engine.pools.app import create_app
    from engine.pools.instance import Instance
    from engine.pools.registration import keep_registered

    torch.set_num_threads(settings.threads)
    instance = Instance(settings, url)
    config = uvicorn.Config(
        create_app(instance),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        lifespan="off",
    )
    server = _server(config)
    status = 0

    def died() -> None:
        nonlocal status
        status = ENGINE_DIED
        server.should_exit = True

    def asked_to_stop() -> None:
        if stopping:
            server.should_exit = server.force_exit = True
        else:
            stopping.append(asyncio.create_task(_stop(instance, server)))

    stopping: list[asyncio.Task[None]] = []
    instance.on_death = died
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_stop)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    starting = asyncio.create_task(instance.start())
    registering: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception():
            log.error("the instance did not start: %s", starting.exception())
            status = START_FAILED
            server.should_exit = True
        elif starting.done():
            log.info("%s serves %s at %s as %s", settings.engine_id, settings.model, url, settings.role)
            if settings.router:
                registering = asyncio.create_task(keep_registered(settings.router, settings.token, instance.status))
        await serving
    finally:
        for task in (starting, registering):
            if task:
                task.cancel()
        await instance.close()
    return status


async def _stop(instance: Instance, server: uvicorn.Server) -> None:
    """Let what runs end, for a while."""
    await instance.drain(GRACE_SECONDS)
    server.should_exit = True


def _server(config: uvicorn.Config) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # Signals are ours: requests are told before connections are closed.
            yield

    return Server(config)


def settings_to_json(settings: InstanceSettings) -> str:
    return json.dumps({**asdict(settings), "model": str(settings.model)})


def settings_from_json(text: str) -> InstanceSettings:
    content: dict[str, Any] = json.loads(text)
    content["model"] = Path(content["model"])
    content["role"] = Role(content["role"])
    content["transports"] = tuple(content["transports"])
    return InstanceSettings(**content)


def main() -> None:
    """Under a supervisor: settings on standard input, the port on standard output, the lifeline's end is the end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    threading.Thread(target=_die_with_parent, args=(int(sys.argv[1]),), daemon=True).start()
    status = serve(settings_from_json(sys.stdin.read()))
    # LMDeploy's threads and torch's are of no use any more, and some do not end by themselves.
    logging.shutdown()
    os._exit(status)


def _die_with_parent(lifeline: int) -> None:
    """The parent holds the other end and never writes: reading returns only at its death."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
