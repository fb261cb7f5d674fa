"""Images of a request: from `data:` URLs, and from hosts that the operator has named; never from anywhere else."""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from engine.router.errors import ImageRefused

FORMATS = ("PNG", "JPEG", "WEBP")
FETCH_S = 10.0


@dataclass(frozen=True, slots=True)
class Image:
    """A picture as the engine takes it.

    Attributes:
        data: the file in base64.
        width, height: pixels.
    """

    data: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """Attributes:
    hosts: that images are fetched from, as `host` or `host:port`.
    max_bytes: of a file.
    max_pixels: of an image.
    """

    hosts: frozenset[str]
    max_bytes: int
    max_pixels: int


async def read_image(url: str, policy: ImagePolicy) -> Image:
    """The image at a URL.

    Raises:
        ImageRefused: not a PNG, JPEG or WebP file, too large, or not where images may come from.
    """
    is_here = url.startswith("data:")
    encoded = _of_data_url(url) if is_here else base64.b64encode(await _fetch(url, policy)).decode()
    if len(encoded) > policy.max_bytes * 4 // 3 + 4:
        raise ImageRefused(f"an image has more than {policy.max_bytes} bytes", param="messages")
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ImageRefused("an image is not valid base64", param="messages") from None
    width, height = _size(content, policy.max_pixels)
    return Image(encoded, width, height)


def _of_data_url(url: str) -> str:
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise ImageRefused("an image's data: URL is not in base64", param="messages")
    return data


async def _fetch(url: str, policy: ImagePolicy) -> bytes:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not ({parts.hostname, parts.netloc} & policy.hosts):
        raise ImageRefused("images come as data: URLs, or from hosts that the operator has named", param="messages")
    try:
        # No redirect is followed: the host that was named may not send the router to others.
        async with (
            httpx.AsyncClient(timeout=FETCH_S, trust_env=False) as client,
            client.stream("GET", url) as response,
        ):
            response.raise_for_status()
            content = bytearray()
            async for data in response.aiter_bytes():
                content += data
                if len(content) > policy.max_bytes:
                    raise ImageRefused(f"an image has more than {policy.max_bytes} bytes", param="messages")
    except httpx.HTTPError as error:
        raise ImageRefused(f"an image could not be fetched: {type(error).__name__}", param="messages") from error
    return bytes(content)


def _size(content: bytes, max_pixels: int) -> tuple[int, int]:
    """From the header; pixels are decoded where they are needed."""
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        with Pillow.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
    except (UnidentifiedImageError, Pillow.DecompressionBombError, OSError, ValueError, SyntaxError):
        raise ImageRefused("an image is not a PNG, JPEG or WebP file", param="messages") from None
    if width * height > max_pixels:
        raise ImageRefused(f"an image has {width}x{height} pixels, more than {max_pixels}", param="messages")
    return width, height
