"""Serves `GET /original`: the download of a document's original, the file from which it was read.

The parameters are `tenant_id`, `document_id` and optionally `collection`. The file comes from a
client of hrag and may be malicious. So its media type is always `application/octet-stream`, and its
headers tell browsers to save it, neither to show it nor to guess its type, and to run nothing in
it.
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.http import call_headers
from hrag.gateway.http.address_parameters import parameters
from hrag.gateway.http.reply import Parts, StreamReply
from hrag.gateway.services.methods import method_named
from hrag.server.admission.byte_budget import Share
from hrag.values.errors import DocumentChanged

PATH = "/original"

_METHOD = method_named("GetOriginal")
_PARAMETERS = ("tenant_id", "collection", "document_id")
_MEDIA_TYPE = "application/octet-stream"
_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
_SEPARATORS = re.compile(r"[/\\]")


def original_endpoint(exchange: Exchange) -> Callable[[Request], Awaitable[Response]]:
    """Returns the handler of the path PATH."""
    return partial(_serve, exchange)


async def _serve(exchange: Exchange, request: Request) -> Response:
    fields = parameters(request, _PARAMETERS)
    metadata = call_headers.metadata(request)

    async def read(start: int, share: Share) -> Any:
        message = _METHOD.request(**fields, start=start).SerializeToString()
        encoded = await exchange.services.call(_METHOD, message, metadata, None)
        share.hold(len(encoded))
        return _METHOD.response.FromString(encoded)

    with ExitStack() as shares:
        share = shares.enter_context(exchange.share(request))
        first = await read(0, share)
        request.state.connection.accept()
        parts = _parts(first, partial(read, share=share), shares.pop_all())
    reply = StreamReply(parts, _MEDIA_TYPE)
    name = _file_name(first.source) or fields["document_id"]
    reply.headers.update(_HEADERS)
    reply.headers["content-length"] = str(first.size_bytes)
    reply.headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    reply.headers["etag"] = f'"{first.sha256}"'
    return reply


def _file_name(source: str) -> str:
    """Returns the last part of a source that is a path or a URL; "" if there is none."""
    name = _SEPARATORS.split(source.partition("?")[0])[-1]
    return "".join(character for character in name if character.isprintable())


async def _parts(part: Any, read: Callable[[int], Awaitable[Any]], shares: ExitStack) -> Parts:
    """Yields the bytes of the file; `part` is its first part, and `read` reads the part at a byte.

    If the document is replaced meanwhile, raises DocumentChanged. The connection then ends before
    the announced size, so that the client does not take the download as complete.
    """
    with shares:
        sha256, end = part.sha256, len(part.content)
        yield part.content
        while end < part.size_bytes:
            part = await read(end)
            if part.sha256 != sha256:
                raise DocumentChanged("the document was replaced while its original was read")
            end += len(part.content)
            yield part.content
