"""What crosses between a router and an instance, as JSON over HTTP. Frozen: a message is never changed, only answered.

An instance serves, under its base URL and behind `Authorization: Bearer <PAGEMILL_ENGINE_TOKEN>`:

| call | body -> answer |
|---|---|
| `GET /health` | -> `Health`; 503 while `ok` is false |
| `GET /v1/instance` | -> `InstanceStatus` |
| `GET /metrics` | -> Prometheus text |
| `POST /v1/prefill` | `Generate` -> `Prefilled` |
| `POST /v1/decode` | `Decode` -> lines of `Chunk`, the last one with `finish_reason` |
| `POST /v1/generate` | `Generate` -> lines of `Chunk`: prefill and decode on this one instance |
| `POST /v1/release` | `{"request_id"}` -> `{}`: the KV of a prefill is not needed any more; twice is harmless |
| `POST /v1/abort` | `{"request_id"}` -> `{}`: stop it wherever it is and free its blocks; twice is harmless |
| `POST /v1/role` | `RoleChange` -> `InstanceStatus`, when the switch is done |
| `POST /v1/connect` | `PeerAddress` -> `Bandwidth`: greet an instance to pull from, and measure |

A stream that ends without a `finish_reason` was cut off. An error before the first chunk is an HTTP status with
an `EngineFailure` body; after it, a line with `error`.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from engine.role import Role


class FinishReason(StrEnum):
    """Why a stream of tokens ended.

    `REPETITION`: the text had begun to loop and was stopped.
    """

    STOP = "stop"
    LENGTH = "length"
    REPETITION = "repetition"
    ABORT = "abort"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TextPart(_Message):
    text: str


class ImagePart(_Message):
    """A picture within a prompt.

    Attributes:
        image: the bytes of a PNG, JPEG or WebP file, in base64.
    """

    image: str


class ChatMessage(_Message):
    """One turn. `role`: system, user or assistant."""

    role: str
    content: tuple[TextPart | ImagePart, ...]


class Sampling(_Message):
    """How tokens are chosen. Greedy where `temperature` is 0.

    Attributes:
        max_tokens: the most to generate.
        no_repeat_ngram_size: no n-gram of this length comes twice; 0 is off.
        repetition_stop: end with REPETITION when the end of the text has become a loop.
        stop: texts that end the answer and are not part of it.
        ignore_eos: go on to `max_tokens`, for measurements.
    """

    max_tokens: int = Field(default=1024, ge=1)
    temperature: float = Field(default=0.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1.0, gt=0)
    no_repeat_ngram_size: int = Field(default=0, ge=0)
    repetition_stop: bool = True
    stop: tuple[str, ...] = ()
    seed: int | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True


class Generate(_Message):
    """One request, whole: any instance can serve it from this alone.

    Attributes:
        request_id: chosen by the router, unique over time.
        messages: the conversation; empty where `prompt_token_ids` is given.
        prompt_token_ids: the prompt as tokens, for measurements and tests; no images then.
        deadline_s: seconds from receipt after which the instance gives it up.
        early: what is asked belongs to the role that the instance is about to get. The router knows, and lets it do so
            while the last work of its old role ends.
    """

    request_id: str
    messages: tuple[ChatMessage, ...] = ()
    prompt_token_ids: tuple[int, ...] | None = None
    sampling: Sampling = Sampling()
    deadline_s: float = Field(default=600.0, gt=0)
    early: bool = False


class KVHandle(_Message):
    """KV blocks of a finished prefill, leased until they are pulled.

    Attributes:
        engine_id, epoch: of the instance that holds them.
        lease: what a reader names when it pulls: the interconnect's lease, as JSON.
        block_ids: the source's blocks, in the order of the tokens.
        lease_s: seconds from now until the source takes them back.
    """

    engine_id: str
    epoch: int
    lease: str
    block_ids: tuple[int, ...]
    lease_s: float


class ImageGrid(_Message):
    """Where an image's tokens stand in the prompt; a decode instance needs it for the positions of mrope.

    Attributes:
        offset: index of its first token.
        tokens: how many tokens it is.
        grid_thw: (t, h, w) in patches.
    """

    offset: int
    tokens: int
    grid_thw: tuple[int, int, int]


class Usage(_Message):
    """Tokens of a request. `cached_tokens`: those of the prompt whose KV was there already."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    image_tokens: int = 0


class Prefilled(_Message):
    """What a prefill instance hands over.

    Attributes:
        first: the first token with its text. If it has a `finish_reason`, there is nothing to decode and no `kv`.
        prefill_s: seconds of the engine's steps that were this prompt's, `queue_s` of everything else until its end.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    images: tuple[ImageGrid, ...] = ()
    first: Chunk
    kv: KVHandle | None
    queue_s: float
    prefill_s: float


class Decode(_Message):
    """Go on from a prefill's first token.

    Attributes:
        request: the whole request, so that this instance can prefill it itself if the pull fails.
        source: where the blocks are.
        pull_deadline_s: seconds within which they must be here.
    """

    request: Generate
    prefilled: Prefilled
    source: PeerAddress
    pull_deadline_s: float = Field(default=10.0, gt=0)


class Chunk(_Message):
    """Some tokens of an answer.

    Attributes:
        text: what they add to the text; a character whose bytes are split over tokens comes with its last one.
        fallback: in the first chunk of a decode: why the KV was not pulled and the prompt was computed again here.
    """

    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    fallback: str | None = None
    pull_s: float | None = None
    pull_bytes: int | None = None
    error: EngineFailure | None = None


class EngineFailure(_Message):
    """A typed error. `code` is stable; `retryable`: the same request may succeed on another instance or later."""

    code: str
    message: str
    retryable: bool


class PeerAddress(_Message):
    """An instance and what is needed to pull from it.

    Attributes:
        interconnect: `PeerMetadata` of every transport that it listens on, as JSON, best first.
    """

    engine_id: str
    epoch: int
    url: str
    interconnect: tuple[str, ...]


class Bandwidth(_Message):
    """Measured once at connecting: the transport in use, and its bytes a second."""

    transport: str
    bytes_per_s: float


class RoleChange(_Message):
    """Drain, switch, verify. Only what the new role does not do has to end; the rest goes on.

    Attributes:
        epoch: the incarnation that it is meant for; another one refuses with `stale_epoch`.
        drain_s: seconds that what has to end may take before it is aborted with a retryable error.
    """

    role: Role
    epoch: int
    drain_s: float = Field(default=30.0, ge=0)


class Health(_Message):
    """The last canary: a real inference of a few tokens, compared with what the model answered at the start.

    Attributes:
        ok: it answered right, and not longer ago than three times its interval.
        age_s: seconds since it ended.
        seconds: how long it took.
        cpu_share: share of one core that the instance's steps are held to; None: they are not.
    """

    ok: bool
    reason: str
    age_s: float
    seconds: float
    cpu_share: float | None = None


class InstanceStatus(_Message):
    """An instance as it describes itself.

    Attributes:
        phase: starting, ready, draining, switching, failed.
        max_prefill_tokens: prompt tokens of one step; 0 where it does not say.
        running, waiting: requests that are being computed, and those admitted that are not yet.
        free_blocks, total_blocks: of the KV cache, each of `block_size` tokens.
        leases: prefills whose KV is kept for a reader.
        remaining_tokens: the most tokens that what is running may still generate.
        prefix_roots: hashes of prompt prefixes whose KV is cached, newest first; at most 1,000.
        counters: totals since the start, by the names that /metrics uses.
        operators: choice per operator and mode with its reason, as the dispatcher made it.
    """

    address: PeerAddress
    model: str
    vendor: str
    device: str
    mode: str
    role: Role
    phase: str
    session_len: int
    max_batch_size: int
    max_prefill_tokens: int = 0
    block_size: int
    kv_bytes_per_token: int
    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    leases: int
    remaining_tokens: int
    prefix_roots: tuple[str, ...] = ()
    counters: dict[str, float] = {}
    operators: dict[str, str] = {}
    health: Health
    uptime_s: float
