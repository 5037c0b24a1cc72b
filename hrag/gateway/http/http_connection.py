"""One HTTP/1.1 connection: uvicorn's, with limits of time.

uvicorn bounds only the pause between two requests. Here the headers of a request have to arrive
in time, a client has to read what it is sent in time, and one that leaves ends its request.
The application bounds the time for a body.
"""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState


class HttpConnection(H11Protocol):
    """A connection that knows when its client is late."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        replaceable: dict["HttpConnection", float],
        arrival_s: float,
        send_s: float,
    ) -> None:
        """`arrival_s` is the time for headers, `send_s` for the client to read what it is sent.

        While a new connection may take its place, the connection is in `replaceable`, with the
        time since when.
        """
        super().__init__(config, state, {"connection": self})
        self._replaceable = replaceable
        self._arrival_s = arrival_s
        self._send_s = send_s
        self._read_until_s = math.inf
        self._written_until_s = math.inf
        self._task: asyncio.Task[Any] | None = None
        self._is_accepted = False
        self._is_receiving = False

    def begin(self, task: asyncio.Task[Any] | None) -> None:
        """Called by the application when it begins to answer a request."""
        self._task = task
        self._is_accepted = False
        self._update_replaceable()

    def accept(self) -> None:
        """Called by the application when the services have accepted the request's credential."""
        self._is_accepted = True
        self._update_replaceable()

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Entered by the application while it waits for the body of a request."""
        self._is_receiving = True
        self._update_replaceable()
        try:
            yield
        finally:
            self._is_receiving = False
            self._update_replaceable()

    def end(self) -> None:
        """Called by the application when the request has been answered."""
        self._task = None
        self._update_replaceable()

    def _update_replaceable(self) -> None:
        if self._is_needed:
            self._replaceable.pop(self, None)
        elif self in self.connections:
            self._replaceable.setdefault(self, self.loop.time())

    @property
    def _is_needed(self) -> bool:
        """False if the connection asks for nothing, or its client neither sends nor reads.

        A client whose credential was accepted is trusted to do so, and to read the last reply.
        """
        is_asking = self._task is not None
        if self._is_accepted:
            return is_asking or self.transport.is_closing()
        return is_asking and not self._is_receiving and not self.flow.write_paused

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def is_late(self, now_s: float) -> bool:
        """True if its client has used up its time."""
        if self.transport.is_closing():
            self._written_until_s = min(self._written_until_s, now_s + self._send_s)
        return now_s > min(self._read_until_s, self._written_until_s)

    def abort(self) -> None:
        """Closes the connection at once."""
        self._replaceable.pop(self, None)
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._update_replaceable()
        self._read_until_s = self.loop.time() + self._arrival_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(exc)
        self._replaceable.pop(self, None)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        super().data_received(data)
        if self._is_answering:
            self._read_until_s = math.inf
        elif self._read_until_s == math.inf:
            self._read_until_s = self.loop.time() + self._arrival_s

    def on_response_complete(self) -> None:
        """Called after the last byte of a response was given to the transport.

        What is left of a request that was refused early is read and dropped: many clients
        read the response only after that. They have as long as headers have. So has a next
        request that has begun to arrive.
        """
        super().on_response_complete()  # Starts to answer the next request, if it is there.
        has_begun = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        is_awaited = has_begun and not self._is_answering
        self._read_until_s = self.loop.time() + self._arrival_s if is_awaited else math.inf

    def pause_writing(self) -> None:
        """Called by the transport when the client does not keep up."""
        super().pause_writing()
        self._written_until_s = self.loop.time() + self._send_s
        self._update_replaceable()

    def resume_writing(self) -> None:
        """Called by the transport when the client has read what was sent."""
        super().resume_writing()
        self._written_until_s = math.inf
        self._update_replaceable()
