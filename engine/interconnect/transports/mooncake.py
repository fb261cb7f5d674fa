"""Over Mooncake's transfer engine, for RDMA networks.

The library listens on all interfaces whatever address it is told, and anybody who reaches its port can read what is
registered: use it on a network of its own. A read that it has begun cannot be interrupted.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from engine.interconnect.errors import OutOfBounds, PeerLost, Unavailable
from engine.interconnect.transfer import Transfer
from engine.interconnect.transport import Availability
from engine.interconnect.transports.one_sided import Fetch, Link, Memory, Mover, OneSided, bases_in, rdma_devices


class Mooncake(OneSided):
    """Mooncake's transfer engine (mooncake-transfer-engine)

    Args:
        protocol: "rdma"; "tcp" works too, slower and less safe than our own.
        device: of RDMA; by default the library chooses.
        Everything else as for `Tcp`, which carries leases and checksums.
    """

    name = "mooncake"

    def __init__(
        self, engine_id: str, *, protocol: str = "rdma", device: str = "", host: str = "127.0.0.1", **options: Any
    ) -> None:
        missing = _missing_library() or (_missing_device() if protocol == "rdma" else "")
        if missing:
            raise Unavailable(f"mooncake: {missing}")
        super().__init__(engine_id, _MooncakeMover(host, protocol, device), host=host, **options)

    @classmethod
    def available(cls) -> Availability:
        missing = _missing_library() or _missing_device()
        return Availability(not missing, missing)

    def require_available(self) -> None:
        """Done by the constructor, which knows the protocol."""


class _MooncakeMover(Mover):
    def __init__(self, host: str, protocol: str, device: str) -> None:
        from mooncake.engine import TransferEngine

        self._engine = TransferEngine()
        if self._engine.initialize(host, "P2PHANDSHAKE", protocol, device):
            raise Unavailable(f"mooncake: the transfer engine does not start with {protocol} {device}".rstrip())
        self._segment = f"{host}:{self._engine.get_rpc_port()}"
        self._bases: dict[str, int] = {}

    def register(self, memory: Memory) -> None:
        if self._engine.register_memory(memory.address, memory.size):
            raise Unavailable(f"mooncake: region {memory.name!r} cannot be registered with the device")
        self._bases[memory.name] = memory.address

    def introduce(self) -> dict[str, Any]:
        return {"segment": self._segment}

    def answer(self, theirs: dict[str, Any]) -> dict[str, Any]:
        return {"segment": self._segment, "bases": self._bases}

    def link(self, introduced: dict[str, Any], theirs: dict[str, Any]) -> Link:
        return _MooncakeLink(self._engine, str(theirs.get("segment")), bases_in(theirs))

    def close(self) -> None:
        for base in self._bases.values():
            self._engine.unregister_memory(base)
        self._bases.clear()


class _MooncakeLink(Link):
    def __init__(self, engine: Any, segment: str, bases: dict[str, int]) -> None:
        self._engine = engine
        self._segment = segment
        self._bases = bases

    def read(self, region: str, fetches: Sequence[Fetch], transfer: Transfer) -> None:
        if region not in self._bases:
            raise OutOfBounds(f"the peer has not registered region {region!r}")
        base = self._bases[region]
        # Waits for as long as the library does. If that is longer than the deadline, the transfer is failed
        # without us, and its blocks stay in quarantine until this call has returned.
        status = self._engine.batch_transfer_sync_read(
            self._segment,
            [local for _, local, _ in fetches],
            [base + offset for offset, _, _ in fetches],
            [size for _, _, size in fetches],
        )
        if status:
            raise PeerLost(f"mooncake: the read failed with status {status}")


@functools.cache
def _missing_library() -> str:
    try:
        import mooncake.engine  # noqa: F401
    except (ImportError, OSError) as error:
        return f"the library cannot be loaded ({error}); pip install mooncake-transfer-engine"
    return ""


def _missing_device() -> str:
    return "" if rdma_devices() else "there is no RDMA device on this machine"
