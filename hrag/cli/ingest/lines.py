"""Reads the lines of a file, and keeps no more than a limited part of each line in memory."""

from collections.abc import Iterator
from itertools import count
from typing import BinaryIO, NamedTuple


class Line(NamedTuple):
    """A line of a file.

    `number` counts from 1. `start` is the offset of its first byte, and `size` its length in
    bytes, line end included. `content` is the line, cut off after `limit` + 1 bytes.
    """

    number: int
    start: int
    size: int
    content: bytes


def lines_of(file: BinaryIO, limit: int) -> Iterator[Line]:
    """Yields the lines of `file` from its current position.

    `start` counts from that position. The content of a line has at most `limit` + 1 bytes.
    Raises OSError.
    """
    start = 0
    for number in count(1):
        content = part = file.readline(limit + 1)
        if not content:
            return
        size = len(content)
        while size > limit and part and not part.endswith(b"\n"):
            part = file.readline(limit)
            size += len(part)
        yield Line(number, start, size, content)
        start += size
