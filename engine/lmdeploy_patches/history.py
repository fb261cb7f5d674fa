"""Token histories for logits processors, with padding that can be told from tokens.

LMDeploy hands a processor one row of a batch. Rows of different lengths are filled up, on either side, with the
padding token's id, which is a token like any other; here it is -1, so that a processor can leave it out.
"""

from __future__ import annotations

import functools
from typing import Any

from engine.lmdeploy_patches.hooks import function, replace

PADDING = -1


def install_history() -> None:
    """Pad with -1. Raises LMDeployChanged."""
    gather_hook = "lmdeploy.pytorch.strategies.ar.sampling:_gather_all_ids"
    gather = function(gather_hook, ["pad_id", "seqs", "sampling_inputs"])
    merge_hook = "lmdeploy.pytorch.strategies.ar.step_inputs:merge_sampling_delta"
    merge = function(merge_hook, ["sampling_delta", "other", "pad_token_id"])

    @functools.wraps(gather)
    def gathered(pad_id: int, seqs: Any, sampling_inputs: Any) -> Any:
        return gather(PADDING, seqs, sampling_inputs)

    @functools.wraps(merge)
    def merged(sampling_delta: Any, other: Any, pad_token_id: int) -> Any:
        return merge(sampling_delta, other, PADDING)

    replace(gather_hook, gathered)
    replace(merge_hook, merged)
