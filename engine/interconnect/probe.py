"""A small region of random bytes that every engine serves, so that peers can measure the way to it."""

from __future__ import annotations

import numpy as np

from engine.interconnect.layout import KVLayout
from engine.interconnect.regions import Region

REGION = "probe"
LAYOUT = KVLayout.separate(layers=1, blocks=64, block_size=64, heads=1, dims={"k": 256}, dtype="float32")


def fill(buffer: memoryview) -> None:
    """Bytes that no memory system can guess."""
    np.frombuffer(buffer, np.uint8)[:] = np.frombuffer(np.random.default_rng().bytes(LAYOUT.span), np.uint8)


def scratch() -> Region:
    """Where a reader puts what it pulls only to measure."""
    return Region(REGION, bytearray(LAYOUT.span), LAYOUT)
