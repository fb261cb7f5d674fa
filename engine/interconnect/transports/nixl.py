"""Over NIXL with its UCX back end, which picks RDMA, shared memory or TCP by itself."""

from __future__ import annotations

import base64
import functools
import time
from collections.abc import Sequence
from typing import Any

from engine.interconnect.errors import InterconnectError, OutOfBounds, PeerLost
from engine.interconnect.transfer import Transfer
from engine.interconnect.transport import Availability
from engine.interconnect.transports.one_sided import Fetch, Link, Memory, Mover, OneSided, bases_in

# Between two looks at a transfer under way.
FIRST_PAUSE_SECONDS = 20e-6
LONGEST_PAUSE_SECONDS = 1e-3


class Nixl(OneSided):
    """NIXL with UCX (nixl)

    Args: as for `Tcp`, which carries leases and checksums.
    """

    name = "nixl"

    def __init__(self, engine_id: str, **options: Any) -> None:
        self.require_available()
        super().__init__(engine_id, _NixlMover(engine_id), **options)

    @classmethod
    def available(cls) -> Availability:
        missing = _missing()
        return Availability(not missing, missing)


class _NixlMover(Mover):
    def __init__(self, engine_id: str) -> None:
        from nixl._api import nixl_agent, nixl_agent_config

        # Names must differ between incarnations, or a peer would keep talking to the dead one.
        self._agent = nixl_agent(f"{engine_id}-{time.time_ns()}", nixl_agent_config(backends=["UCX"]))
        self._registered: list[Any] = []
        self._bases: dict[str, int] = {}

    def register(self, memory: Memory) -> None:
        rows = [(memory.address, memory.size, 0, memory.name)]
        self._registered.append(self._agent.register_memory(rows, "DRAM"))
        self._bases[memory.name] = memory.address

    def introduce(self) -> dict[str, Any]:
        return {}

    def answer(self, theirs: dict[str, Any]) -> dict[str, Any]:
        metadata = base64.b64encode(self._agent.get_agent_metadata()).decode()
        return {"metadata": metadata, "bases": self._bases}

    def link(self, introduced: dict[str, Any], theirs: dict[str, Any]) -> Link:
        try:
            peer = self._agent.add_remote_agent(base64.b64decode(str(theirs.get("metadata")), validate=True))
        except Exception as error:  # noqa: BLE001 - the library raises types of its own
            raise PeerLost(f"nixl: the peer's metadata is not understood: {error}") from None
        return _NixlLink(self._agent, peer if isinstance(peer, str) else peer.decode(), bases_in(theirs))

    def close(self) -> None:
        for registered in self._registered:
            self._agent.deregister_memory(registered)
        self._registered.clear()


class _NixlLink(Link):
    def __init__(self, agent: Any, peer: str, bases: dict[str, int]) -> None:
        self._agent = agent
        self._peer = peer
        self._bases = bases

    def read(self, region: str, fetches: Sequence[Fetch], transfer: Transfer) -> None:
        if region not in self._bases:
            raise OutOfBounds(f"the peer has not registered region {region!r}")
        base = self._bases[region]
        agent = self._agent
        local = agent.get_xfer_descs([(address, size, 0) for _, address, size in fetches], "DRAM")
        remote = agent.get_xfer_descs([(base + offset, size, 0) for offset, _, size in fetches], "DRAM")
        handle = agent.initialize_xfer("READ", local, remote, self._peer)
        try:
            self._wait(agent, handle, agent.transfer(handle), transfer)
        finally:
            agent.release_xfer_handle(handle)

    def _wait(self, agent: Any, handle: Any, state: str, transfer: Transfer) -> None:
        pause = FIRST_PAUSE_SECONDS
        stopped: InterconnectError | None = None
        while state == "PROC":
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            try:
                transfer.check()
            except InterconnectError as why:
                # It may still write. The handle's release cancels what can be cancelled; what cannot is waited for.
                stopped = why
            state = agent.check_xfer_state(handle)
        if stopped:
            raise stopped
        if state != "DONE":
            raise PeerLost(f"nixl: the read ended as {state}")


@functools.cache
def _missing() -> str:
    try:
        import nixl._api  # noqa: F401
    except (ImportError, OSError) as error:
        return f"the library cannot be loaded ({error}); pip install nixl"
    return ""
