"""An HTTP server that accepts a limited number of connections, with or without TLS.

If the limit is reached and a new connection arrives, the server closes the connection that has been
replaceable for the longest time. So idle connections never lock out other clients. A connection is
replaceable

- during its TLS handshake, whose time is limited too,
- while it has no request,
- if the caller's credential is not accepted yet: while the server waits for the request's body, or
  for the caller to read the reply.
"""

import asyncio
import logging
import math
import ssl
from collections.abc import Callable
from email.utils import formatdate
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from hrag.config import GatewaySettings
from hrag.gateway.http.http_connection import HttpConnection
from hrag.observe import metrics

_SWEEP_S = 0.5  # At this interval the server looks for connections that exceed a time limit.
_KEEP_ALIVE_S = 30  # The maximum pause between two requests of a client.
# The maximum size in bytes of the request line and the headers together. A credential in a header
# may have up to 8 KiB.
_MAX_HEADER_BYTES = 16 * 1024
# If no connection can be accepted, for example because the process cannot open more files, the
# server pauses this long before its next attempt.
_ACCEPT_PAUSE_S = 0.1
_DRAIN_POLL_S = 0.02  # At this interval `close` checks whether all connections have ended.


class HttpServer:
    """Serves an ASGI application on a listening socket."""

    def __init__(
        self,
        application: Any,
        listening: socket,
        settings: GatewaySettings,
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        """Creates a server for the current event loop.

        `tls` returns the TLS context for the next connection; None means that TLS is not used.
        """
        # Messages of uvicorn below the level CRITICAL are not logged, because any client can cause
        # them with malformed requests.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        )
        self._state = ServerState()
        self._listening = listening
        self._settings = settings
        self._tls = tls
        # The keys of `_opening` are the tasks of connections in a TLS handshake; the value is the
        # time at which the connection was accepted. The value in `_replaceable` is the time since
        # which a connection is replaceable. Both dictionaries are ordered by time, oldest first.
        self._opening: dict[asyncio.Task[None], float] = {}
        self._replaceable: dict[HttpConnection, float] = {}
        self._loop = asyncio.get_running_loop()
        self._running: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        """The number of connections, including those in a TLS handshake."""
        return len(self._opening) + len(self._state.connections)

    def start(self) -> None:
        """Starts to accept connections."""
        self._listening.setblocking(False)
        self._running = [
            self._loop.create_task(self._accept_all()),
            self._loop.create_task(self._sweep()),
        ]

    async def close(self, drain_s: float) -> None:
        """Stops accepting connections; running requests may finish within `drain_s` seconds."""
        self._running[0].cancel()
        self._listening.close()
        for opening in self._opening:
            opening.cancel()
        for connection in self._protocols():
            connection.shutdown()
        until_s = self._loop.time() + drain_s
        while self._state.connections and self._loop.time() < until_s:
            await asyncio.sleep(_DRAIN_POLL_S)
        for task in self._state.tasks:
            # A cancelled request is answered with the error "the gateway is stopping".
            task.cancel()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks)
        for connection in self._protocols():
            connection.abort()
        self._running[1].cancel()

    def _protocols(self) -> list[HttpConnection]:
        return [
            connection
            for connection in self._state.connections
            if isinstance(connection, HttpConnection)
        ]

    async def _accept_all(self) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._listening)
            except OSError:
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            is_full = self.connections >= self._settings.max_connections
            if is_full:
                metrics.http_refused("connections")
            if is_full and not self._evict():
                accepted.close()
            else:
                opening = self._loop.create_task(self._open(accepted))
                self._opening[opening] = self._loop.time()
                opening.add_done_callback(lambda ended: self._opening.pop(ended, None))
            # Without this pause, no other task would run while connections wait to be accepted.
            await asyncio.sleep(0)

    def _evict(self) -> bool:
        """Closes a replaceable connection; returns False if there is none.

        Closes the connection that has been replaceable for the longest time.
        """
        opening, opened_s = next(iter(self._opening.items()), (None, math.inf))
        connection, since_s = next(iter(self._replaceable.items()), (None, math.inf))
        if connection is not None and since_s <= opened_s:
            connection.abort()
        elif opening is not None:
            opening.cancel()
            del self._opening[opening]
        else:
            return False
        return True

    async def _open(self, accepted: socket) -> None:
        arrival_s = self._settings.arrival_timeout_s
        # The head and the body of a reply are two packets. Without TCP_NODELAY, the body would wait
        # until the client has acknowledged the head.
        accepted.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        try:
            await self._loop.connect_accepted_socket(
                self._connection,
                accepted,
                ssl=self._tls and self._tls(),
                ssl_handshake_timeout=arrival_s if self._tls else None,
            )
        except (OSError, asyncio.CancelledError):
            # The TLS handshake failed: the client disconnected, does not use TLS, or was too slow.
            # Or the server closed the connection to accept a new one.
            accepted.close()

    def _connection(self) -> HttpConnection:
        settings = self._settings
        return HttpConnection(
            self._config,
            self._state,
            self._replaceable,
            settings.arrival_timeout_s,
            settings.send_timeout_s,
        )

    async def _sweep(self) -> None:
        """Aborts connections whose clients exceed a time limit.

        Also updates the header `date` of replies. Runs until the task is cancelled.
        """
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            now_s = self._loop.time()
            for connection in self._protocols():
                if connection.is_late(now_s):
                    metrics.http_refused("time")
                    connection.abort()
            await asyncio.sleep(_SWEEP_S)
