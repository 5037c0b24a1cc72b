"""The replies of the gateway: JSON documents, streams and errors."""

from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from typing import Any

from starlette.responses import Response

from hrag.gateway.http.connect_error import ConnectError

JSON = "application/json"
Parts = AsyncGenerator[bytes, None]
"""The parts of a streamed body, in order."""

_PART_BYTES = 64 * 1024

_HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
# Without the header x-accel-buffering, nginx would buffer many events before it sends any.
_STREAM_HEADERS = {**_HEADERS, "x-accel-buffering": "no"}


def json_reply(body: bytes, media_type: str = JSON) -> Response:
    """Returns a reply with status 200.

    Its headers tell browsers not to guess another media type, and forbid caching.
    """
    return Response(body, media_type=media_type, headers=_HEADERS)


def error_reply(error: ConnectError, body: bytes) -> Response:
    """Returns the reply for a call that failed before its response began.

    `body` says in JSON what failed. The error determines the HTTP status and the headers.
    """
    reply = json_reply(body)
    reply.status_code = error.http_status
    reply.headers.update(error.headers())
    return reply


class CountedReply(Response):
    """A reply whose bytes count in the byte budget.

    The byte budget limits the bytes of all requests and replies that are in memory. The bytes of
    this reply count until the client has read the reply or has disconnected.
    """

    def __init__(self, body: bytes, media_type: str, shares: ExitStack) -> None:
        """Creates a reply. The caller has already counted the reply's bytes in the byte budget.

        `shares` contains the context managers that count these bytes. When the reply was sent or
        the client has disconnected, the reply closes `shares`, and the bytes no longer count in the
        budget.
        """
        super().__init__(body, media_type=media_type, headers=_HEADERS)
        self._shares = shares

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        """Sends the reply in parts.

        Each part is sent after the client has read most of the parts before it.
        """
        start = {"type": "http.response.start", "status": self.status_code}
        with self._shares:
            await send({**start, "headers": self.raw_headers})
            for begin in range(0, max(len(self.body), 1), _PART_BYTES):
                end = begin + _PART_BYTES
                part, more = self.body[begin:end], end < len(self.body)
                await send({"type": "http.response.body", "body": part, "more_body": more})


class StreamReply(Response):
    """A reply whose parts are sent as soon as they exist, but not faster than the client reads."""

    def __init__(self, parts: Parts, media_type: str) -> None:
        """Creates a reply whose body is what the iterator `parts` yields.

        The reply closes the iterator after the last part, or when the client disconnects.
        """
        super().__init__(media_type=media_type, headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        """Sends the headers, then each part of the body, as messages of the ASGI protocol."""
        start = {"type": "http.response.start", "status": self.status_code}
        async with aclosing(self._parts) as parts:
            await send({**start, "headers": self.raw_headers})
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
