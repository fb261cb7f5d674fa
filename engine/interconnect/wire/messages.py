"""Payloads of frames. Everything from a peer is checked here for form; for sense, where it is used."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.interconnect.digest import Digests
from engine.interconnect.errors import InterconnectError, PeerLost, from_code
from engine.interconnect.layout import Offsets

_READ = struct.Struct("!QI32s64sI")
_RUN = np.dtype([("offset", "<u8"), ("length", "<u4")])
_NUMBER = struct.Struct("!Q")
MAX_RUNS = 4096
MAX_READ = _READ.size + MAX_RUNS * _RUN.itemsize
MAX_READ_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Read:
    """Ask for runs of bytes of one region, under a lease.

    Attributes:
        transfer: number of the transfer within the session; FINISH names it.
        milliseconds: until the reader gives up.
    """

    transfer: int
    milliseconds: int
    lease: str
    region: str
    offsets: Offsets
    lengths: Offsets

    def pack(self) -> bytes:
        runs = np.empty(len(self.offsets), _RUN)
        runs["offset"], runs["length"] = self.offsets, self.lengths
        head = _READ.pack(
            self.transfer,
            self.milliseconds,
            self.lease.encode("ascii", "replace"),
            self.region.encode(),
            len(runs),
        )
        return head + runs.tobytes()

    @classmethod
    def unpack(cls, payload: bytes) -> Read:
        try:
            transfer, milliseconds, lease, region, count = _READ.unpack_from(payload)
            if count > MAX_RUNS or len(payload) != _READ.size + count * _RUN.itemsize:
                raise ValueError("its length is wrong")
            runs = np.frombuffer(payload, _RUN, count, _READ.size)
            if count and int(runs["offset"].max()) >= 1 << 62:
                raise ValueError("an offset is out of range")
            offsets, lengths = runs["offset"].astype(np.int64), runs["length"].astype(np.int64)
            if int(lengths.sum()) > MAX_READ_BYTES:
                raise ValueError("it wants too much at once")
            name = region.rstrip(b"\0").decode()
            return cls(transfer, milliseconds, lease.decode("ascii"), name, offsets, lengths)
        except (struct.error, ValueError) as error:
            raise PeerLost(f"the peer sent a broken request: {error}") from None


def pack_digests(transfer: int, values: Digests) -> bytes:
    return _NUMBER.pack(transfer) + values.astype("<u8").tobytes()


def unpack_digests(payload: bytes) -> tuple[int, Digests]:
    """(transfer, checksum of each run)."""
    if len(payload) < _NUMBER.size or len(payload) % 8:
        raise PeerLost("the peer sent broken checksums")
    return _NUMBER.unpack_from(payload)[0], np.frombuffer(payload, "<u8", offset=_NUMBER.size).astype(np.uint64)


def pack_error(error: InterconnectError) -> bytes:
    return pack_json({"code": error.code, "message": error.message[:500]})


def unpack_error(payload: bytes) -> InterconnectError:
    content = unpack_json(payload)
    return from_code(str(content.get("code")), str(content.get("message"))[:500])


def pack_json(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def unpack_json(payload: bytes) -> dict[str, Any]:
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        raise PeerLost("the peer sent a message that is no JSON") from None
    if not isinstance(content, dict):
        raise PeerLost("the peer sent a message of the wrong form")
    return content
