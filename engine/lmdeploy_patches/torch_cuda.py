"""The part of `torch.cuda` that LMDeploy calls on any device, for a device on which everything happens at once.

Work on a CPU is done when the call returns: streams are all the same one, events have always happened. This replaces
names of `torch.cuda` within this process and nothing else of torch; `torch.cuda.is_available()` stays false.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


class Stream:
    """A queue of work that is always empty."""

    cuda_stream = 0

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or Event()


class Event:
    """Something that has happened."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: Any) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What LMDeploy reads of a device."""

    total_memory: int
    name: str = "cpu"
    major: int = 0
    minor: int = 0
    multi_processor_count: int = 1
    uuid: str = "cpu"


def stand_in_for_cuda(kv_bytes: int) -> None:
    """Replace what LMDeploy calls of `torch.cuda`.

    Args:
        kv_bytes: the memory that `mem_get_info` reports as free, or less where the machine has less.
    """
    import torch

    # It builds its table of torch's functions when it is imported, which must happen before some are replaced.
    import torch._dynamo

    default = Stream()

    @contextlib.contextmanager
    def stream(_stream: Any) -> Iterator[None]:
        yield

    def free_and_total(device: Any = None) -> tuple[int, int]:
        import psutil

        return min(kv_bytes, psutil.virtual_memory().available), kv_bytes

    replacements: dict[str, Callable[..., Any]] = {
        "Stream": Stream,
        "Event": Event,
        "stream": stream,
        "current_stream": lambda device=None: default,
        "default_stream": lambda device=None: default,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "set_device": lambda device: None,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "mem_get_info": free_and_total,
        "get_device_properties": lambda device=None: DeviceProperties(total_memory=kv_bytes),
        "get_device_capability": lambda device=None: (0, 0),
        "get_device_name": lambda device=None: "cpu",
    }
    for name, replacement in replacements.items():
        _originals.setdefault(name, getattr(torch.cuda, name))
        setattr(torch.cuda, name, replacement)


_originals: dict[str, Any] = {}


@contextlib.contextmanager
def the_real_cuda() -> Iterator[None]:
    """`torch.cuda` as torch made it, for the compiler, which asks it about devices. One thread at a time."""
    import torch

    stand_ins = {name: getattr(torch.cuda, name) for name in _originals}
    for name, original in _originals.items():
        setattr(torch.cuda, name, original)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            setattr(torch.cuda, name, stand_in)
