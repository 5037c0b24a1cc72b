"""Checksums of stored values, and values that carry one.

A checksum is XXH3 of 64 bits (https://xxhash.com). Its seed comes from the database and the
key, so that a value that shows up under another key is noticed as well as a flipped bit. A
value ends with its checksum, or, where parts of it are read, with one for each block.
"""

import struct
from collections.abc import Callable
from typing import NoReturn

from xxhash import xxh3_64_intdigest

Buffer = bytes | memoryview

BLOCK_BYTES = 4096  # 0.2 % of a text are checksums; a block takes 0.3 us to check.
SUM_BYTES = 8
_SUM = struct.Struct("<Q")


def seed_of(key: Buffer, seed: int) -> int:
    """The seed of the values under a key, in a database that has the seed `seed`."""
    return xxh3_64_intdigest(key, seed)


def checksum_of(data: Buffer, seed: int) -> bytes:
    """Returns the checksum of a value, packed."""
    return _SUM.pack(xxh3_64_intdigest(data, seed))


def verified(value: memoryview, seed: int) -> memoryview | None:
    """Returns the data of a value with its checksum behind it; None if it is damaged."""
    data = value[:-SUM_BYTES]
    if value[-SUM_BYTES:] != checksum_of(data, seed):
        return None
    return data


def block_checksums_of(data: Buffer, seed: int) -> bytes:
    """Returns the checksum of each block of `data`, packed, in order."""
    starts = range(0, len(data), BLOCK_BYTES)
    sums = [
        xxh3_64_intdigest(data[start : start + BLOCK_BYTES], seed + block)
        for block, start in enumerate(starts)
    ]
    return struct.pack(f"<{len(sums)}Q", *sums)


def bytes_in_blocks(size_bytes: int) -> int:
    """The length of so many bytes with the checksums of their blocks."""
    return size_bytes + -(-size_bytes // BLOCK_BYTES) * SUM_BYTES


def data_bytes(size_bytes: int) -> int:
    """The length of the data in so many bytes that end with the checksums of its blocks."""
    blocks = -(-size_bytes // (BLOCK_BYTES + SUM_BYTES))
    return size_bytes - blocks * SUM_BYTES


def are_verified(value: memoryview, seed: int) -> bool:
    """Whether a value ends with the checksums of its blocks."""
    try:
        Blocks(value, lambda: seed, _raise).check_all()
    except _Damaged:
        return False
    return True


class _Damaged(Exception):
    pass


def _raise() -> NoReturn:
    raise _Damaged


class Blocks:
    """The data of a value that ends with the checksums of its blocks, not checked yet.

    `damaged` is called when a block is not what was stored, and raises. `checked` has a 1 for
    each block that needs no check, and gets one for each that was checked; others may share it.
    """

    __slots__ = ("_checked", "_count", "_damaged", "_seed", "_sums", "data")

    def __init__(
        self,
        value: memoryview,
        seed: Callable[[], int],
        damaged: Callable[[], NoReturn],
        checked: bytearray | None = None,
    ) -> None:
        size = data_bytes(len(value))
        count = (len(value) - size) // SUM_BYTES
        if size <= 0 < count:
            damaged()
        self.data = value[:size]
        self._sums = value[size:]
        self._count = count
        self._seed = seed
        self._damaged = damaged
        self._checked = bytearray() if checked is None else checked
        if len(self._checked) < count:
            self._checked.extend(bytes(count - len(self._checked)))

    def reporting(self, damaged: Callable[[], NoReturn]) -> "Blocks":
        """Returns the same data with another `damaged`."""
        other = Blocks.__new__(Blocks)
        other.data, other._sums, other._count = self.data, self._sums, self._count
        other._seed, other._damaged, other._checked = self._seed, damaged, self._checked
        return other

    def check(self, start: int, end: int) -> None:
        """Checks the blocks that hold the bytes from `start` to `end`, each once."""
        first, last = start // BLOCK_BYTES, min(-(-end // BLOCK_BYTES), self._count)
        if self._checked.find(0, first, last) >= 0:
            self._check(first, last)

    def check_all(self) -> memoryview:
        """Checks every block; returns the data."""
        self.check(0, len(self.data))
        return self.data

    def _check(self, first: int, last: int) -> None:
        seed = self._seed()
        sums = struct.unpack_from(f"<{last - first}Q", self._sums, first * SUM_BYTES)
        for block, expected in enumerate(sums, first):
            if not self._checked[block]:
                part = self.data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
                if xxh3_64_intdigest(part, seed + block) != expected:
                    self._damaged()
                self._checked[block] = 1
