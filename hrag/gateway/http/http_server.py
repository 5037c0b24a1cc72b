"""Accepts connections: a bounded number of them, with TLS or without, until it is closed.

Of connections that ask for nothing a new one replaces the oldest, so that idle ones never lock
others out. It also replaces those in a TLS handshake, whose time is bounded, and those of
strangers whose requests have not arrived or who do not read their replies.
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

_SWEEP_S = 0.5
_KEEP_ALIVE_S = 30  # Between two requests of a client.
_MAX_HEADER_BYTES = 16 * 1024  # Request line and headers; a credential takes up to 8 KiB.
_NO_FILES_S = 0.1  # Until the next attempt to accept, if the process may open no more files.
_DRAIN_POLL_S = 0.02


class HttpServer:
    """Serves an ASGI application on a listening socket."""

    def __init__(
        self,
        application: Any,
        listening: socket,
        settings: GatewaySettings,
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        """Use it inside one event loop. `tls` returns the context for the next connection."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # Strangers cause the rest.
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
        # With the time of their acceptance, and since when they may be replaced: oldest first.
        self._opening: dict[asyncio.Task[None], float] = {}
        self._replaceable: dict[HttpConnection, float] = {}
        self._loop = asyncio.get_running_loop()
        self._running: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        """The number of connections, those in a handshake included."""
        return len(self._opening) + len(self._state.connections)

    def start(self) -> None:
        """Starts to accept connections."""
        self._listening.setblocking(False)
        self._running = [
            self._loop.create_task(self._accept_all()),
            self._loop.create_task(self._sweep()),
        ]

    async def close(self, drain_s: float) -> None:
        """Stops to accept; running requests may finish within `drain_s` seconds."""
        self._running[0].cancel()
        self._listening.close()
        for opening in self._opening:
            opening.cancel()
        for each in self._protocols():
            each.shutdown()
        until_s = self._loop.time() + drain_s
        while self._state.connections and self._loop.time() < until_s:
            await asyncio.sleep(_DRAIN_POLL_S)
        for task in self._state.tasks:
            task.cancel()  # Each answers that the gateway stops.
        if self._state.tasks:
            await asyncio.wait(self._state.tasks)
        for each in self._protocols():
            each.abort()
        self._running[1].cancel()

    def _protocols(self) -> list[HttpConnection]:
        return [each for each in self._state.connections if isinstance(each, HttpConnection)]

    async def _accept_all(self) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._listening)
            except OSError:
                await asyncio.sleep(_NO_FILES_S)
                continue
            if self.connections >= self._settings.max_connections and not self._evict():
                accepted.close()
            else:
                opening = self._loop.create_task(self._open(accepted))
                self._opening[opening] = self._loop.time()
                opening.add_done_callback(lambda ended: self._opening.pop(ended, None))
            await asyncio.sleep(0)  # Where others wait to be accepted, nothing else would run.

    def _evict(self) -> bool:
        """Closes the oldest connection that may be replaced; returns False if there is none."""
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
        # Head and body of a reply are two packets; the second must not wait for the client's word.
        accepted.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        try:
            await self._loop.connect_accepted_socket(
                self._connection,
                accepted,
                ssl=self._tls and self._tls(),
                ssl_handshake_timeout=arrival_s if self._tls else None,
            )
        except (OSError, asyncio.CancelledError):
            accepted.close()  # Who called has gone, knows no TLS, or was too slow.

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
        """Ends the connections whose clients are late, and keeps the header `date` current."""
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            now_s = self._loop.time()
            for each in self._protocols():
                if each.is_late(now_s):
                    each.abort()
            await asyncio.sleep(_SWEEP_S)
