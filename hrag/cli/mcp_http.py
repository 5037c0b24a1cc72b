"""Serves MCP over HTTP, with limits for clients that need no credential.

The limits are for the size of heads and bodies, for the time in which a request must arrive, and
for the number of connections. uvicorn and the MCP SDK enforce them, except the limit of time.
"""

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# A query has at most 32 KiB, and JSON may need six bytes for one byte of it.
MAX_BODY_BYTES = 256 * 1024
# The maximum size of the request line and the headers together.
MAX_HEAD_BYTES = 16 * 1024
# Beyond this many connections or running requests, requests are answered with the status 503.
MAX_CONNECTIONS = 256
# A request must arrive completely within this many seconds after its connection or its first byte.
ARRIVAL_S = 10.0
# The states of a client whose request has not arrived completely.
_INCOMPLETE = (h11.IDLE, h11.SEND_BODY)
_DRAIN_S = 5  # At shutdown, running searches have this many seconds to finish.


class _TimedConnection(H11Protocol):
    """A connection that ends if a request does not arrive in time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the limit of time for the first request."""
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        """Reads bytes of a request; stops the limit of time if the request is complete."""
        self._expect_request()
        super().data_received(data)
        if self.conn.their_state not in _INCOMPLETE:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the limit of time."""
        super().connection_lost(exc)
        self._stop_timer()

    def _expect_request(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(ARRIVAL_S, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


async def serve_http(app: Any, listener: socket.socket) -> None:
    """Serves an ASGI application at `listener` until the process gets SIGINT or SIGTERM."""
    config = uvicorn.Config(
        app,
        http=_TimedConnection,
        ws="none",
        log_level="warning",
        access_log=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    await uvicorn.Server(config).serve(sockets=[listener])
