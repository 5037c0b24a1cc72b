"""Reads the names in the root of an OLE file, which show its format.

An OLE file (Microsoft's Compound File Binary Format, [MS-CFB]) is a file system in a file. Old
Office documents, Outlook messages and encrypted Office documents are OLE files. Its directory is a
chain of sectors with entries of 128 bytes. The entries of a folder are a binary tree: each entry
has the numbers of its left and right neighbour, and a folder has the number of the tree's first
entry. Only the tree of the root is read, because a Word document may contain a message, and a
message may contain a Word document. The time is limited by the number of entries that are read,
whatever the numbers in the file say.
"""

import struct
from collections.abc import Iterator

MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENTRY_BYTES = 128
_NO_ENTRY = 0xFFFF_FFFF
_LAST_SECTOR = 0xFFFF_FFFA  # Numbers above this one are not sectors, for example the chain's end.
# Real files have a few dozen entries in their root, at most some thousands: one per attachment.
_MAX_ENTRIES = 10_000
# A sector has 512 bytes, or 4,096 bytes in files of version 4.
_SECTOR_SHIFTS = (9, 12)
_INDEX_SECTORS_AT = 76
_INDEX_SECTORS = 109


def root_names(content: bytes) -> frozenset[str]:
    """Returns the names of the streams and folders in the root; an empty set for a damaged file."""
    try:
        return frozenset(_names(_directory(content)))
    except (struct.error, IndexError, UnicodeDecodeError):
        return frozenset()


def _directory(content: bytes) -> bytes:
    """Returns the entries of the directory; none if the size of the sectors is wrong.

    Raises struct.error or IndexError if the directory is damaged.
    """
    (sector_shift,) = struct.unpack_from("<H", content, 30)
    (sector,) = struct.unpack_from("<I", content, 48)
    if sector_shift not in _SECTOR_SHIFTS:
        return b""
    size = 1 << sector_shift
    # Each of these sectors contains the numbers of the sectors that follow others in their chains.
    index = struct.unpack_from(f"<{_INDEX_SECTORS}I", content, _INDEX_SECTORS_AT)
    directory = bytearray()
    while sector < _LAST_SECTOR and len(directory) < _MAX_ENTRIES * _ENTRY_BYTES:
        part = content[(sector + 1) * size : (sector + 2) * size]
        if not part:
            break
        directory += part
        position, offset = divmod(sector * 4, size)
        (sector,) = struct.unpack_from("<I", content, (index[position] + 1) * size + offset)
    return bytes(directory)


def _names(directory: bytes) -> Iterator[str]:
    (first,) = struct.unpack_from("<I", directory, 76)
    pending, known = [first], {_NO_ENTRY}
    while pending:
        number = pending.pop()
        if number in known:
            continue
        known.add(number)
        start = number * _ENTRY_BYTES
        if start + _ENTRY_BYTES > len(directory):
            continue
        (name_bytes,) = struct.unpack_from("<H", directory, start + 64)
        yield directory[start : start + min(max(name_bytes - 2, 0), 62)].decode("utf-16-le")
        pending += struct.unpack_from("<II", directory, start + 68)
