"""The engine that the vlm route asks: where it is, which model answers, whether it is well.

Its address comes from the settings and from nowhere else, so that no request can name one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import EngineUnavailable, RouteUnavailable
from pipeline.settings import PipelineSettings, settings

_PROBE_SECONDS = 3.0
"""Patience with a question that needs no inference."""

_ASK_AGAIN_SECONDS = 30.0
"""Time after which an engine is asked for its model again, whether it answered or not."""


@dataclass(frozen=True, slots=True)
class VlmEngine:
    """A server of a document VLM that speaks OpenAI's API.

    Attributes:
        url: without `/v1`.
        api_key: sent as a bearer token, never shown; None for none. Not PAGEMILL_ENGINE_TOKEN, the secret that the
            engine's own processes share: whoever's server is asked here need not know it.
        model: name to ask for; None for the first that it lists.
        request_seconds: deadline of one request.
        concurrency: requests under way at the same time, from one process.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    request_seconds: float = 60.0
    concurrency: int = 16

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def configured_engine(config: PipelineSettings | None = None) -> VlmEngine | None:
    """The engine of the settings, or None where none is configured."""
    config = config or settings()
    if config.engine_url is None:
        return None
    return VlmEngine(
        url=config.engine_url,
        api_key=config.engine_api_key.get_secret_value() if config.engine_api_key else None,
        model=config.engine_model or None,
        request_seconds=config.engine_seconds,
        concurrency=config.engine_concurrency,
    )


def required_engine() -> VlmEngine:
    """The engine of the settings.

    Raises:
        RouteUnavailable: none is configured.
    """
    engine = configured_engine()
    if engine is None:
        raise RouteUnavailable(
            "The route vlm needs an engine, and none is configured: set PAGEMILL_ENGINE_URL, or use `--engine URL`."
        )
    return engine


def model_name(engine: VlmEngine) -> str | None:
    """The model that the engine's answers come from: as configured, else as it lists it. Remembered
    for half a minute.

    None where the engine does not say so now. Takes at most a few seconds.
    """
    return engine.model or _MODELS.of(engine)


def listed_models(engine: VlmEngine) -> list[str]:
    """The models that the engine offers.

    Raises:
        EngineUnavailable: it does not answer, or not as an engine does.
    """
    answer = _get(engine, "/v1/models")
    try:
        return [str(model["id"]) for model in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        raise EngineUnavailable(f"The engine at {engine.url} does not list its models as OpenAI's API does.") from None


def check_health(engine: VlmEngine) -> str:
    """Ask the engine's `/health`, behind which our router runs a real inference. Answers what it said, in short.

    Raises:
        EngineUnavailable: it does not answer, or says that it is not well.
    """
    answer = _get(engine, "/health")
    try:
        instances = answer.json()["instances"]
        usable = [float(instance["canary_age_s"]) for instance in instances if instance["usable"]]
    except (ValueError, KeyError, TypeError):
        return "answers"  # another server than our router, whose 200 says that it is well
    return f"{len(usable)} of {len(instances)} instances usable, last canary {min(usable, default=0.0):.0f} s ago"


def _get(engine: VlmEngine, path: str) -> Any:
    import httpx

    try:
        with httpx.Client(timeout=_PROBE_SECONDS, trust_env=False, headers=dict(engine.headers())) as client:
            answer = client.get(engine.url + path)
    except httpx.HTTPError as error:
        raise EngineUnavailable(f"The engine at {engine.url} does not answer ({type(error).__name__}).") from None
    if answer.status_code != 200:
        raise EngineUnavailable(f"The engine at {engine.url} answers {path} with {answer.status_code}.")
    return answer


class _Models:
    """What engines said that their model is, for this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, str | None]] = {}

    def of(self, engine: VlmEngine) -> str | None:
        with self._lock:
            asked, name = self._said.get(engine.url, (0.0, None))
            if asked and time.monotonic() - asked < _ASK_AGAIN_SECONDS:
                return name
            try:
                name = next(iter(listed_models(engine)), None)
            except EngineUnavailable:
                name = None
            self._said[engine.url] = (time.monotonic(), name)
            return name


_MODELS = _Models()
