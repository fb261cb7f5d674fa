"""Every limit and default of the pipeline that an operator may change, in one `PAGEMILL_` namespace."""

from __future__ import annotations

import os
from functools import lru_cache
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class PipelineSettings(BaseSettings):
    """Read from the environment, e.g. `PAGEMILL_PAGE_SECONDS=300`."""

    model_config = SettingsConfigDict(env_prefix="PAGEMILL_")

    max_file_mb: int = Field(1024, gt=0, description="Largest input file, MiB.")
    max_pages: int = Field(10_000, gt=0, description="Most pages of one document.")
    max_page_megapixels: int = Field(
        250, gt=0, description="Largest page, in megapixels at 200 dpi; larger ones are refused."
    )
    page_seconds: float = Field(120, gt=0, description="Deadline for one attempt at one page, seconds.")
    page_memory_mb: int = Field(3072, ge=256, description="Memory ceiling of one page process, MiB.")
    recycle_after_pages: int = Field(200, gt=0, description="Pages after which a page process is replaced.")
    window_pages: int = Field(4, gt=0, description="Pages that one page process takes at a time.")
    workers: int = Field(0, ge=0, description="Page processes of one run; 0 takes one for each CPU, at most 8.")
    engine_url: str | None = Field(
        None,
        description="Server of a document model with OpenAI's API, `http(s)://host:port`. Pages are sent to no other. "
        "Default: none, and no route `vlm`.",
    )
    engine_api_key: SecretStr | None = Field(
        None, description="Sent to the engine as a bearer token; of our router it is PAGEMILL_ROUTER_API_KEY."
    )
    engine_model: str | None = Field(
        None, description="Model to ask the engine for, part of what decides a result. Default: the first it lists."
    )
    engine_seconds: float = Field(60, gt=0, description="Deadline of one request to the engine, seconds.")
    engine_concurrency: int = Field(
        16, gt=0, description="Requests that one page process has under way at the engine at the same time."
    )

    @field_validator("engine_url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if not value:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("write it as http://host:port or https://host:port")
        if parts.username or parts.password:
            raise ValueError("put the secret into PAGEMILL_ENGINE_API_KEY, not into the address")
        return value.rstrip("/").removesuffix("/v1")

    def worker_count(self) -> int:
        return self.workers or min(8, len(os.sched_getaffinity(0)))


@lru_cache(maxsize=1)
def settings() -> PipelineSettings:
    """The settings of this process, read once."""
    return PipelineSettings()
