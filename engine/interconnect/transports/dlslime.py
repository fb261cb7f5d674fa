"""Over DLSlime, RDMA only.

Its TCP end point serves memory that nobody registered to anyone who asks, ignores timeouts, and reports success for
more than 32 reads before the bytes are there. So it is not used.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from engine.interconnect.errors import OutOfBounds, PeerLost
from engine.interconnect.transfer import Transfer
from engine.interconnect.transport import Availability
from engine.interconnect.transports.one_sided import Fetch, Link, Memory, Mover, OneSided, rdma_devices

MOST_AT_ONCE = 32


class DLSlime(OneSided):
    """DLSlime's RDMA end point (dlslime)

    Args: as for `Tcp`, which carries leases and checksums.
    """

    name = "dlslime"

    def __init__(self, engine_id: str, **options: Any) -> None:
        self.require_available()
        super().__init__(engine_id, _SlimeMover(), **options)

    @classmethod
    def available(cls) -> Availability:
        missing = _missing_library() or ("" if rdma_devices() else "there is no RDMA device on this machine")
        return Availability(not missing, missing)


class _SlimeMover(Mover):
    """Both sides of a link need an end point of their own, connected with the other's."""

    def __init__(self) -> None:
        self._known: list[Memory] = []
        self._serving: list[Any] = []
        self._introduced: list[Any] = []

    def register(self, memory: Memory) -> None:
        self._known.append(memory)

    def introduce(self) -> dict[str, Any]:
        endpoint = self._endpoint()
        self._introduced.append(endpoint)
        return {"endpoint": endpoint.endpoint_info(), "number": len(self._introduced) - 1}

    def answer(self, theirs: dict[str, Any]) -> dict[str, Any]:
        endpoint = self._endpoint()
        endpoint.connect(theirs.get("endpoint"))
        self._serving.append(endpoint)
        return {"endpoint": endpoint.endpoint_info(), "regions": endpoint.mr_info()}

    def link(self, introduced: dict[str, Any], theirs: dict[str, Any]) -> Link:
        endpoint = self._introduced[introduced["number"]]
        self._introduced[introduced["number"]] = None
        regions = theirs.get("regions")
        if not isinstance(regions, dict):
            raise PeerLost("the peer sent no regions")
        endpoint.connect(theirs.get("endpoint"))
        remote = {name: endpoint.register_remote_memory_region(name, info) for name, info in regions.items()}
        return _SlimeLink(endpoint, self._known, remote)

    def close(self) -> None:
        for endpoint in (*self._serving, *filter(None, self._introduced)):
            endpoint.shutdown()
        self._serving.clear()
        self._introduced.clear()

    def _endpoint(self) -> Any:
        import dlslime

        endpoint = dlslime.RDMAEndpoint(device_name=dlslime.available_nic()[0])
        for memory in self._known:
            _handle(endpoint, memory)
        return endpoint


class _SlimeLink(Link):
    def __init__(self, endpoint: Any, known: list[Memory], remote: dict[str, int]) -> None:
        self._endpoint = endpoint
        self._known = known
        self._remote = remote

    def read(self, region: str, fetches: Sequence[Fetch], transfer: Transfer) -> None:
        remote = self._remote.get(region)
        own = next((memory for memory in self._known if all(memory.holds(at, size) for _, at, size in fetches)), None)
        if remote is None or own is None:
            raise OutOfBounds(f"region {region!r} is not registered on both sides")
        handle = _handle(self._endpoint, own)
        rows = [(handle, remote, offset, address - own.address, size) for offset, address, size in fetches]
        for start in range(0, len(rows), MOST_AT_ONCE):
            transfer.check()
            status = self._endpoint.read(rows[start : start + MOST_AT_ONCE]).wait()
            if status:
                raise PeerLost(f"dlslime: a read failed with status {status}")

    def close(self) -> None:
        self._endpoint.shutdown()


def _handle(endpoint: Any, memory: Memory) -> int:
    """Registers the memory, or finds that it is registered."""
    return int(endpoint.register_memory_region(memory.name, memory.address, 0, memory.size))


@functools.cache
def _missing_library() -> str:
    try:
        import dlslime  # noqa: F401
    except (ImportError, OSError) as error:
        return f"the library cannot be loaded ({error}); pip install dlslime"
    return ""
