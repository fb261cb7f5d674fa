"""Engines to test with: a cache of random bytes behind a transport, here or in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from engine.interconnect.arena import SharedArena
from engine.interconnect.endpoint import Endpoint
from engine.interconnect.layout import KVLayout
from engine.interconnect.leases import Lease
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.transport import Transport
from engine.interconnect.transports.catalogue import TRANSPORTS
from engine.interconnect.wire import handshake
from engine.interconnect.wire.session import Kind, Session

ROOT = Path(__file__).parents[3]
SECRET = b"known to both ends of every test"
KINDS: dict[str, type[Transport]] = TRANSPORTS
SOCKETS = ["shared_memory", "tcp"]

LAYOUT = KVLayout.interleaved(layers=3, blocks=40, block_size=16, heads=2, dims={"k": 8, "v": 8}, dtype="float16")


def soon(seconds: float = 20.0) -> float:
    """A deadline."""
    return time.monotonic() + seconds


class Engine:
    """A transport with a registered cache, filled with random bytes."""

    def __init__(self, kind: str, engine_id: str, layout: KVLayout = LAYOUT, *, seed: int = 0, **options: Any) -> None:
        self.layout = layout
        self.arena = SharedArena(layout.span)
        self.bytes = np.frombuffer(self.arena.buffer, np.uint8, layout.span)
        self.bytes[:] = np.frombuffer(np.random.default_rng(seed).bytes(layout.span), np.uint8)
        if kind != "in_process":
            options.setdefault("secret", SECRET)
        transport: Any = KINDS[kind]
        self.transport: Endpoint = transport(engine_id, **options)
        self.region = self.transport.register(self.arena.buffer, layout)

    @property
    def metadata(self) -> PeerMetadata:
        """As a peer sees it: through JSON."""
        return PeerMetadata.from_json(self.transport.export_metadata().to_json())

    def block(self, number: int, layers: Sequence[int] | None = None) -> bytes:
        """All bytes of one block."""
        chosen = range(self.layout.layers) if layers is None else layers
        return b"".join(
            self.region.items(part, layer)[number].tobytes() for layer in chosen for part in self.layout.parts
        )

    def bytes_of(self, blocks: Sequence[int]) -> list[bytes]:
        """All bytes of many blocks, for each layer and part."""
        return [
            self.region.items(part, layer)[list(blocks)].tobytes()
            for layer in range(self.layout.layers)
            for part in self.layout.parts
        ]

    def tokens(self, blocks: Sequence[int], count: int, start: int = 0) -> bytes:
        """A sequence, up to so many tokens and from one on, in canonical order: layer, part, token, head, dim."""
        found = []
        for layer in range(self.layout.layers):
            for part in self.layout.parts:
                items = self.region.items(part, layer)[list(blocks)]
                if self.layout.order.value.startswith("heads"):
                    items = items.transpose(0, 2, 1, 3)
                found.append(items.reshape(-1, self.layout.heads, part.dim)[start:count].tobytes())
        return b"".join(found)

    def close(self) -> None:
        self.transport.close()


class PeerProcess:
    """An engine in a process of its own, which can be stopped and killed."""

    def __init__(self, kind: str, seed: int = 0, **options: Any) -> None:
        command = [sys.executable, "-m", "tests.engine.interconnect.peer", kind, str(seed), json.dumps(options)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdin
        self.metadata = PeerMetadata.from_json(self.process.stdout.readline())

    def ask(self, **question: Any) -> Any:
        assert self.process.stdout and self.process.stdin
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def reserve(self, blocks: Sequence[int], seconds: float = 60.0) -> Lease:
        return Lease.from_dict(self.ask(do="reserve", blocks=list(blocks), seconds=seconds))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        # Stopped for certain before the test goes on.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self.process.stdout and self.process.stdin
        self.process.stdout.close()
        self.process.stdin.close()


def dial(source: Engine) -> socket.socket:
    address = source.metadata.address
    if address.startswith("@"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect("\0" + address[1:])
    else:
        host, _, port = address.rpartition(":")
        sock = socket.create_connection((host, int(port)))
    sock.settimeout(20)
    return sock


def opened(source: Engine, control: bool = True) -> Session:
    """A session of somebody who knows the secret and means no good."""
    sock = dial(source)
    session = Session(sock, handshake.as_client(sock, SECRET))
    hello = {"engine_id": source.metadata.engine_id, "epoch": source.metadata.epoch, "control": control}
    session.send(Kind.OPEN, json.dumps(hello).encode())
    assert session.receive()[0] is Kind.OPENED
    return session
