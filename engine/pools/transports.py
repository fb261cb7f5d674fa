"""The transports that an instance offers and uses: those asked for, as far as they work here."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from engine.interconnect.errors import InterconnectError
from engine.interconnect.transport import Transport
from engine.interconnect.transports.catalogue import TRANSPORTS
from engine.pools.kv_cache import KVCache

log = logging.getLogger(__name__)

DEFAULT = ("shared_memory", "tcp")


def open_transports(
    names: Sequence[str], engine_id: str, token: str, cache: KVCache, *, host: str, advertise: str | None
) -> tuple[dict[str, Transport], dict[str, str]]:
    """Open them and register the cache with each.

    Args:
        names: keys of the interconnect's catalogue, best first.
        token: what all instances share; the interconnect's secret is derived from it.
        host: address to listen on.
        advertise: name that peers are told, if it differs.

    Returns:
        Those that work, by name, and why each of the others does not.
    """
    secret = hashlib.sha256(b"pagemill interconnect\0" + token.encode()).digest()
    opened: dict[str, Transport] = {}
    reasons: dict[str, str] = {}
    for name in names:
        kind = TRANSPORTS.get(name)
        if kind is None:
            reasons[name] = f"unknown; known: {', '.join(TRANSPORTS)}"
            continue
        arguments: dict[str, object] = {} if name == "in_process" else {"secret": secret}
        if name in ("tcp", "mooncake", "nixl", "dlslime"):
            arguments |= {"host": host, "advertise": advertise}
        transport: Transport | None = None
        try:
            transport = kind(engine_id, **arguments)  # type: ignore[call-arg]
            transport.register(cache.buffer, cache.layout)
        except InterconnectError as error:
            reasons[name] = error.message
            if transport is not None:
                transport.close()
            continue
        opened[name] = transport
    for name, reason in reasons.items():
        log.warning("transport %s is not offered: %s", name, reason)
    return opened, reasons
