"""LMDeploy's side of a pull: a migration backend that moves blocks by the interconnect, checked, leased, in time.

Imports LMDeploy; only engine processes load it.
"""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lmdeploy.pytorch.disagg.backend.backend import MIGRATION_BACKENDS
from lmdeploy.pytorch.disagg.backend.base import MigrationBackendImpl
from lmdeploy.pytorch.disagg.config import DistServeEngineConfig
from lmdeploy.pytorch.disagg.conn.protocol import (
    DistServeCachePoolInfo,
    DistServeInitRequest,
    DistServeKVTransferEndpointInfo,
    MigrationProtocol,
)

from engine.interconnect.errors import TransferCancelled
from engine.interconnect.layout import KVLayout
from engine.interconnect.leases import Lease
from engine.interconnect.plan import BlockPairs
from engine.interconnect.transfer import Transfer
from engine.interconnect.transport import DEFAULT_REGION, Connection
from engine.lmdeploy_patches.migration import CURRENT_SESSION
from engine.pools.kv_cache import KVCache

PROTOCOL = MigrationProtocol.TCP
"""LMDeploy wants one named; which transport it is has been chosen by measurement when it connected."""


class PagemillMigration(enum.Enum):
    """The name under which LMDeploy's configuration finds the backend."""

    Pagemill = "Pagemill"


@dataclass(slots=True, eq=False)
class Pull:
    """One request's pull: what it needs, and what became of it.

    Attributes:
        link: name of the peer, as given to `link`.
        deadline: instant of `time.monotonic()`.
        transfer: once it has begun.
        seconds, moved: of the transfer, and bytes.
    """

    link: str
    connection: Connection
    lease: Lease
    remote_blocks: tuple[int, ...]
    deadline: float
    transfer: Transfer | None = None
    cancelled: bool = False
    seconds: float = 0.0
    moved: int = 0

    def cancel(self) -> None:
        """Stop it as soon as possible. Harmless when it has ended."""
        self.cancelled = True
        if self.transfer:
            self.transfer.cancel()

    @property
    def may_write(self) -> bool:
        """True while something may still write into the local blocks."""
        return self.transfer is not None and not self.transfer.is_fenced


@dataclass(slots=True)
class _Link:
    """What LMDeploy looks up for a peer."""

    remote_engine_config: DistServeEngineConfig
    block_bytes: int = 0
    layer_bytes: int = 0


@MIGRATION_BACKENDS.register_module(PagemillMigration.Pagemill.name)
class InterconnectBackend(MigrationBackendImpl):
    """Pulls of one engine. Lives in its event loop.

    Attributes:
        pulls: by session.
    """

    def __init__(self) -> None:
        self.links: dict[str, _Link] = {}
        self.pulls: dict[int, Pull] = {}
        self.cache: KVCache | None = None

    async def p2p_migrate(self, assignment: Any, async_op: bool = False) -> None:
        """Pull the blocks that LMDeploy has paired for the current session. Raises InterconnectError."""
        remote, local = _blocks(assignment.batch, self.links[assignment.remote_engine_id])
        await self._move(self.pulls[CURRENT_SESSION.get()], BlockPairs.of(remote, local))

    def repacks(self) -> bool:
        """Whether the current session's blocks have another size there, so that LMDeploy cannot pair them."""
        assert self.cache is not None
        theirs = self.pulls[CURRENT_SESSION.get()].connection.peer.regions[DEFAULT_REGION]
        return theirs.block_size != self.cache.layout.block_size

    async def repack(self, local: Sequence[int], tokens: int, start: int) -> None:
        """Pull the current session's tokens into blocks of another size.

        Args:
            local: blocks from the one that token `start` begins.
            tokens: of the sequence, those before `start` included.

        Raises:
            InterconnectError
        """
        pull = self.pulls[CURRENT_SESSION.get()]
        await self._move(pull, BlockPairs.of(pull.remote_blocks, local, tokens, start))

    async def _move(self, pull: Pull, pairs: BlockPairs) -> None:
        cache = self.cache
        assert cache is not None
        if pull.cancelled:
            raise TransferCancelled("cancelled")
        transfer = pull.connection.submit(pull.lease, pairs, range(cache.layout.layers), pull.deadline)
        pull.transfer = transfer
        await _end_of(transfer)
        pull.seconds, pull.moved = transfer.seconds, transfer.moved
        if transfer.error:
            raise transfer.error
        if pull.cancelled:
            # The session may have ended, and its blocks be somebody else's.
            raise TransferCancelled("cancelled")
        cache.after_pull(pairs.local)

    # What LMDeploy does when two engines meet; our connections are made elsewhere.

    def p2p_initialize(self, init_request: DistServeInitRequest) -> None:
        self.links[init_request.remote_engine_id] = _Link(init_request.remote_engine_config)

    def register_memory_region(self, register_mr_request: Any) -> None:
        pass

    def endpoint_info(self, remote_engine_id: str, protocol: MigrationProtocol) -> dict[str, str]:
        return {}

    def p2p_connect(self, remote_engine_id: str, conn_req: DistServeKVTransferEndpointInfo) -> None:
        assert conn_req.cache_pools
        _, blocks, row = conn_req.cache_pools[0].shape
        link = self.links[remote_engine_id]
        link.block_bytes, link.layer_bytes = row, blocks * row

    def store(self, assignment: Any, async_op: bool = False) -> None:
        raise NotImplementedError

    def load(self, assignment: Any, async_op: bool = False) -> None:
        raise NotImplementedError


def link(engine: Any, name: str, layout: KVLayout) -> None:
    """Make a peer known to LMDeploy, by its layout. In the engine's thread. Again is harmless.

    A peer with blocks of another size is not: LMDeploy would refuse it, and has no part in pulls from it.

    Raises:
        RuntimeError: LMDeploy finds that the caches differ.
    """
    backend = engine.executor.model_agent.cache_engine.migration_backend_impl
    if name in backend.links or layout.block_size != engine.cache_config.block_size:
        return
    local, remote = _config(engine, engine.cache_config.num_gpu_blocks), _config(engine, layout.blocks)
    request = DistServeInitRequest(
        local_engine_id="local",
        local_engine_config=local,
        remote_engine_id=name,
        remote_engine_config=remote,
        protocol=PROTOCOL,
    )
    row = layout.parts[0].block_stride
    pool = DistServeCachePoolInfo(
        shape=(layout.layers, layout.blocks, row), dtype="torch.uint8", element_size=1, entry_axis=1
    )
    info = DistServeKVTransferEndpointInfo(protocol=PROTOCOL, endpoint_info=json.dumps({}), cache_pools=(pool,))
    try:
        engine.executor.p2p_initialize(request)
        engine.executor.p2p_connect(name, [info])
    except BaseException:
        backend.links.pop(name, None)
        raise


def _config(engine: Any, blocks: int) -> DistServeEngineConfig:
    config = engine.engine_config
    return DistServeEngineConfig(
        tp_size=config.tp,
        ep_size=config.ep,
        dp_size=config.dp,
        pp_size=None,
        dp_rank=config.dp_rank,
        block_size=engine.cache_config.block_size,
        num_cpu_blocks=0,
        num_gpu_blocks=blocks,
    )


def _blocks(batch: Sequence[Any], link: _Link) -> tuple[list[int], list[int]]:
    """Remote and local block numbers; LMDeploy has them as bytes, layer by layer, each layer the same.

    Its names: `target_offset` is the peer's side, `source_offset` ours.
    """
    first = [part for part in batch if part.target_offset < link.layer_bytes]
    row = link.block_bytes
    return [part.target_offset // row for part in first], [part.source_offset // row for part in first]


async def _end_of(transfer: Transfer) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def tell(_: Transfer) -> None:
        loop.call_soon_threadsafe(ended.set)

    transfer.add_done_callback(tell)
    await ended.wait()
