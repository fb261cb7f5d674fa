"""From lengths to seconds: what one instance of speed 1 needs for prefill, for decode, for a flip."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from engine.balancer.load import Load


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost model. Defaults are a guess, not a measurement: MinerU2.5 (a 0.675B vision encoder on four patches
    a token, a 0.5B language model) in 16 bit on one NVIDIA A100 80 GB at 35% of its peak of 312 TFLOP/s and 60% of
    its memory bandwidth of 2.0 TB/s, with 6 ms of host time a decode step. A file of measured costs replaces them.

    Attributes:
        prefill_request_s: seconds for each request, whatever its length.
        visual_token_s: seconds for each visual token (6.4 GFLOP).
        text_token_s: seconds for each text token (1.0 GFLOP).
        attention_s: seconds for each (prompt token)^2.
        step_s: seconds for each decode step, whatever is in it: host time and reading the weights.
        step_kv_token_s: seconds a step for each token of KV that it reads.
        step_sequence_s: seconds a step for each sequence in it.
        max_sequences: sequences that an instance decodes at the same time.
        kv_capacity_tokens: KV tokens that fit an instance.
        kv_bytes_per_token: bytes of KV for one token.
        tpot_bound_s: seconds that a step may take at most; bounds the batch.
        prefill_batch_tokens: prompt tokens that one prefill pass takes at most (one longer prompt goes alone).
        bandwidth_bytes_s: bytes a second that one instance can send.
        transfer_latency_s: seconds before the first byte of a transfer.
        front_s: seconds that a request takes besides, before its first token, while no instance is busy with it: HTTP,
            reading the prompt.
        flip_s: seconds to switch a drained instance's role and verify it.
        hybrid_decode_steps: decode steps that an instance makes between two prefill passes (LMDeploy's
            `prefill_interval`).
        early_decode_steps: the same while the instance finishes its last decode work on the way to the prefill pool.
        join_steps: decode steps after which sequences join a running batch, by a step of their own that those which
            come meanwhile share; 0: joining costs nothing.
        overlap: share of its prefill speed that an instance has while it finishes its last decode work on the way to
            the prefill pool; 0 if it admits nothing before it is drained.
        error: relative error of the fit (root mean square), by name of the fit; empty for a guess.
        source: where the numbers are from.
    """

    prefill_request_s: float = 1.0e-3
    visual_token_s: float = 5.86e-5
    text_token_s: float = 9.2e-6
    attention_s: float = 4.0e-10
    step_s: float = 6.8e-3
    step_kv_token_s: float = 1.02e-8
    step_sequence_s: float = 1.0e-5
    max_sequences: int = 64
    kv_capacity_tokens: int = 4_000_000
    kv_bytes_per_token: int = 12_288
    tpot_bound_s: float = 0.05
    prefill_batch_tokens: int = 4096
    bandwidth_bytes_s: float = 10e9
    transfer_latency_s: float = 2e-3
    front_s: float = 0.0
    flip_s: float = 2.0
    hybrid_decode_steps: int = 16
    early_decode_steps: int = 16
    join_steps: int = 0
    overlap: float = 0.6
    error: tuple[tuple[str, float], ...] = ()
    source: str = "guess: MinerU2.5, 16 bit, NVIDIA A100 80 GB"

    def prefill_s(self, load: Load) -> float:
        """Seconds of one instance to prefill `load`; seconds a second if `load` is a rate."""
        return (
            self.prefill_request_s * load.requests
            + self.visual_token_s * load.visual
            + self.text_token_s * load.text
            + self.attention_s * load.squares
        )

    def decode_s(self, load: Load) -> float:
        """Seconds of one instance, at the batch it can hold, to generate the output of `load`."""
        if load.output <= 0:
            return 0.0
        batch = self.batch(load.context)
        return load.output * self.step(batch, batch * load.context) / batch

    def hybrid_s(self, load: Load) -> float:
        """Seconds of one instance that does both: the phases take turns, and neither waits for the other."""
        return self.prefill_s(load) + self.decode_s(load)

    def transfer_s(self, load: Load) -> float:
        """Seconds of one instance's link to send the KV of `load`."""
        return load.kv_tokens * self.kv_bytes_per_token / self.bandwidth_bytes_s

    def step(self, sequences: float, kv_tokens: float) -> float:
        """Seconds of one decode step over `sequences` that read `kv_tokens` in all."""
        return self.step_s + self.step_kv_token_s * kv_tokens + self.step_sequence_s * sequences

    def batch(self, context: float) -> float:
        """Sequences an instance decodes at once: bounded by slots, by KV memory and by the time of a step."""
        by_memory = self.kv_capacity_tokens / context if context > 0 else math.inf
        spare = self.tpot_bound_s - self.step_s
        by_tpot = spare / (self.step_kv_token_s * context + self.step_sequence_s + 1e-15)
        return max(1.0, min(float(self.max_sequences), by_memory, by_tpot))

    def zero_load_s(self, visual: float, text: float, output: float) -> float:
        """Seconds from arrival to the last token of a request that is alone in the system."""
        prompt = visual + text
        prefill = (
            self.prefill_request_s
            + self.visual_token_s * visual
            + self.text_token_s * text
            + self.attention_s * prompt * prompt
        )
        move = self.transfer_latency_s + prompt * self.kv_bytes_per_token / self.bandwidth_bytes_s
        return self.front_s + prefill + move + max(0.0, output - 1) * self.step(1, prompt + output / 2)

    def slowed(self, factor: float) -> Costs:
        """The same model on a device that needs `factor` times as long for each token and step."""
        scaled = {
            name: getattr(self, name) * factor
            for name in (
                "prefill_request_s",
                "visual_token_s",
                "text_token_s",
                "attention_s",
                "step_s",
                "step_kv_token_s",
                "step_sequence_s",
                "tpot_bound_s",
            )
        }
        return replace(self, **scaled, source=f"{self.source}, {factor:g} times slower")

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Costs:
        """Read what `save` wrote.

        Raises:
            ValueError: not a cost file: unknown names, or numbers that are not positive and finite.
        """
        content = json.loads(path.read_text("utf-8"))
        known = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or set(content) - known:
            raise ValueError(f"{path} is not a cost file")
        content["error"] = tuple((str(name), float(value)) for name, value in content.get("error", ()))
        for name, value in content.items():
            bad = not isinstance(value, str | tuple) and not (
                isinstance(value, int | float) and math.isfinite(value) and value >= 0
            )
            if bad:
                raise ValueError(f"{path}: {name} is {value!r}, not a number of at least 0")
        return cls(**content)
