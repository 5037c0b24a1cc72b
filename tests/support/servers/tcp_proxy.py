"""A TCP proxy in front of a server, which breaks the connections that pass through it on demand.

A network can end a connection in several ways. `cut` ends it in order or resets it, now or after
some more bytes, so that a message of the protocol arrives only in part. After `silence`, no data
passes any more, and neither side gets a notice, as if a machine or a firewall had disappeared.
"""

import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tests.support.until import PATIENCE_S

_AT_ONCE = 1 << 16
# With this option, closing a socket sends RST instead of FIN, and drops what was not sent yet.
_RESETS = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Passage:
    """One connection through the proxy, which is two sockets."""

    client: socket.socket
    server: socket.socket
    is_silent: bool = False

    def other(self, side: socket.socket) -> socket.socket:
        return self.server if side is self.client else self.client


class TcpProxy:
    """Listens on a port of 127.0.0.1 and passes each connection on to the address of a server.

    One thread passes all bytes. It also runs the methods `cut`, `complete` and `silence`, which
    return when it has done so.
    """

    def __init__(self, port: int) -> None:
        """Starts the proxy for the server at `port` of 127.0.0.1."""
        self._server_port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._woken, self._waking = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for waited in (self._listening, self._woken):
            self._selector.register(waited, selectors.EVENT_READ)
        self._passages: set[_Passage] = set()
        self._orders: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._left_bytes: int | None = None
        self._resets = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="tcp-proxy", daemon=True)
        self._thread.start()

    def cut(self, *, resets: bool = False, after_bytes: int = 0) -> None:
        """Ends all connections: at once, or as soon as `after_bytes` more bytes have passed.

        With `resets`, both sides get RST, otherwise FIN.
        """

        def cut() -> None:
            self._resets, self._left_bytes = resets, after_bytes
            if not after_bytes:
                self._end_all()

        self._order(cut)

    def complete(self) -> None:
        """Ends all connections now if `cut` still waits for some bytes."""

        def complete() -> None:
            if self._left_bytes is not None:
                self._end_all()

        self._order(complete)

    def silence(self) -> None:
        """Lets nothing pass on the current connections any more. Later connections work."""

        def silence() -> None:
            for passage in self._passages:
                passage.is_silent = True

        self._order(silence)

    def close(self) -> None:
        """Ends all connections and the thread."""
        self._is_closed = True
        self._waking.send(b"x")
        self._thread.join()

    def _order(self, order: Callable[[], None]) -> None:
        """Makes the thread run `order`, and waits until it has."""
        done: Future[None] = Future()
        self._orders.append((order, done))
        self._waking.send(b"x")
        done.result(PATIENCE_S)

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    self._accept()
                elif key.fileobj is self._woken:
                    self._woken.recv(_AT_ONCE)
                elif key.data in self._passages:
                    self._pass_on(key.data, key.fileobj)
            while self._orders:
                order, done = self._orders.popleft()
                order()
                done.set_result(None)
        self._resets = False
        self._end_all()
        for opened in (self._selector, self._listening, self._woken, self._waking):
            opened.close()

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            self._close(client, resets=True)
            return
        passage = _Passage(client, server)
        self._passages.add(passage)
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(side, selectors.EVENT_READ, passage)

    def _pass_on(self, passage: _Passage, side: Any) -> None:
        try:
            data = side.recv(_AT_ONCE)
            if passage.is_silent and data:
                return
            if self._left_bytes is not None:
                data, self._left_bytes = (
                    data[: self._left_bytes],
                    max(self._left_bytes - len(data), 0),
                )
            if data:
                passage.other(side).sendall(data)
        except OSError:
            data = b""
        if self._left_bytes == 0:
            self._end_all()
        elif not data:
            self._end(passage, resets=False)

    def _end_all(self) -> None:
        for passage in list(self._passages):
            self._end(passage, resets=self._resets)
        self._left_bytes = None

    def _end(self, passage: _Passage, *, resets: bool) -> None:
        self._passages.discard(passage)
        for side in (passage.client, passage.server):
            self._selector.unregister(side)
            self._close(side, resets=resets)

    @staticmethod
    def _close(side: socket.socket, *, resets: bool) -> None:
        if resets:
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        side.close()
