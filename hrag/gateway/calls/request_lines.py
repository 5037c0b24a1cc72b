"""Cuts a stream of bytes into lines, each of bounded length and time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from hrag.gateway.http.byte_budget import Share
from hrag.gateway.protojson.json_reader import BODY
from hrag.values.errors import DeadlineExceeded, TooLarge


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end. `number` counts from 1, blank lines too."""

    number: int
    raw: bytes | None
    """None for one that is too long."""
    max_bytes: int

    def content(self) -> bytes:
        """Returns the line; raises TooLarge."""
        if self.raw is None:
            raise TooLarge(
                f"line {self.number} is longer than the {self.max_bytes:,} bytes that a request "
                "may have",
                field=BODY,
            )
        return self.raw


async def lines_of(
    parts: AsyncIterator[bytes], max_bytes: int, idle_s: float, share: Share
) -> AsyncIterator[Line]:
    """Yields the lines that are not blank.

    What has arrived and was not yielded counts in `share`; a line over `max_bytes` is dropped
    as it arrives. Raises DeadlineExceeded if it takes over `idle_s` seconds until a line is
    complete, TooBusy, and what `parts` raises.
    """
    number, rest, is_long = 1, bytearray(), False
    left_s = idle_s
    while True:
        part, took_s = await _next(parts, left_s, idle_s)
        share.take(len(part))
        *ends, begin = part.split(b"\n") if part else (b"", b"")
        for end in ends:
            if not (end or rest or is_long):
                number += 1
                continue
            line = bytes(rest + end)
            if is_long or len(line) > max_bytes:
                yield Line(number, None, max_bytes)
            elif line.strip():
                yield Line(number, line, max_bytes)
            number, rest, is_long = number + 1, bytearray(), False
        if not part:
            return
        left_s = idle_s if ends else left_s - took_s
        is_long = is_long or len(rest) + len(begin) > max_bytes
        if is_long:
            rest.clear()
        else:
            rest += begin
        share.give_back(share.size_bytes - len(rest))


async def _next(parts: AsyncIterator[bytes], left_s: float, idle_s: float) -> tuple[bytes, float]:
    """Returns the next bytes, none at the end, and the seconds it took."""
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
            f"no line was complete within {idle_s:g} s (HRAG_STREAM_IDLE_TIMEOUT_S)"
        ) from None
