"""Memory that other processes of the host can map: an anonymous file, passed as a descriptor, never by name.

It leaves nothing behind: the kernel frees it when the last process that has it mapped or open ends, however.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref

import numpy as np

# The owner cannot shrink it either, so a reader can never be killed by touching a page that is gone.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedArena:
    """A KV arena. `torch.from_numpy(np.frombuffer(arena.buffer, ...))` is a tensor in it.

    Hold the arena until its buffer is registered; from then on the transport holds it.

    Args:
        size: bytes, rounded up to whole pages. Memory is taken when it is touched.

    Attributes:
        buffer: writable view of all of it.
    """

    def __init__(self, size: int, name: str = "pagemill-kv") -> None:
        if size < 1:
            raise ValueError("an arena has at least one byte")
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, self.size)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)
            self._map = mmap.mmap(self.fd, self.size)
        except BaseException:
            os.close(self.fd)
            raise
        self._close_fd = weakref.finalize(self, os.close, self.fd)
        self.buffer = memoryview(self._map)
        self.address = _address(self.buffer)
        with _lock:
            _living[self.address] = self

    @staticmethod
    def containing(address: int, size: int) -> tuple[SharedArena, int] | None:
        """The arena of this process that holds so many bytes from an address on, and the offset in it."""
        with _lock:
            arenas = list(_living.values())
        for arena in arenas:
            offset = address - arena.address
            if offset >= 0 and offset + size <= arena.size:
                return arena, offset
        return None

    def close(self) -> None:
        """Free it. Views of it that are still in use keep the memory, but no longer the name."""
        with _lock:
            _living.pop(self.address, None)
        self._close_fd()
        try:
            self.buffer.release()
            self._map.close()
        except BufferError:
            # Somebody holds a view; the mapping goes with the last one.
            pass


_living: weakref.WeakValueDictionary[int, SharedArena] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _address(buffer: memoryview) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])
