"""Who asks: API keys, tenants, and what a service without keys lets in.

The keys file (TOML, or JSON of the same shape) holds no key, only hashes:

    [tenants.acme]
    requests_per_minute = 600
    max_documents = 1000

    [[keys]]
    name = "import server"
    tenant = "acme"
    sha256 = "<hex of the key's SHA-256>"

A plain SHA-256 serves because keys are made of 256 random bits (`pagemill keys new`), not chosen by people.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request

from api.service.problems import Unauthorized
from api.service.settings import ApiSettings

DEFAULT_TENANT = "default"
_PREFIX = "pm_"


class BadKeysFile(ValueError):
    """The keys file cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose documents a request may see.

    Attributes:
        name: recorded with each document.
        requests_per_minute, max_documents: bounds of this tenant; 0 for none.
    """

    name: str = DEFAULT_TENANT
    requests_per_minute: int = 0
    max_documents: int = 0


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that the service accepts: hash of each, with its tenant."""

    entries: tuple[tuple[bytes, Tenant], ...]

    @classmethod
    def read(cls, path: Path, defaults: Tenant) -> Keys:
        """Read a keys file. What a tenant does not say is taken from `defaults`. Raises BadKeysFile."""
        try:
            text = path.read_text("utf-8")
            content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
            limits: dict[str, dict[str, Any]] = content.get("tenants", {})
            return cls(tuple(_entry(key, limits, defaults) for key in content.get("keys", [])))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadKeysFile(f"Cannot read the keys file {path}: {error}") from None

    def tenant(self, key: str) -> Tenant | None:
        """The tenant of a key, None for an unknown one. Takes the same time whichever key it is."""
        digest, found = hash_key(key), None
        for known, tenant in self.entries:
            if hmac.compare_digest(digest, known):
                found = tenant
        return found


def _entry(key: dict[str, Any], limits: dict[str, dict[str, Any]], defaults: Tenant) -> tuple[bytes, Tenant]:
    digest = bytes.fromhex(key["sha256"])
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError(f"sha256 of key {key.get('name', '?')!r} has not 64 digits")
    name = str(key.get("tenant", DEFAULT_TENANT))
    own = limits.get(name, {})
    return digest, Tenant(
        name,
        int(own.get("requests_per_minute", defaults.requests_per_minute)),
        int(own.get("max_documents", defaults.max_documents)),
    )


def new_key() -> str:
    """A fresh key. Show it once: only its hash is kept."""
    return _PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


class Authenticator:
    """Says which tenant sends a request.

    Keys are asked for if there is a keys file or if others can reach the service; `no_auth` switches that off.

    Raises:
        BadKeysFile: the keys file cannot be read, or keys are needed and there is no file.
    """

    def __init__(self, settings: ApiSettings) -> None:
        self.anonymous = Tenant(DEFAULT_TENANT, settings.requests_per_minute, settings.max_documents_per_tenant)
        self.required = not settings.no_auth and (settings.keys_file is not None or not settings.loopback)
        self._keys = Keys(())
        if self.required:
            if settings.keys_file is None:
                raise BadKeysFile(
                    f"{settings.host} can be reached from other machines: give a keys file (PAGEMILL_KEYS_FILE, made "
                    "with `pagemill keys new`), or say --no-auth if something in front of the service asks for keys."
                )
            self._keys = Keys.read(settings.keys_file, self.anonymous)

    def __call__(self, request: Request) -> Tenant:
        """Raises Unauthorized."""
        if not self.required:
            return self.anonymous
        key = _presented_key(request)
        if not key:
            raise Unauthorized("An API key is needed: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`.")
        tenant = self._keys.tenant(key)
        if tenant is None:
            raise Unauthorized("The API key is not known.")
        return tenant


def _presented_key(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return request.headers.get("x-api-key", "").strip()
