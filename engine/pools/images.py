"""Pictures of a request: opened within bounds, or refused."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import warnings
from dataclasses import dataclass

from PIL import Image, ImageFile

from engine.pools.errors import BadImage

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_PIXELS = 64_000_000
"""About a page of A3 at 600 dpi. Looked at before anything is decoded, so that a small file cannot fill memory."""


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """The bytes of a picture's file, and a name for its contents."""

    content: bytes
    digest: str

    @classmethod
    def from_base64(cls, text: str) -> EncodedImage:
        """Raises BadImage for anything but base64."""
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise BadImage("The image is not valid base64.") from None
        return cls(content, hashlib.sha256(content).hexdigest())

    def size(self) -> tuple[int, int]:
        """Width and height in pixels, from the file's head alone. Raises BadImage."""
        with self._open() as image:
            return image.size

    def decode(self) -> Image.Image:
        """The picture in RGB. Raises BadImage."""
        # LMDeploy lets Pillow make up what is missing of a file, for the whole process; half a page is no page.
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        try:
            with self._open() as image:
                return image.convert("RGB")
        except BadImage:
            raise
        except Exception as error:  # noqa: BLE001 - decoders raise whatever they like on a broken file
            raise BadImage(f"The image cannot be decoded: {error}.") from None

    def _open(self) -> Image.Image:
        try:
            with warnings.catch_warnings():
                # Ours is the bound that counts.
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                image = Image.open(io.BytesIO(self.content), formats=FORMATS)
        except Exception as error:  # noqa: BLE001 - as above
            raise BadImage(f"The image is none of {', '.join(FORMATS)}: {error}.") from None
        width, height = image.size
        if not 0 < width * height <= MAX_PIXELS:
            raise BadImage(f"The image has {width}x{height} pixels; at most {MAX_PIXELS:,} are taken.")
        return image
