"""The lines of a file, none of which is held in memory past a limit."""

from collections.abc import Iterator
from itertools import count
from typing import BinaryIO, NamedTuple


class Line(NamedTuple):
    """A line: its number from 1, where it begins, its length in bytes with its end, and itself.

    `content` is cut behind the limit.
    """

    number: int
    start: int
    size: int
    content: bytes


def lines_of(file: BinaryIO, limit: int) -> Iterator[Line]:
    """Yields the lines of `file` from where it stands, each with at most `limit` + 1 bytes.

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
