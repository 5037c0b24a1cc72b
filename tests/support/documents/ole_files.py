"""OLE files, the format of old Office documents and of Outlook messages (MS-CFB)."""

import struct
from collections.abc import Mapping
from itertools import pairwise

_SECTOR_BYTES, _SMALL_BYTES, _SMALL_LIMIT = 512, 64, 4096
_FREE, _END, _IS_FAT = 0xFFFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFD
_STORAGE, _STREAM, _ROOT = 1, 2, 5

Tree = Mapping[str, "bytes | Tree"]
"""The files of a storage by their names; a file that is a mapping is a storage."""


def ole_file(*names: str, nested: tuple[str, ...] = ()) -> bytes:
    """Returns an OLE file with empty streams of these names in its root.

    The streams of `nested` are in a storage `Attached` of the root.
    """
    root: dict[str, bytes | Tree] = dict.fromkeys(names, b"")
    return ole_archive(root | ({"Attached": dict.fromkeys(nested, b"")} if nested else {}))


def ole_archive(root: Tree) -> bytes:
    """Returns an OLE file with these files. Files below 4 KB are in the mini stream."""
    writer = _OleWriter()
    child = writer.add(root)
    return writer.finish(child)


class _OleWriter:
    """Collects the directory, the sectors with their chains, and the mini stream with its chains.

    The entries of a storage are linked as a chain, which is a valid tree.
    """

    def __init__(self) -> None:
        self._entries: list[bytearray] = [bytearray()]
        self._sectors: list[bytes] = []
        self._fat: list[int] = []
        self._small = bytearray()
        self._small_fat: list[int] = []

    def add(self, files: Tree) -> int:
        """Adds the entries of a storage and their content; returns the number of the first one."""
        numbers = []
        for name, content in files.items():
            number = len(self._entries)
            numbers.append(number)
            self._entries.append(bytearray())
            if isinstance(content, bytes):
                is_small = len(content) < _SMALL_LIMIT
                start = self._store_small(content) if is_small else self._store(content)
                self._entries[number] = _entry(name, _STREAM, start=start, size=len(content))
            else:
                self._entries[number] = _entry(name, _STORAGE, child=self.add(content))
        for number, following in pairwise(numbers):
            struct.pack_into("<I", self._entries[number], 72, following)
        return numbers[0] if numbers else _FREE

    def _store(self, content: bytes) -> int:
        """Adds sectors with this content; returns the number of the first one."""
        first = len(self._sectors)
        count = -(-len(content) // _SECTOR_BYTES)
        for index in range(count):
            part = content[index * _SECTOR_BYTES : (index + 1) * _SECTOR_BYTES]
            self._sectors.append(part.ljust(_SECTOR_BYTES, b"\0"))
            self._fat.append(first + index + 1 if index + 1 < count else _END)
        return first if count else _END

    def _store_small(self, content: bytes) -> int:
        """Adds parts of the mini stream with this content; returns the number of the first one."""
        first = len(self._small_fat)
        count = -(-len(content) // _SMALL_BYTES)
        self._small.extend(content.ljust(count * _SMALL_BYTES, b"\0"))
        self._small_fat.extend(range(first + 1, first + count))
        self._small_fat.extend([_END] if count else [])
        return first if count else _END

    def finish(self, child: int) -> bytes:
        """Returns the file. `child` is the number of the first entry in the root."""
        start = self._store(bytes(self._small))
        self._entries[0] = _entry(
            "Root Entry", _ROOT, child=child, start=start, size=len(self._small)
        )
        directory = self._store(b"".join(self._entries))
        mini_fat = self._store(struct.pack(f"<{len(self._small_fat)}I", *self._small_fat))
        fat_count = 1
        while (len(self._fat) + fat_count) * 4 > fat_count * _SECTOR_BYTES:
            fat_count += 1
        chain = [*self._fat, *[_IS_FAT] * fat_count]
        table = struct.pack(f"<{len(chain)}I", *chain).ljust(fat_count * _SECTOR_BYTES, b"\xff")
        header = bytearray(_SECTOR_BYTES)
        header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
        struct.pack_into("<HHHHH", header, 24, 0x3E, 3, 0xFFFE, 9, 6)
        struct.pack_into("<II", header, 44, fat_count, directory)
        mini_count = -(-len(self._small_fat) * 4 // _SECTOR_BYTES)
        struct.pack_into("<IIIII", header, 56, _SMALL_LIMIT, mini_fat, mini_count, _END, 0)
        fat_start = len(self._sectors)
        first_fats = list(range(fat_start, fat_start + fat_count))
        struct.pack_into("<109I", header, 76, *(first_fats + [_FREE] * 109)[:109])
        return bytes(header) + b"".join(self._sectors) + table


def _entry(
    name: str, kind: int, *, child: int = _FREE, start: int = _END, size: int = 0
) -> bytearray:
    encoded = name.encode("utf-16-le")
    entry = bytearray(128)
    entry[: len(encoded)] = encoded
    struct.pack_into("<HBBIII", entry, 64, len(encoded) + 2, kind, 1, _FREE, _FREE, child)
    struct.pack_into("<IQ", entry, 116, start, size)
    return entry
