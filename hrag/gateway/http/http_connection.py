"""An HTTP/1.1 connection: uvicorn's connection, with additional time limits.

uvicorn limits only the pause between two requests, and accepts requests in ambiguous forms. This
connection accepts only the strict form (`StrictConnection`). It also limits the time in which the
headers of a request must arrive, and the time in which the client must read the reply. The
application limits the time in which the body must arrive. If a client disconnects, its request is
cancelled.
"""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from hrag.gateway.http.reply import JSON
from hrag.gateway.http.strict_connection import RefusedRequest, StrictConnection
from hrag.observe import metrics

_TOO_LARGE_HEAD = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


class HttpConnection(H11Protocol):
    """A connection with time limits for its client."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        replaceable: dict["HttpConnection", float],
        arrival_s: float,
        send_s: float,
    ) -> None:
        """Creates a connection.

        `arrival_s` is the time limit in seconds for the headers, `send_s` the time limit for the
        client to read a reply. `replaceable` contains the connections that the server may close to
        accept a new connection. While this connection is replaceable, it is a key of `replaceable`;
        the value is the event loop's time at which it became replaceable.
        """
        super().__init__(config, state, {"connection": self})
        assert config.h11_max_incomplete_event_size is not None
        self.conn = StrictConnection(config.h11_max_incomplete_event_size)
        self._replaceable = replaceable
        self._arrival_s = arrival_s
        self._send_s = send_s
        self._read_until_s = math.inf
        self._written_until_s = math.inf
        self._task: asyncio.Task[Any] | None = None
        self._is_accepted = False
        self._is_receiving = False

    def begin(self, task: asyncio.Task[Any] | None) -> None:
        """Marks the beginning of a request.

        The application calls this method with the task that answers the request.
        """
        self._task = task
        self._is_accepted = False
        self._update_replaceable()

    def accept(self) -> None:
        """Marks the caller as accepted.

        The application calls this method when a service has accepted the request's credential.
        """
        self._is_accepted = True
        self._update_replaceable()

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Marks the connection as waiting for the body of a request while the `with` block runs."""
        self._is_receiving = True
        self._update_replaceable()
        try:
            yield
        finally:
            self._is_receiving = False
            self._update_replaceable()

    def end(self) -> None:
        """Marks the end of a request.

        The application calls this method when the request is answered.
        """
        self._task = None
        self._update_replaceable()

    def _update_replaceable(self) -> None:
        if self._is_needed:
            self._replaceable.pop(self, None)
        elif self in self.connections:
            self._replaceable.setdefault(self, self.loop.time())

    @property
    def _is_needed(self) -> bool:
        """False if the server may close this connection to make room for a new connection.

        Once a service has accepted the client's credential, the value is True while a request runs.
        It is also True while the connection is closing, because the connection may still send its
        last reply.

        Before a service has accepted the credential, the value is True only while the gateway works
        on a request. It is False while the gateway waits for the body of the request, and while it
        waits for the client to read the reply.
        """
        has_request = self._task is not None
        if self._is_accepted:
            return has_request or self.transport.is_closing()
        return has_request and not self._is_receiving and not self.flow.write_paused

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def is_late(self, now_s: float) -> bool:
        """Returns True if the client has exceeded a time limit at the event loop's time `now_s`."""
        if self.transport.is_closing():
            self._written_until_s = min(self._written_until_s, now_s + self._send_s)
        return now_s > min(self._read_until_s, self._written_until_s)

    def abort(self) -> None:
        """Closes the connection at once."""
        self._replaceable.pop(self, None)
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the time limit for the first headers; called by the event loop."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._update_replaceable()
        self._read_until_s = self.loop.time() + self._arrival_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the running request, if any.

        The event loop calls this method when the connection is closed.
        """
        super().connection_lost(exc)
        self._replaceable.pop(self, None)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Reads bytes from the client, and updates the time limit for the headers of a request.

        The limit starts with the first bytes of a request, and stops when the headers are complete.
        The event loop calls this method.
        """
        super().data_received(data)
        if self._is_answering:
            self._read_until_s = math.inf
        elif self._read_until_s == math.inf:
            self._read_until_s = self.loop.time() + self._arrival_s

    def handle_events(self) -> None:
        """Answers the requests that have arrived; refuses a request that has not the strict form.

        uvicorn calls this method when bytes have arrived, and after each response.
        """
        try:
            super().handle_events()
        except RefusedRequest as refusal:
            self._refuse(refusal)

    def _refuse(self, refusal: RefusedRequest) -> None:
        """Sends the error, unless a response has begun already, and closes the connection."""
        metrics.http_refused("head_size" if refusal.http_status == _TOO_LARGE_HEAD else "form")
        if self.cycle is not None:
            self.cycle.disconnected = True  # The application's response is dropped.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = refusal.error.encoded()
            headers = {
                "content-type": JSON,
                "content-length": str(len(body)),
                "connection": "close",
            }
            reason = HTTPStatus(refusal.http_status).phrase.encode()
            response = h11.Response(
                status_code=refusal.http_status, headers=list(headers.items()), reason=reason
            )
            for event in (response, h11.Data(body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuses bytes that are not HTTP; uvicorn calls this method."""
        metrics.http_refused("form")
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """Sets the time limit for the next bytes from the client.

        uvicorn calls this method after the last byte of a response was passed to the transport.

        If a request was refused before its body had arrived, the rest of the body is read and
        dropped, because many clients read the response only after they have sent the body. The
        rest of the body must arrive within the time limit for headers. If a part of the next
        request has arrived instead, the headers of the next request must be complete within the
        same limit. In all other cases, this method sets no limit.
        """
        # If the client's next request has already arrived, uvicorn's method begins to answer it.
        super().on_response_complete()
        has_begun = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        is_awaited = has_begun and not self._is_answering
        self._read_until_s = self.loop.time() + self._arrival_s if is_awaited else math.inf

    def pause_writing(self) -> None:
        """Starts the time limit within which the client must read the reply.

        The transport calls this method when the client reads more slowly than the reply is sent.
        """
        super().pause_writing()
        self._written_until_s = self.loop.time() + self._send_s
        self._update_replaceable()

    def resume_writing(self) -> None:
        """Stops the time limit within which the client must read the reply.

        The transport calls this method when the client has read enough of the reply.
        """
        super().resume_writing()
        self._written_until_s = math.inf
        self._update_replaceable()
