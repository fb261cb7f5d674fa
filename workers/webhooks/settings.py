"""What webhooks may call, and how long they are tried."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

_LEAST_SECRET_BYTES = 24
_Words = Annotated[tuple[str, ...], NoDecode]


class WebhookSettings(BaseSettings):
    """Read from the environment. Lists are separated by spaces or commas."""

    model_config = SettingsConfigDict(env_prefix="PAGEMILL_", hide_input_in_errors=True)  # secrets among them

    webhook_secret: SecretStr | None = Field(
        None,
        description="Key that signs webhook calls: base64 of at least 24 bytes, with or without `whsec_`. "
        "Two, separated by a space, while receivers change from one to the other. Without it there are no webhooks.",
    )
    webhook_origins: _Words = Field(
        (),
        description="Where webhooks may go, as in `https://hooks.example.com https://*.example.org:8443`. "
        "A name alone means https; `*.` stands for any subdomain, `:*` for any port. Empty allows none.",
    )
    webhook_private_networks: _Words = Field(
        (), description="Networks that are not public and may be called all the same, as in `10.1.0.0/16`."
    )
    webhook_timeout_seconds: float = Field(10, gt=0, le=30, description="Longest wait for a receiver, seconds.")
    webhook_retry_seconds: tuple[float, ...] = Field(
        (5, 30, 120, 600, 3600, 10_800, 21_600, 43_200),
        description="Pauses between the tries of a call, seconds (JSON list); after the last it is given up.",
    )

    @field_validator("webhook_origins", "webhook_private_networks", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(re.split(r"[\s,]+", value.strip())) if isinstance(value, str) and value.strip() else value or ()

    @field_validator("webhook_private_networks")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ipaddress.ip_network(network)
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _check_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        for secret in value.get_secret_value().split():
            try:
                key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if len(key) < _LEAST_SECRET_BYTES:
                raise ValueError(f"each secret must be base64 of at least {_LEAST_SECRET_BYTES} bytes")
        return value

    @property
    def webhook_secrets(self) -> tuple[str, ...]:
        return tuple(self.webhook_secret.get_secret_value().split()) if self.webhook_secret else ()
