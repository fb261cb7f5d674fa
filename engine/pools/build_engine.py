"""LMDeploy's engine, built for an instance. Imports torch and LMDeploy; only the engine's thread calls it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.adapters.catalogue import Mode
from engine.adapters.dispatcher import find_vendor
from engine.adapters.start import describe, prepare
from engine.lmdeploy_patches.pressure import Evictions, count_evictions
from engine.pools.kv_cache import KVCache
from engine.pools.settings import JOIN_STEPS, PATIENT_STEPS, InstanceSettings

if TYPE_CHECKING:
    from engine.pools.migration_backend import InterconnectBackend


@dataclass(frozen=True, slots=True)
class Built:
    """An engine before its loop starts.

    Attributes:
        engine: LMDeploy's.
        operators: choice for each operator, with its reason.
        mode: the one that runs; eager where graphs were asked for and cannot be had.
    """

    engine: Any
    cache: KVCache
    backend: InterconnectBackend
    operators: Mapping[str, str]
    mode: str
    evictions: Evictions


def build_engine(settings: InstanceSettings, pixels: Callable[[Any], Any]) -> Built:
    """Choose operators, patch LMDeploy, load the model, allocate the KV cache.

    Args:
        pixels: gives the pixel values of a `PromptImage`, whenever the vision encoder needs them.

    Raises:
        VendorUnavailable, LMDeployChanged, and whatever keeps LMDeploy from loading the model.
    """
    wanted = Mode.EAGER if settings.eager else Mode.GRAPH
    table = prepare(settings.vendor, wanted, kv_bytes=settings.memory_bytes)
    _install_once(settings.vendor)

    from lmdeploy import PytorchEngineConfig
    from lmdeploy.pytorch.disagg.config import EngineRole
    from lmdeploy.pytorch.engine import Engine
    from lmdeploy.utils import get_logger

    from engine.lmdeploy_patches.in_flight import track
    from engine.lmdeploy_patches.pace import hold_to_share
    from engine.pools.migration_backend import InterconnectBackend, PagemillMigration
    from engine.pools.vision_inputs import VisionInputs

    # It tells of every request; what matters is in our own log.
    get_logger("lmdeploy").setLevel(logging.WARNING)
    config = PytorchEngineConfig(
        device_type=settings.vendor,
        max_batch_size=settings.max_batch_size,
        block_size=settings.block_size,
        num_gpu_blocks=settings.kv_blocks,
        session_len=settings.session_len,
        max_prefill_token_num=settings.max_prefill_tokens,
        enable_prefix_caching=settings.prefix_caching,
        eager_mode=table.mode is Mode.EAGER,
        # It computes whatever it is given. Our roles are above it.
        role=EngineRole.Hybrid,
        migration_backend=PagemillMigration.Pagemill,
    )
    engine = Engine(str(settings.model), config)
    track(engine)
    if settings.cpu_share is not None:
        hold_to_share(engine, settings.cpu_share, settings.threads)
    cache_engine = engine.executor.model_agent.cache_engine
    cache = KVCache(cache_engine, find_vendor(settings.vendor).kv_order, staged=settings.staged)
    backend = InterconnectBackend()
    backend.cache = cache
    cache_engine.migration_backend_impl = backend
    if engine.input_processor is not None:
        engine.input_processor = VisionInputs(engine.input_processor, pixels)
    return Built(engine, cache, backend, describe(engine, table), table.mode, count_evictions(engine))


@functools.cache
def _install_once(vendor: str) -> None:
    from engine.lmdeploy_patches.history import install_history
    from engine.lmdeploy_patches.in_flight import install_in_flight
    from engine.lmdeploy_patches.kv_arena import install_kv_arena
    from engine.lmdeploy_patches.migration import install_migration
    from engine.lmdeploy_patches.turns import install_turns

    install_migration()
    install_turns(JOIN_STEPS, PATIENT_STEPS)
    install_in_flight()
    install_history()
    if vendor == "cpu":
        install_kv_arena()
