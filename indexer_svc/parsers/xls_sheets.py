"""Checks where the sheets of a workbook of Excel 97 to 2003 (XLS) are, before it is opened.

The library calamine reads every sheet when it opens the workbook. A small file could name one place
as the place of thousands of sheets. So the bytes of all sheets are counted, each as often as it is
read. A workbook is a stream of records; each has its kind and its length in its first four bytes.
"""

import struct
from collections.abc import Iterator
from io import BytesIO

from olefile import OleFileIO

from hrag.values.errors import UnreadableDocument

_STREAMS = ("Workbook", "Book")
_END, _SHEET = 0x0A, 0x85
_HEAD = struct.Struct("<HH")
# So few sheets are not checked. Reading a part of the file so many times does not take long.
_MAX_UNCHECKED_SHEETS = 16
# Sheets do not overlap in a file that a program has written.
_MAX_READINGS = 2


def check_sheets(content: bytes) -> None:
    """Raises UnreadableDocument if sheets overlap, so that parts of the file are read many times.

    Raises the errors of olefile for a damaged file.
    """
    with OleFileIO(BytesIO(content)) as ole:
        name = next(filter(ole.exists, _STREAMS), None)
        if name is None or ole.get_size(name) > len(content):
            return  # calamine refuses the file.
        stream = ole.openstream(name).read()
    starts = [
        struct.unpack_from("<I", stream, at + _HEAD.size)[0]
        for at, kind in _records(stream, 0)
        if kind == _SHEET
    ]
    if len(starts) <= _MAX_UNCHECKED_SHEETS:
        return
    left = _MAX_READINGS * len(stream)
    for start in starts:
        left -= max((at for at, _ in _records(stream, start)), default=start) - start
        if left < 0:
            raise UnreadableDocument(
                f"content is a workbook (XLS) of {len(starts)} sheets that overlap; it is damaged",
                field="content",
            )


def _records(stream: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Yields the offset and the kind of each record from `start` to the end of its part."""
    at, kind = start, -1
    while kind != _END and at + _HEAD.size <= len(stream):
        kind, size = _HEAD.unpack_from(stream, at)
        yield at, kind
        at += _HEAD.size + size
