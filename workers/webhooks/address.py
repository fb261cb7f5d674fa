"""Which addresses a webhook may call: by name when it is asked for, by network when it is called."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from pipeline.errors import PipelineError
from workers.webhooks.settings import WebhookSettings

_PORTS = {"https": 443, "http": 80}
_MAX_URL_CHARACTERS = 2000
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebhookRefused(PipelineError):
    """The address may not be called."""

    code = "webhook_refused"


class NameNotResolved(PipelineError):
    """The receiver's name has no address now; it may have one later."""

    code = "webhook_name_not_resolved"


@dataclass(frozen=True, slots=True)
class Target:
    """A checked receiver.

    Attributes:
        url: as given.
        host, port: as in the URL; the host in ASCII.
        address: the one IP address to connect to. Resolving the name again could give another.
    """

    url: str
    host: str
    port: int
    address: str


def check_url(url: str, settings: WebhookSettings) -> None:
    """Return if webhooks may be sent to the URL. Looks nothing up, so it is fit for an event loop.

    Raises:
        WebhookRefused: webhooks are off, the URL is none, or its origin is not on the allow-list.
    """
    _origin(url, settings)


def resolve(url: str, settings: WebhookSettings) -> Target:
    """Check the URL and everything that its name resolves to.

    Raises:
        WebhookRefused: as `check_url`; or one of the addresses is in a network that is not public and not allowed.
        NameNotResolved: there is no address.
    """
    parts, host, port = _origin(url, settings)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NameNotResolved(f"The name {host} cannot be resolved: {error.strerror or error}.") from error
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not _may_call(ipaddress.ip_address(address.partition("%")[0]), settings):
            raise WebhookRefused(
                f"{host} is at {address}, which is not a public address. Allow its network with "
                "PAGEMILL_WEBHOOK_PRIVATE_NETWORKS if it is meant."
            )
    return Target(parts.geturl(), host, port, addresses[0])


def _origin(url: str, settings: WebhookSettings) -> tuple[SplitResult, str, int]:
    if not settings.webhook_secrets:
        raise WebhookRefused("Webhooks are off: PAGEMILL_WEBHOOK_SECRET is not set.")
    try:
        parts = urlsplit(url)
        host, port = _ascii(parts.hostname or ""), parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    plain = url.isascii() and url.isprintable() and " " not in url and "\\" not in url
    if not plain or len(url) > _MAX_URL_CHARACTERS or parts.scheme not in _PORTS or not host or parts.username:
        raise WebhookRefused("A webhook needs an address such as https://hooks.example.com/pagemill.")
    port = _PORTS[parts.scheme] if port is None else port
    if not any(_matches(parts.scheme, host, port, allowed) for allowed in settings.webhook_origins):
        raise WebhookRefused(f"Webhooks to {parts.scheme}://{host}:{port} are not on PAGEMILL_WEBHOOK_ORIGINS.")
    return parts, host, port


def _ascii(host: str) -> str:
    """The host as it is looked up and compared: lower case, no dot at its end."""
    return host.lower().rstrip(".")


def _matches(scheme: str, host: str, port: int, allowed: str) -> bool:
    any_port = allowed.endswith(":*")
    parts = urlsplit(allowed if "://" in allowed else f"https://{allowed}")
    name = _ascii((parts.netloc.removesuffix(":*") if any_port else parts.hostname) or "")
    if scheme != parts.scheme or not (any_port or port == (parts.port or _PORTS.get(parts.scheme))):
        return False
    return host.endswith(name[1:]) and host != name[2:] if name.startswith("*.") else host == name


def _may_call(address: Address, settings: WebhookSettings) -> bool:
    address = _inner(address)
    for network in settings.webhook_private_networks:
        allowed = ipaddress.ip_network(network)
        if address.version == allowed.version and address in allowed:
            return True
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
