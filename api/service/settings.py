"""What an operator may change about the REST service alone, in the `PAGEMILL_` namespace."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class ApiSettings(BaseSettings):
    """Read from the environment, e.g. `PAGEMILL_PORT=8801`."""

    model_config = SettingsConfigDict(env_prefix="PAGEMILL_")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8800, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    keys_file: Path | None = Field(None, description="TOML or JSON file of API keys and tenants (docs/operations.md).")
    no_auth: bool = Field(False, description="Serve without API keys on an address that others can reach.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Host names that requests may name while no keys are asked for, beside this machine's own; "
        "separated by spaces or commas.",
    )
    batch_root: Path | None = Field(None, description="Folder whose sub-folders POST /v1/batches may name.")
    max_files_per_request: int = Field(100, gt=0, description="Most files of one upload or one batch by upload.")
    max_batch_files: int = Field(100_000, gt=0, description="Most files of one batch by directory.")
    max_wait_seconds: float = Field(300, ge=0, description="Longest `wait` of one request, seconds.")
    file_parse_seconds: float = Field(3600, gt=0, description="Longest wait of POST /file_parse, seconds.")
    requests_per_minute: int = Field(0, ge=0, description="Requests of one tenant in a minute; 0 for no limit.")
    max_documents_per_tenant: int = Field(0, ge=0, description="Unfinished documents of one tenant; 0 for no limit.")
    upload_idle_seconds: float = Field(60, gt=0, description="An upload that sends nothing for so long is given up.")
    page_image_megapixels: float = Field(8, gt=0, description="Largest picture of a page, in megapixels.")
    page_image_processes: int = Field(1, ge=1, description="Processes that draw pictures of pages.")
    event_heartbeat_seconds: float = Field(15, gt=0, description="Pause after which an event stream sends a comment.")

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(re.split(r"[\s,]+", value.strip())) if isinstance(value, str) and value.strip() else value or ()

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine only."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
