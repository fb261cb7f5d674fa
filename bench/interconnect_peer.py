"""The other process of `pagemill bench interconnect`: a source that answers JSON lines on its standard input.

`python -m bench.interconnect_peer TRANSPORT`. For the transport within a process, the same source runs in ours.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.interconnect.arena import SharedArena
from engine.interconnect.endpoint import Endpoint
from engine.interconnect.layout import KVLayout
from engine.interconnect.leases import Lease
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.transports.catalogue import TRANSPORTS

SECRET = b"of one run of the bench, on one host"
SEED = 20
LEASE_SECONDS = 600.0
LAYERS, BLOCKS = 16, 128
# 64 MiB as LMDeploy lays it out for MinerU's language model: 32 KiB a block and layer.
LAYOUT = KVLayout.interleaved(
    layers=LAYERS, blocks=BLOCKS, block_size=64, heads=2, dims={"k": 64, "v": 64}, dtype="bfloat16"
)


def endpoint(name: str, engine_id: str) -> Endpoint:
    """A transport of this process."""
    kind: Any = TRANSPORTS[name]
    made: Endpoint = kind(engine_id) if name == "in_process" else kind(engine_id, secret=SECRET)
    return made


class Source:
    """An engine with 64 MiB of known bytes."""

    def __init__(self, name: str) -> None:
        self._arena = SharedArena(LAYOUT.span)
        self.bytes = np.frombuffer(self._arena.buffer, np.uint8, LAYOUT.span)
        self.bytes[:] = contents()
        self.transport = endpoint(name, "source")
        self.transport.register(self._arena.buffer, LAYOUT)

    def answer(self, question: dict[str, Any]) -> Any:
        if question["do"] == "reserve":
            lease = self.transport.reserve(question["blocks"], LEASE_SECONDS)
            if question["sealed"]:
                self.transport.leases.seal(lease.id)
            return lease.to_dict()
        if question["do"] == "raw":
            threading.Thread(target=self._send_raw, args=(question["port"],), daemon=True).start()
            return None
        return self.transport.leases.held_blocks()

    def _send_raw(self, port: int) -> None:
        view = self.bytes.data
        with tuned(socket.create_connection(("127.0.0.1", port))) as sock:
            while sock.recv(1):
                sock.sendall(view)


class Peer:
    """A source, in a process of its own if the transport reaches that far."""

    def __init__(self, name: str) -> None:
        self._source: Source | None = None
        self._process: subprocess.Popen[str] | None = None
        if name == "in_process":
            self._source = Source(name)
            self.metadata = self._source.transport.export_metadata()
            return
        command = [sys.executable, "-m", "bench.interconnect_peer", name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.metadata = PeerMetadata.from_json(self._process.stdout.readline())

    def reserve(self, blocks: Sequence[int], *, sealed: bool) -> Lease:
        return Lease.from_dict(self._ask({"do": "reserve", "blocks": list(blocks), "sealed": sealed}))

    def send_raw(self, port: int) -> None:
        """Let it connect to a port, and send its bytes for every byte that comes."""
        self._ask({"do": "raw", "port": port})

    def held(self) -> int:
        return int(self._ask({"do": "held"}))

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._source:
            self._source.transport.close()
        if self._process:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()

    def _ask(self, question: dict[str, Any]) -> Any:
        if self._source:
            return self._source.answer(question)
        assert self._process and self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def contents() -> npt.NDArray[np.uint8]:
    """What the source holds, made anew where it is needed to compare."""
    return np.frombuffer(np.random.default_rng(SEED).bytes(LAYOUT.span), np.uint8)


def tuned(sock: socket.socket) -> socket.socket:
    """As the TCP transport has it."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def main() -> None:
    source = Source(sys.argv[1])
    sys.stdout.write(source.transport.export_metadata().to_json() + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(source.answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    source.transport.close()


if __name__ == "__main__":
    main()
