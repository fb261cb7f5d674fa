"""File names as clients send them, made fit to be shown, stored and offered for download."""

from __future__ import annotations

import re
import unicodedata

_MAX_BYTES = 240
_BAD = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"|?*\u202a-\u202e\u2066-\u2069]+')
"""Control characters, what some file systems forbid, and marks that turn the direction of text (`gpj.exe`)."""


def safe_file_name(name: str) -> str:
    """The last part of a path as one plain file name of at most 240 bytes, its ending kept.

    Never empty, hidden, or a way out of a folder. Letters of every script and emoji stay.
    """
    last = re.split(r"[/\\]", name)[-1]
    clean = _BAD.sub("_", unicodedata.normalize("NFC", last.encode("utf-8", "replace").decode("utf-8")))
    clean = clean.strip().lstrip(".").rstrip(". ") or "document"
    if len(clean.encode("utf-8")) <= _MAX_BYTES:
        return clean
    stem, dot, ending = clean.rpartition(".")
    if not dot or len(ending.encode("utf-8")) > 10:
        stem, ending = clean, ""
    room = _MAX_BYTES - len(ending.encode("utf-8")) - 1
    return stem.encode("utf-8")[:room].decode("utf-8", "ignore").rstrip() + (f".{ending}" if ending else "")
