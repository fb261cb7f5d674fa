"""Serves peers over a listening socket: one thread each, bounded in number, in size and in time."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.interconnect.errors import Backpressure, InterconnectError, LeaseExpired, PeerLost, StaleEpoch
from engine.interconnect.leases import Pin
from engine.interconnect.wire.handshake import as_server, shut_down
from engine.interconnect.wire.messages import Read, pack_error, unpack_json
from engine.interconnect.wire.session import Kind, Session

if TYPE_CHECKING:
    from engine.interconnect.endpoint import Endpoint

log = logging.getLogger(__name__)

MOST_PEERS = 512
HANDSHAKE_SECONDS = 5.0
LONGEST_READ_SECONDS = 600.0

# Answers a READ whose runs were checked, under a pin. True: the pin stays until FINISH.
Answer = Callable[[Session, Read, Pin], bool]


class Server:
    """Accepts until closed.

    Args:
        listener: bound and listening; owned by the server from here on.
        answer: how this transport answers a READ.
        greet: called with each session that will read, after OPENED.
        tune: sets the options of a socket that was accepted.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        listener: socket.socket,
        secret: bytes,
        answer: Answer,
        greet: Callable[[Session], None] | None = None,
        tune: Callable[[socket.socket], object] | None = None,
    ) -> None:
        self._endpoint = endpoint
        # Libraries set the process-wide default time-out of sockets (kombu does while it connects); with one,
        # accepting ends again and again.
        listener.settimeout(None)
        self._listener = listener
        self._secret = secret
        self._answer = answer
        self._greet = greet
        self._tune = tune
        self._lock = threading.Lock()
        self._sockets: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name=f"serve-{endpoint.engine_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody and wait for the threads."""
        with self._lock:
            self._closed = True
            threads = list(self._sockets.values())
            for sock in self._sockets:
                shut_down(sock)
        shut_down(self._listener)
        self._thread.join()
        self._listener.close()
        for thread in threads:
            thread.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                # Out of descriptors, most likely: others will close theirs. As text, since a record that holds the
                # error holds its traceback, and with it this server and its arenas.
                log.warning("cannot accept: %s", str(error))
                time.sleep(0.1)
                continue
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            with self._lock:
                if self._closed or len(self._sockets) >= 2 * MOST_PEERS:
                    sock.close()
                    continue
                self._sockets[sock] = thread
            sock.settimeout(None)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._tune:
                self._tune(sock)
            session = self._open(sock)
            _Peer(self._endpoint, session, self._answer).serve()
        except (OSError, InterconnectError) as error:
            log.debug("a peer went away: %s", error)
        except Exception:
            log.exception("serving a peer failed")
        finally:
            with self._lock:
                del self._sockets[sock]
            sock.close()

    def _open(self, sock: socket.socket) -> Session:
        timer = self._endpoint.clock.at(time.monotonic() + HANDSHAKE_SECONDS, lambda: shut_down(sock))
        try:
            session = Session(sock, as_server(sock, self._secret))
            kind, payload = session.receive(most=4096)
            if kind is not Kind.OPEN:
                raise PeerLost("the peer did not open its session")
            content = unpack_json(payload)
            refused = self._refuse(content)
            if refused:
                session.send(Kind.ERROR, pack_error(refused))
                raise refused
            session.send(Kind.OPENED, self._endpoint.export_metadata().to_json().encode())
            if self._greet and not content.get("control"):
                self._greet(session)
            return session
        finally:
            timer.cancel()

    def _refuse(self, content: dict[str, object]) -> InterconnectError | None:
        endpoint = self._endpoint
        if content.get("engine_id") != endpoint.engine_id or content.get("epoch") != endpoint.epoch:
            return StaleEpoch("another incarnation of the engine, or another engine, listens here now")
        if len(self._sockets) > MOST_PEERS:
            return Backpressure(f"{MOST_PEERS} peers are connected already")
        return None


class _Peer:
    """One reader, from its opening to its end, whatever that is; its pins do not survive it."""

    def __init__(self, endpoint: Endpoint, session: Session, answer: Answer) -> None:
        self._endpoint = endpoint
        self._session = session
        self._answer = answer
        self._pins: dict[int, list[Pin]] = {}

    def serve(self) -> None:
        handlers = {
            Kind.READ: self._read,
            Kind.FINISH: self._finish,
            Kind.RENEW: self._renew,
            Kind.RELEASE: self._release,
        }
        try:
            while True:
                kind, payload = self._session.receive()
                handler = handlers.get(kind)
                if handler is None:
                    raise PeerLost(f"a reader may not send {kind.name}")
                try:
                    handler(payload)
                except PeerLost:
                    raise
                except InterconnectError as error:
                    self._session.send(Kind.ERROR, pack_error(error))
        finally:
            for pins in self._pins.values():
                for pin in pins:
                    pin.drop()

    def _read(self, payload: bytes) -> None:
        read = Read.unpack(payload)
        until = time.monotonic() + min(read.milliseconds / 1000, LONGEST_READ_SECONDS)
        pin = self._endpoint.pin(read.lease, read.region, read.offsets, read.lengths, until)
        # A reader that sleeps must not keep this thread, nor the pin, longer than it said it would wait.
        timer = self._endpoint.clock.at(until, self._session.abort)
        keep = False
        try:
            keep = self._answer(self._session, read, pin)
        finally:
            timer.cancel()
            if not keep:
                pin.drop()
        if keep:
            self._pins.setdefault(read.transfer, []).append(pin)

    def _finish(self, payload: bytes) -> None:
        for pin in self._pins.pop(_integer(unpack_json(payload).get("transfer")), []):
            pin.drop()

    def _renew(self, payload: bytes) -> None:
        content = unpack_json(payload)
        seconds = content.get("seconds")
        if not isinstance(seconds, int | float):
            raise PeerLost("the peer sent a renewal of the wrong form")
        try:
            self._endpoint.leases.renew(str(content.get("lease")), float(seconds))
        except ValueError as error:
            raise LeaseExpired(str(error)) from None
        self._session.send(Kind.OK)

    def _release(self, payload: bytes) -> None:
        self._endpoint.leases.release(str(unpack_json(payload).get("lease")))
        self._session.send(Kind.OK)


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise PeerLost("the peer sent a message of the wrong form")
    return value
