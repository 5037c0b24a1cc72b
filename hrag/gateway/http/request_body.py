"""Reads the body of a request, with limits.

The limits are for the size of the body, for the time in which it must arrive, and for the bytes of
all bodies that are in memory at the same time.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request

from hrag.gateway.protojson.json_reader import BODY
from hrag.server.admission.byte_budget import Share
from hrag.values.errors import DeadlineExceeded, InvalidArgument, NotSupported, TooLarge
from hrag.values.ids import quoted

LARGE_BYTES = 16 * 1024
"""A longer body is read and parsed only if the caller's credential is valid.

With the default settings, bodies of this size on all HRAG_MAX_CONNECTIONS connections use a quarter
of the byte budget. So callers without a valid credential cannot use up the byte budget.
"""
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
    """Returns the whole body, decompressed.

    Calls `authorize` before it reads more than `LARGE_BYTES`. The bytes of the body count in
    `share`, the request's share of the byte budget. Raises TooLarge for more than `max_bytes`,
    TooBusy if `share` is used up, DeadlineExceeded if the body has not arrived within `timeout_s`
    seconds, NotSupported for encodings other than gzip, InvalidArgument for invalid gzip, and the
    errors of `authorize`.
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

    Raises NotSupported for encodings other than gzip. The iterator raises InvalidArgument for
    invalid gzip.
    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in _ENCODINGS:
        raise NotSupported(
            f"the header content-encoding is {quoted(encoding)}; supported are "
            f"{', '.join(_ENCODINGS)}"
        )
    return request.stream() if encoding == "identity" else _unzip(request.stream())


async def _unzip(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the decompressed content of a gzip stream, in parts of at most `_PART_BYTES`.

    The parts are small, because the decompressed content may be a thousand times as long as the
    compressed content.
    """
    unzip = zlib.decompressobj(_GZIP)
    try:
        async for part in parts:
            packed, unpacked = part, b""
            while packed or len(unpacked) == _PART_BYTES:
                unpacked = unzip.decompress(packed, _PART_BYTES)
                packed = unzip.unconsumed_tail
                # Bytes after the end of the gzip stream are refused, because the decompressor would
                # store all of them in memory, in `unused_data`.
                if unzip.unused_data:
                    problem = "the body has data after the end of its gzip stream"
                    raise InvalidArgument(problem, field=BODY)
                yield unpacked
                # Without this pause, other requests would wait until the whole body is
                # decompressed.
                await asyncio.sleep(0)
    except zlib.error:
        raise InvalidArgument(
            "the body is not gzip, although the header content-encoding says so", field=BODY
        ) from None
    if not unzip.eof:
        raise InvalidArgument("the body's gzip stream is incomplete", field=BODY)
