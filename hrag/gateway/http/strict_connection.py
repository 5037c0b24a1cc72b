"""Reads HTTP/1.1 as RFC 9112 defines it, without the leniency that the RFC permits.

h11 accepts every version from HTTP/0.0 to HTTP/9.9, lines that end with LF only, header lines that
continue on the next line, and trailers after a chunked body. A proxy in front of the gateway may
read such a request differently, for example find its end elsewhere. Then a second request could
hide in it, or a header that the proxy removes. So the gateway refuses such a request and closes the
connection.
"""

import re
from typing import Any

import grpc
import h11

from hrag.gateway.http.connect_error import ConnectError
from hrag.values.ids import quoted

_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
# h11 finds the end of a head with the same expression.
_END = re.compile(rb"\n\r?\n")
# The bytes after the size 0 of the last chunk, if there are no trailers.
_END_OF_CHUNKS = b"\r\n\r\n"
_FOLDED = (b" ", b"\t")
_TRANSFER_ENCODING = b"transfer-encoding:"


class RefusedRequest(Exception):
    """A request whose form is not accepted. The connection must be closed."""

    def __init__(self, problem: str, http_status: int = 400) -> None:
        super().__init__(problem)
        self.http_status = http_status
        self.error = ConnectError(grpc.StatusCode.INVALID_ARGUMENT, problem)


class StrictConnection(h11.Connection):
    """The server's side of a connection that accepts only requests in the strict form."""

    def __init__(self, max_head_bytes: int) -> None:
        """`max_head_bytes` limits the request line and the headers of a request together."""
        super().__init__(h11.SERVER, max_head_bytes)
        self._max_head_bytes = max_head_bytes
        self._is_chunked = False
        # The bytes that were received last, and the last bytes before them.
        self._latest = b""
        self._before = b""

    def receive_data(self, data: bytes) -> None:
        """Adds received bytes, as h11 does."""
        self._before = (self._before + self._latest[-len(_END_OF_CHUNKS) :])[-len(_END_OF_CHUNKS) :]
        self._latest = data
        super().receive_data(data)

    def next_event(self) -> Any:
        """Returns the next event, as h11 does.

        Raises RefusedRequest if a request does not have the strict form.
        """
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
            self._before, self._latest = b"", self.trailing_data[0]
        elif isinstance(event, h11.EndOfMessage) and self._is_chunked:
            self._check_end_of_chunks(event)
        return event

    def _check_end_of_chunks(self, end: h11.EndOfMessage) -> None:
        """Raises RefusedRequest unless an empty line follows the last chunk directly.

        The end of the body is in the bytes that were received last, because only they completed it.
        """
        unread = len(self.trailing_data[0])
        read = self._before + self._latest[: len(self._latest) - unread]
        if end.headers or not read.endswith(_END_OF_CHUNKS):
            raise RefusedRequest(
                "after its last chunk, the body has trailers, or lines that do not end with CR and "
                "LF; neither is supported"
            )

    def _check_head(self, received: bytes) -> None:
        """Raises RefusedRequest if `received` has a complete head that is not in the strict form.

        h11 itself limits a head that is incomplete, and refuses what is not HTTP at all.
        """
        end = _END.search(received)
        if end is None:
            return
        if end.end() > self._max_head_bytes:
            problem = f"the head has {end.end():,} bytes; {self._max_head_bytes:,} are allowed"
            raise RefusedRequest(problem, 431)
        _check_lines(received[: end.end()].split(b"\r\n"))


def _check_lines(lines: list[bytes]) -> None:
    if any(b"\n" in line or b"\r" in line for line in lines):
        raise RefusedRequest("a line of the head does not end with CR and LF")
    request_line, *header_lines = lines
    version = request_line.rpartition(b" ")[2]
    if version.startswith(b"HTTP/") and version not in _VERSIONS:
        raise RefusedRequest(
            f"the version is {quoted(version.decode('latin-1'))}; supported are HTTP/1.1 and "
            "HTTP/1.0",
            505,
        )
    for line in header_lines:
        if line.startswith(_FOLDED):
            raise RefusedRequest("a header continues on the next line")
        if version == b"HTTP/1.0" and line.lower().startswith(_TRANSFER_ENCODING):
            raise RefusedRequest("HTTP/1.0 has no header transfer-encoding")
