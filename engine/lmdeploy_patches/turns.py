"""Whose step is next: that of what waits, or one more of what is being decoded."""

from __future__ import annotations

import functools
from typing import Any

from engine.lmdeploy_patches.hooks import function, replace

_MAKER = "lmdeploy.pytorch.engine.inputs_maker:InputsMakerAsync"


def install_turns(join_steps: int, patient_steps: int) -> None:
    """Change two of LMDeploy's rules for what waits; the others stay.

    Pulled sequences join the batch within a few steps. LMDeploy computes their first token as it does a prompt, and
    lets prompts wait for up to sixteen decode steps once half of the places are taken.

    Patient prompts take turns with a few decode steps. LMDeploy computes prompts at once while half of the places are
    free, so that as long as prompts come what is being decoded would not go on; and with fewer it makes them wait long.

    Args:
        join_steps: decode steps after which pulled sequences join.
        patient_steps: decode steps before each turn of patient prompts.

    Raises:
        LMDeployChanged: a hook is not what it was.
    """
    hook = f"{_MAKER}.do_prefill_default"
    original = function(hook, ["self"])
    function(f"{_MAKER}._has_pending_last_long_context_chunk", ["self"])

    @functools.wraps(original)
    def do_prefill(self: Any) -> bool:
        scheduler = self.scheduler
        waiting = scheduler.waiting
        if self._decode_count >= join_steps and waiting and all(one.num_token_ids == 1 for one in waiting):
            return True
        patient = patient_of(scheduler)
        if (
            waiting
            and scheduler.num_ready() + scheduler.num_running() > 0
            and all(one.session_id in patient for one in waiting)
            and not self._has_pending_last_long_context_chunk()
        ):
            if self._decode_count >= patient_steps:
                return True
            self._decode_count += 1
            return False
        return bool(original(self))

    replace(hook, do_prefill)


def patient_of(scheduler: Any) -> set[int]:
    """Sessions of one engine whose prompts are patient; to be changed in the engine's thread."""
    found: set[int] | None = getattr(scheduler, "patient", None)
    if found is None:
        found = scheduler.patient = set()
    return found
