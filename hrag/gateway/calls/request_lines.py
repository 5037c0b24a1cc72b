"""Cuts a stream of bytes into lines, with a maximum length and a maximum time for each line."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from hrag.gateway.protojson.json_reader import BODY
from hrag.server.admission.byte_budget import Share
from hrag.values.errors import DeadlineExceeded, TooLarge


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A line without its line break.

    `number` is its line number. Lines are numbered from 1, and blank lines are counted too.
    """

    number: int
    raw: bytes | None
    """The bytes of the line; None if the line is too long."""
    max_bytes: int

    def content(self) -> bytes:
        """Returns the bytes of the line; raises TooLarge if it is too long."""
        if self.raw is None:
            raise TooLarge(
                f"line {self.number} is longer than the {self.max_bytes:,} bytes that a request "
                "may have",
                field=BODY,
            )
        return self.raw


async def lines_of(
    parts: AsyncIterator[bytes], max_bytes: int, idle_s: float, share: Share
) -> AsyncIterator[RequestLine]:
    """Yields the lines of a request's body, except blank lines; `parts` are the parts of the body.

    Bytes that have arrived but were not yielded yet count in `share`, the request's share of the
    byte budget. A line of more than `max_bytes` is dropped while it arrives, and yielded without
    its bytes. Raises DeadlineExceeded if no line is complete within `idle_s` seconds, TooBusy if
    `share` is used up, and the errors of `parts`.
    """
    # `line_start` contains the bytes of the current line that arrived in earlier parts.
    number, line_start, is_long = 1, bytearray(), False
    left_s = idle_s
    while True:
        part, took_s = await _next_part(parts, left_s, idle_s)
        share.take(len(part))
        *line_ends, begin = part.split(b"\n") if part else (b"", b"")
        for line_end in line_ends:
            if not (line_end or line_start or is_long):
                number += 1
                continue
            line = bytes(line_start + line_end)
            if is_long or len(line) > max_bytes:
                yield RequestLine(number, None, max_bytes)
            elif line.strip():
                yield RequestLine(number, line, max_bytes)
            number, line_start, is_long = number + 1, bytearray(), False
        if not part:
            return
        left_s = idle_s if line_ends else left_s - took_s
        is_long = is_long or len(line_start) + len(begin) > max_bytes
        if is_long:
            line_start.clear()
        else:
            line_start += begin
        share.give(share.size_bytes - len(line_start))


async def _next_part(
    parts: AsyncIterator[bytes], left_s: float, idle_s: float
) -> tuple[bytes, float]:
    """Returns the next part of the body that is not empty, and the seconds until it arrived.

    Returns an empty part if the body has ended. `left_s` is the time that is left for the current
    line, in seconds. Raises DeadlineExceeded if the part does not arrive in this time. `idle_s`,
    the whole time for a line, is named in the error.
    """
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    try:
        async with asyncio.timeout(max(left_s, 0)):
            while True:
                part = await anext(parts, None)
                if part is None:
                    return b"", 0.0
                if part:
                    return part, loop.time() - started_s
    except TimeoutError:
        raise DeadlineExceeded(
            f"no complete line arrived within {idle_s:g} s (HRAG_STREAM_IDLE_TIMEOUT_S)"
        ) from None
