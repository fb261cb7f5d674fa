"""The program that a page process runs: take a task, run it, send what it yields, repeat.

Started as `python -m pipeline.processes.child CONNECTION_FD LIFELINE_FD`, not through multiprocessing: a
library must not import its user's `__main__` again, and Celery's daemonic workers may start children this way.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

from pipeline.errors import DiskFull, PageFailed, PageOutOfMemory, PipelineError
from pipeline.processes.messages import Failed, Finished, Started, Yielded


def main() -> None:
    """Serve tasks until the parent closes the connection or goes away."""
    connection, lifeline = Connection(int(sys.argv[1])), int(sys.argv[2])
    faulthandler.enable()
    # A terminal's Ctrl-C is the parent's to handle; it ends this process when it has cleaned up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    sys.path[:] = connection.recv()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            function_name, argument = connection.recv()
            connection.send(Started())
            connection.send(_run(connection, function_name, argument))


def _die_with_parent(lifeline: int) -> None:
    """End this process and all that it started when the parent is gone, however it went.

    The parent holds the other end of the pipe and never writes: reading returns only at its death.
    """
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def _run(connection: Connection, function_name: str, argument: Any) -> Finished | Failed:
    try:
        module, _, name = function_name.partition(":")
        function: Callable[[Any], Iterable[Any]] = getattr(importlib.import_module(module), name)
        for value in function(argument):
            connection.send(Yielded(value))
    except PipelineError as error:
        return Failed(error)
    except MemoryError:
        return Failed(PageOutOfMemory("The page needs more memory than this machine gives a page process."))
    except OSError as error:
        full = DiskFull.if_caused_by(error)
        return Failed(full or PageFailed(f"{type(error).__name__}: {error}"), traceback.format_exc())
    except Exception as error:  # noqa: BLE001 - whatever a library raises on a broken page costs this task only
        return Failed(PageFailed(f"{type(error).__name__}: {error}"), traceback.format_exc())
    return Finished()


if __name__ == "__main__":
    main()
