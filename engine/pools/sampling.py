"""Penalties and n-gram blocking over the whole history of a request, wherever its tokens were computed.

LMDeploy's own repetition penalty sees only what this engine generated, which is less than a request's history where
another instance did the prefill. These see prompt and answer, by the definitions of transformers (repetition penalty,
no_repeat_ngram) and of OpenAI (presence and frequency penalty, over the answer alone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from engine.pools.messages import Sampling

if TYPE_CHECKING:
    from lmdeploy.messages import GenerationConfig


def generation_config(
    sampling: Sampling, *, prompt_tokens: int, most: int, stop_token_ids: tuple[int, ...], **more: Any
) -> GenerationConfig:
    """A request's sampling in LMDeploy's terms.

    Args:
        prompt_tokens: length of the prompt proper. Tokens after it count as answer, also where they are input.
        most: tokens to generate here.
        stop_token_ids: end of text. With `ignore_eos` they are ordinary tokens.
        more: further fields, for keeping and for pulling KV.
    """
    from lmdeploy.messages import GenerationConfig

    greedy = sampling.temperature == 0
    return GenerationConfig(
        max_new_tokens=most,
        do_sample=not greedy,
        top_k=1 if greedy else sampling.top_k,
        top_p=1.0 if greedy else sampling.top_p,
        temperature=1.0 if greedy else sampling.temperature,
        random_seed=sampling.seed,
        stop_token_ids=None if sampling.ignore_eos else list(stop_token_ids),
        logits_processors=logits_processors(sampling, prompt_tokens) or None,
        **more,
    )


def logits_processors(sampling: Sampling, prompt_tokens: int) -> list[History]:
    """Those that the request needs, in transformers' order."""
    found: list[History] = []
    if sampling.repetition_penalty != 1:
        found.append(RepetitionPenalty(sampling.repetition_penalty))
    if sampling.presence_penalty or sampling.frequency_penalty:
        found.append(AnswerPenalty(sampling.presence_penalty, sampling.frequency_penalty, prompt_tokens))
    if sampling.no_repeat_ngram_size:
        found.append(NoRepeatNGram(sampling.no_repeat_ngram_size))
    return found


class History:
    """A logits processor over one request's history.

    Called with all token ids of the request so far, shape (n,), where negative ones are padding, and with the logits
    of the next one, shape (vocabulary,), which it changes.
    """

    def __call__(self, token_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return self.apply(token_ids[token_ids >= 0], logits)

    def apply(self, token_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class RepetitionPenalty(History):
    """Logits of tokens that occur in prompt or answer are divided by it where positive, else multiplied (CTRL)."""

    def __init__(self, penalty: float) -> None:
        self._penalty = penalty

    def apply(self, token_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        seen = logits[token_ids]
        logits[token_ids] = torch.where(seen < 0, seen * self._penalty, seen / self._penalty)
        return logits


class AnswerPenalty(History):
    """From logits of tokens in the answer, `presence` is taken once and `frequency` for each occurrence."""

    def __init__(self, presence: float, frequency: float, prompt_tokens: int) -> None:
        self._presence = presence
        self._frequency = frequency
        self._prompt_tokens = prompt_tokens

    def apply(self, token_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        tokens, counts = token_ids[self._prompt_tokens :].unique(return_counts=True)
        logits[tokens] -= self._presence + self._frequency * counts.to(logits.dtype)
        return logits


class NoRepeatNGram(History):
    """Tokens that would complete an n-gram which the history already has get no chance."""

    def __init__(self, size: int) -> None:
        self._size = size

    def apply(self, token_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        length = len(token_ids)
        if length < self._size:
            return logits
        if self._size == 1:
            logits[token_ids] = -torch.inf
            return logits
        lead = self._size - 1
        ending = token_ids[length - lead :]
        # Where an n-gram's last but one token is ours; few places, so that long n-grams cost little.
        places = (token_ids[lead - 1 : -1] == ending[-1]).nonzero()[:, 0]
        if len(places):
            same = (token_ids[places[:, None] + torch.arange(lead, device=places.device)] == ending).all(1)
            logits[token_ids[places[same] + lead]] = -torch.inf
        return logits
