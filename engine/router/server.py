"""Runs the router on a socket until it is told to stop.

As a program, `python -m engine.router.server`, for whoever runs it as a child: settings as one line of JSON on
standard input, the address on standard output; when standard input ends, so does the router.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading

import uvicorn

from engine.router.app import create_app
from engine.router.router import Router
from engine.router.settings import RouterSettings

GRACE_S = 5
"""Seconds that answers under way may take once the router is asked to stop."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        OSError: nothing can listen there.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.socket(found[0], found[1])
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(found[4])
        listening.listen(2048)
    except OSError:
        listening.close()
        raise
    return listening


def url_of(listening: socket.socket) -> str:
    """The address of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(settings: RouterSettings, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        create_app(Router(settings)),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listening])


def main() -> None:
    """As a child process."""
    settings = RouterSettings(**json.loads(sys.stdin.readline()))
    listening = listen(settings.host, settings.port)
    sys.stdout.write(url_of(listening) + "\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(settings, listening)


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
