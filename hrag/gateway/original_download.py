"""Serves `GET /original`: the download of a document's original, the file from which it was read.

The parameters are `tenant_id`, `document_id` and optionally `collection`. The header `Range` asks
for a part of the file (RFC 9110, section 14), for example to resume a download. The file comes from
a client of hrag and may be malicious. So its media type is always `application/octet-stream`, and
its headers tell browsers to save it, neither to show it nor to guess its type, and to run nothing
in it.
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.http import call_headers
from hrag.gateway.http.address_parameters import parameters
from hrag.gateway.http.connect_error import error_of
from hrag.gateway.http.reply import Parts, StreamReply, error_reply
from hrag.gateway.reference.original_path import ORIGINAL_MEDIA_TYPE, ORIGINAL_PARAMETERS
from hrag.gateway.services.methods import method_named
from hrag.server.admission.byte_budget import Share
from hrag.values.errors import DocumentChanged, InvalidArgument

_METHOD = method_named("GetOriginal")
_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "accept-ranges": "bytes",
}
# More digits than a size in 64 bits has are no number.
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})(?<!=-)", re.IGNORECASE)
_SEPARATORS = re.compile(r"[/\\]")


def original_endpoint(exchange: Exchange) -> Callable[[Request], Awaitable[Response]]:
    """Returns the handler of the path ORIGINAL."""
    return partial(_serve, exchange)


async def _serve(exchange: Exchange, request: Request) -> Response:
    fields = parameters(request, ORIGINAL_PARAMETERS)
    metadata = call_headers.metadata(request)

    async def read(start: int, end: int, share: Share) -> Any:
        message = _METHOD.request(**fields, start=start, end=end).SerializeToString()
        encoded = await exchange.services.call(_METHOD, message, metadata, None)
        share.hold(len(encoded))
        return _METHOD.response.FromString(encoded)

    with ExitStack() as shares:
        share = shares.enter_context(exchange.share(request))
        asked = _range_of(request)
        # Only a reply says how long the file is, and so where a range begins and ends.
        file = await read(0, 0 if asked is None else 1, share)
        is_same = request.headers.get("if-range", _tag(file)) == _tag(file)
        wanted = asked if is_same else None
        place = (wanted or _Range(0)).within(file.size_bytes)
        if wanted is not None and place[0] >= place[1]:
            return _no_such_range(file.size_bytes)
        first = file if asked is None else await read(*place, share)
        if first.sha256 != file.sha256:
            raise _replaced()
        request.state.connection.accept()
        parts = _parts(first, place[1], partial(read, share=share), shares.pop_all())
    reply = StreamReply(parts, ORIGINAL_MEDIA_TYPE)
    name = _file_name(first.source) or fields["document_id"]
    reply.headers.update(_headers(first, name, place))
    if wanted is not None:
        reply.status_code = HTTPStatus.PARTIAL_CONTENT
        reply.headers["content-range"] = f"bytes {place[0]}-{place[1] - 1}/{first.size_bytes}"
    return reply


def _headers(file: Any, name: str, place: tuple[int, int]) -> dict[str, str]:
    return {
        **_HEADERS,
        "content-length": str(place[1] - place[0]),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "etag": _tag(file),
    }


class _Range(NamedTuple):
    """A range of bytes. If `start` is negative, the range is the last bytes of the file."""

    start: int
    end: int | None = None

    def within(self, size: int) -> tuple[int, int]:
        """Returns the start and the end of the range in a file of `size` bytes."""
        start = max(0, size + self.start) if self.start < 0 else self.start
        return start, size if self.end is None else min(size, self.end)


def _range_of(request: Request) -> _Range | None:
    """Returns the range that a request asks for; None for the whole file.

    A server may ignore the header `Range`. It is ignored if it is malformed, and if it has several
    ranges.
    """
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if match is None:
        return None
    first, last = match.groups()
    if not first:
        return _Range(-int(last)) if last.strip("0") else _Range(0, 0)
    if not last:
        return _Range(int(first))
    return _Range(int(first), int(last) + 1) if int(first) <= int(last) else None


def _tag(file: Any) -> str:
    """Returns the entity tag of a file."""
    return f'"{file.sha256}"'


def _replaced() -> DocumentChanged:
    return DocumentChanged("the document was replaced while its original was read")


def _no_such_range(size: int) -> Response:
    problem = f"the range begins after the end of the file, which has {size} bytes"
    error = error_of(InvalidArgument(problem, field="range"))
    reply = error_reply(error, error.encoded())
    reply.status_code = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
    reply.headers["content-range"] = f"bytes */{size}"
    return reply


def _file_name(source: str) -> str:
    """Returns the last part of a source that is a path or a URL; "" if there is none."""
    name = _SEPARATORS.split(source.partition("?")[0])[-1]
    return "".join(character for character in name if character.isprintable())


async def _parts(
    part: Any, end: int, read: Callable[[int, int], Awaitable[Any]], shares: ExitStack
) -> Parts:
    """Yields the bytes of the file up to `end`.

    `part` is the first part, and `read` reads a part from one byte to another.

    If the document is replaced meanwhile, raises DocumentChanged. The connection then ends before
    the announced size, so that the client does not take the download as complete.
    """
    with shares:
        sha256, at = part.sha256, part.start + len(part.content)
        yield part.content
        while at < end:
            part = await read(at, end)
            if part.sha256 != sha256:
                raise _replaced()
            at += len(part.content)
            yield part.content
