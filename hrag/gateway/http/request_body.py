"""The body of a request: bounded in size, in time, and in what all bodies together take."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request

from hrag.gateway.http.byte_budget import Share
from hrag.gateway.protojson.json_reader import BODY
from hrag.values.errors import DeadlineExceeded, InvalidArgument, NotSupported, TooLarge
from hrag.values.ids import quoted

LARGE_BYTES = 16 * 1024
"""More than that is read and parsed only for callers whose credential is valid: as many from each
of HRAG_MAX_CONNECTIONS take a quarter of what the gateway may hold."""
_PART_BYTES = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_ENCODINGS = ("gzip", "identity")


async def read_body(
    request: Request,
    max_bytes: int,
    timeout_s: float,
    share: Share,
    authorize: Callable[[], Awaitable[None]],
) -> bytes:
    """Returns the whole body, decompressed, of at most `max_bytes`.

    It may take `timeout_s` seconds to arrive. Calls `authorize` before it holds much. Raises
    TooLarge, TooBusy, DeadlineExceeded, NotSupported for other encodings than gzip,
    InvalidArgument for broken gzip, and what `authorize` raises.
    """
    if int(request.headers.get("content-length", "0")) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        with request.state.connection.receiving():
            async with asyncio.timeout(timeout_s):
                async for part in body_parts(request):
                    size_bytes = len(body) + len(part)
                    if len(body) <= LARGE_BYTES < size_bytes:
                        await authorize()
                    if size_bytes > max_bytes:
                        raise _too_large(max_bytes)
                    share.take(len(part))
                    body += part
    except TimeoutError:
        raise DeadlineExceeded(
            f"the request did not arrive within {timeout_s:g} s after its headers "
            "(HRAG_ARRIVAL_TIMEOUT_S)"
        ) from None
    return bytes(body)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than the {max_bytes:,} bytes that a request of this method may have",
        field=BODY,
    )


def body_parts(request: Request) -> AsyncIterator[bytes]:
    """Returns the parts of a body as they arrive, decompressed.

    Raises NotSupported for other encodings than gzip; the iterator raises InvalidArgument for
    broken gzip.
    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in _ENCODINGS:
        raise NotSupported(
            f"the header content-encoding is {quoted(encoding)}; supported are "
            f"{', '.join(_ENCODINGS)}"
        )
    return request.stream() if encoding == "identity" else _unzipped(request.stream())


async def _unzipped(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the content of a gzip stream in small parts: a few bytes may hold a thousand times
    as many."""
    unzip = zlib.decompressobj(_GZIP)
    try:
        async for part in parts:
            packed, unpacked = part, b""
            while packed or len(unpacked) == _PART_BYTES:
                unpacked = unzip.decompress(packed, _PART_BYTES)
                packed = unzip.unconsumed_tail
                if unzip.unused_data:  # All that follows would be kept there.
                    raise InvalidArgument("the body has something behind its gzip", field=BODY)
                yield unpacked
                await asyncio.sleep(0)  # Other requests have their turn between the parts.
    except zlib.error:
        raise InvalidArgument("the body is no gzip, as its header says", field=BODY) from None
    if not unzip.eof:
        raise InvalidArgument("the body's gzip has no end", field=BODY)
