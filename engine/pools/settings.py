"""What one instance is told at its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.role import Role

JOIN_STEPS = 3
"""Decode steps after which a pulled sequence joins the batch. It costs a step of one token, which those that were
pulled meanwhile share."""

PATIENT_STEPS = 4
"""Decode steps between prompts on an instance that is about to prefill: as much of its time is for the one as for the
other, where a prompt takes several steps. With fewer its last answers, which the change waits for, hardly go on."""


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Of one instance. Times are in seconds.

    Attributes:
        model: folder of the checkpoint.
        token: what router and instances share; it is asked for by HTTP and on the interconnect.
        engine_id: which instance; stays the same over restarts.
        epoch: which incarnation of it; larger after every restart.
        role: to begin with.
        vendor: cpu, cuda, ascend, camb or maca.
        eager: run operators one by one; else decode runs as compiled graphs where the vendor has them.
        host, port: where to listen.
        advertise: host name that others are told, if it differs.
        router: base URL to register with.
        kv_blocks: of the KV cache; 0 takes what `memory_bytes` (cpu) or LMDeploy's share of the device allows.
        block_size: tokens a block. Between instances with different ones KV is repacked, token by token.
        session_len: tokens of prompt and answer together.
        max_batch_size: sequences computed at once.
        max_prefill_tokens: of one step; longer prompts are cut into chunks.
        max_requests: admitted at once, before `overloaded`.
        lease_s: how long the KV of a prefill is kept for a reader.
        transports: of the interconnect, best first.
        staged: mirror the KV cache in host memory even where the host could reach it.
        canary_s: from one canary to the next.
        threads: of numerical libraries.
        cpu_share: share of one core that its steps are held to, above 0 and at most 1; None: they are not.
    """

    model: Path
    token: str
    engine_id: str
    epoch: int
    role: Role = Role.HYBRID
    vendor: str = "cpu"
    eager: bool = True
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str | None = None
    router: str | None = None
    kv_blocks: int = 0
    memory_bytes: int = 2 << 30
    block_size: int = 64
    session_len: int = 8192
    max_batch_size: int = 32
    max_prefill_tokens: int = 8192
    prefix_caching: bool = True
    max_requests: int = 256
    lease_s: float = 30.0
    transports: tuple[str, ...] = ("shared_memory", "tcp")
    staged: bool = False
    canary_s: float = 20.0
    threads: int = 1
    cpu_share: float | None = None
    model_name: str = ""

    def __post_init__(self) -> None:
        if self.cpu_share is not None and not 0 < self.cpu_share <= 1:
            raise ValueError(f"cpu_share is {self.cpu_share}, not above 0 and at most 1")

    @property
    def shown_model(self) -> str:
        return self.model_name or self.model.name
