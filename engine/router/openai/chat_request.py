"""A body of `POST /v1/chat/completions`, understood. What would change the answer and is not there is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from engine.pools.messages import ChatMessage, ImagePart, Sampling, TextPart
from engine.router.errors import InvalidRequest, Unsupported
from engine.router.openai.images import Image, ImagePolicy, read_image


class _Lenient(BaseModel):
    """Unknown fields are for other servers; they are left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _ImageUrl(_Lenient):
    url: str


class _Text(_Lenient):
    type: Literal["text"]
    text: str


class _ImageAt(_Lenient):
    type: Literal["image_url"]
    image_url: Annotated[_ImageUrl, BeforeValidator(lambda given: {"url": given} if isinstance(given, str) else given)]


class _Turn(_Lenient):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | tuple[Annotated[_Text | _ImageAt, Field(discriminator="type")], ...] | None = None


class _StreamOptions(_Lenient):
    include_usage: bool = False


class _Extra(_Lenient):
    """vLLM's arguments for its own logits processors."""

    no_repeat_ngram_size: int | None = Field(None, ge=0)


class ChatRequest(_Lenient):
    """OpenAI's fields, vLLM's that MinerU's client sends, and a few of ours.

    Attributes:
        timeout: seconds that the whole may take.
        priority: the lower, the sooner; 0 where nothing is said.
        prompt_token_ids: the prompt as tokens, in place of `messages`; for measurements.
        return_token_ids: put the tokens beside the text, as vLLM does.
    """

    messages: tuple[_Turn, ...] = ()
    model: str | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    n: int | None = 1
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: str | tuple[str, ...] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0)
    no_repeat_ngram_size: int | None = Field(None, ge=0)
    vllm_xargs: _Extra | None = None
    skip_special_tokens: bool | None = None
    ignore_eos: bool | None = None
    repetition_stop: bool | None = None
    priority: int | None = Field(None, ge=-(2**31), lt=2**31)
    timeout: float | None = Field(None, gt=0)
    user: str | None = None
    prompt_token_ids: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    return_token_ids: bool | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """The conversation in the engine's words, and its size."""

    messages: tuple[ChatMessage, ...]
    images: tuple[Image, ...]
    text_bytes: int


_REFUSED: dict[str, tuple[Any, ...]] = {
    # Anything but these values asks for an answer of another kind.
    "tools": (None, [], "none"),
    "functions": (None, []),
    "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "logprobs": (None, False, 0),
    "top_logprobs": (None, 0),
    "logit_bias": (None, {}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "min_tokens": (None, 0),
    "min_p": (None, 0),
    "stop_token_ids": (None, []),
    "bad_words": (None, []),
    "guided_json": (None,),
    "guided_regex": (None,),
    "structured_outputs": (None,),
}


def parse_chat(body: object) -> ChatRequest:
    """Check the body.

    Raises:
        InvalidRequest: a field is missing or has a value that it cannot have.
        Unsupported: a field asks for what is not there; `n` above 1 among them.
    """
    if not isinstance(body, dict):
        raise InvalidRequest("the body is not a JSON object")
    for field, allowed in _REFUSED.items():
        if body.get(field) not in allowed:
            raise Unsupported(f"{field} is not supported", param=field)
    try:
        request = ChatRequest.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"{where}: {first['msg']}", param=where or None) from None
    if request.n not in (None, 1):
        raise Unsupported("n is not supported: one answer for each request", param="n")
    if not request.messages and not request.prompt_token_ids:
        raise InvalidRequest("messages is empty", param="messages")
    if request.messages and request.prompt_token_ids:
        raise InvalidRequest("messages and prompt_token_ids exclude each other", param="prompt_token_ids")
    return request


def sampling_of(request: ChatRequest, most: int) -> Sampling:
    """How tokens are to be chosen.

    Args:
        most: tokens to generate where the request says nothing.
    """
    greedy = request.temperature == 0 or request.top_k == 1 or request.top_p == 0
    extra = request.vllm_xargs.no_repeat_ngram_size if request.vllm_xargs else None
    stop = (request.stop,) if isinstance(request.stop, str) else request.stop or ()
    given: dict[str, Any] = {
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "repetition_penalty": request.repetition_penalty,
        "no_repeat_ngram_size": extra if request.no_repeat_ngram_size is None else request.no_repeat_ngram_size,
        "seed": request.seed,
        "ignore_eos": request.ignore_eos,
        "skip_special_tokens": request.skip_special_tokens,
        "repetition_stop": request.repetition_stop,
    }
    if greedy:
        given |= {"temperature": 0.0}
    else:
        # OpenAI's default is 1, not greedy.
        top_k = request.top_k if request.top_k and request.top_k > 0 else None
        given |= {
            "temperature": 1.0 if request.temperature is None else request.temperature,
            "top_p": request.top_p,
            "top_k": top_k,
        }
    return Sampling(
        max_tokens=request.max_completion_tokens or request.max_tokens or most,
        stop=tuple(text for text in stop if text),
        **{name: value for name, value in given.items() if value is not None},
    )


async def prompt_of(request: ChatRequest, policy: ImagePolicy, max_images: int) -> Prompt:
    """The conversation, images read.

    Raises:
        ImageRefused: an image cannot be taken.
        InvalidRequest: more images than allowed.
    """
    messages: list[ChatMessage] = []
    images: list[Image] = []
    nbytes = 0
    for turn in request.messages:
        parts: list[TextPart | ImagePart] = []
        content = turn.content if not isinstance(turn.content, str) else (_Text(type="text", text=turn.content),)
        for part in content or ():
            if isinstance(part, _Text):
                parts.append(TextPart(text=part.text))
                nbytes += len(part.text.encode("utf-8", "surrogatepass"))
                continue
            if len(images) >= max_images:
                raise InvalidRequest(f"more than {max_images} images", param="messages")
            image = await read_image(part.image_url.url, policy)
            images.append(image)
            parts.append(ImagePart(image=image.data))
        role = "system" if turn.role == "developer" else turn.role
        messages.append(ChatMessage(role=role, content=tuple(parts)))
    return Prompt(tuple(messages), tuple(images), nbytes)
