"""What an operator may set of the router, as PAGEMILL_ROUTER_ variables; the token is PAGEMILL_ENGINE_TOKEN."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class RouterSettings(BaseSettings):
    """Read from the environment, e.g. `PAGEMILL_ROUTER_QUEUE_LIMIT=500`."""

    model_config = SettingsConfigDict(env_prefix="PAGEMILL_ROUTER_", populate_by_name=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8810, ge=0, le=65535, description="Port; 0 takes a free one.")
    token: str | None = Field(
        None,
        validation_alias=AliasChoices("token", "PAGEMILL_ENGINE_TOKEN"),
        description="Secret between router and instances. Without it only this machine's instances may register.",
    )
    api_key: str | None = Field(None, description="Key that users send as a bearer token; none: all may ask.")
    instances: tuple[str, ...] = Field((), description="Addresses of instances that do not register themselves.")
    lease_s: float = Field(10.0, gt=0, description="Seconds after which an instance not heard of is lost.")
    queue_limit: int = Field(1000, ge=1, description="Requests that may wait; more are refused with 429.")
    request_timeout_s: float = Field(600.0, gt=0, description="Longest life of a request; its own is at most this.")
    instance_wait_s: float = Field(60.0, ge=0, description="Seconds that a request waits while nobody can serve it.")
    stall_s: float = Field(60.0, gt=0, description="Seconds without a token after which an answer counts as cut off.")
    attempts: int = Field(4, ge=1, description="Times that a request is tried, the first included.")
    pull_deadline_s: float = Field(10.0, gt=0, description="Seconds that moving the KV of a request may take.")
    prefill_window_tokens: int = Field(
        8192, ge=1, description="Prompt tokens that are with an instance at the same time; the rest waits here."
    )
    min_bandwidth_bytes_s: float = Field(
        0.0, ge=0, description="A link below this is not used, whatever the traffic needs."
    )
    max_body_mb: int = Field(64, ge=1, description="Largest request, MiB.")
    max_images: int = Field(32, ge=0, description="Most images in one request.")
    max_image_megapixels: int = Field(64, ge=1, description="Largest image, in megapixels.")
    image_hosts: tuple[str, ...] = Field(
        (), description="Hosts that images are fetched from, as a JSON list; none: only data: URLs."
    )
    balance: Literal["act", "observe", "off"] = Field(
        "act", description="Move instances between the pools, only say what would be moved, or neither."
    )
    balance_hybrids: bool = Field(
        True,
        description="Let the balancer use instances that do both where splits are overloaded and those carry more.",
    )
    costs: str | None = Field(None, description="File with measured costs; otherwise a documented guess.")
