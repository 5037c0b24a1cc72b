"""Checksums of stored values, and stored values that end with their checksums.

A checksum is XXH3 of 64 bits (https://xxhash.com). Its seed comes from the database and the
key. So a value that appears under a wrong key is detected, and not only a flipped bit. A value
ends with its checksum. A value of which parts are read ends with one checksum for each block.
"""

import struct
from collections.abc import Callable
from typing import NoReturn

from xxhash import xxh3_64_intdigest

Buffer = bytes | memoryview

# With this size, 0.2 % of a text are checksums, and checking a block takes 0.3 us.
BLOCK_BYTES = 4096
SUM_BYTES = 8
_SUM = struct.Struct("<Q")


def seed_of(key: Buffer, seed: int) -> int:
    """Returns the seed for the values under a key, in a database that has the seed `seed`."""
    return xxh3_64_intdigest(key, seed)


def checksum_of(data: Buffer, seed: int) -> bytes:
    """Returns the checksum of a value, as 8 bytes."""
    return _SUM.pack(xxh3_64_intdigest(data, seed))


def verified(value: memoryview, seed: int) -> memoryview | None:
    """Returns the data of a value that ends with its checksum; None if the value is damaged."""
    data = value[:-SUM_BYTES]
    if value[-SUM_BYTES:] != checksum_of(data, seed):
        return None
    return data


def block_checksums_of(data: Buffer, seed: int) -> bytes:
    """Returns the checksums of the blocks of `data` in order, each as 8 bytes."""
    starts = range(0, len(data), BLOCK_BYTES)
    sums = [
        xxh3_64_intdigest(data[start : start + BLOCK_BYTES], seed + block)
        for block, start in enumerate(starts)
    ]
    return struct.pack(f"<{len(sums)}Q", *sums)


def bytes_in_blocks(size_bytes: int) -> int:
    """Returns the length of `size_bytes` of data together with the checksums of its blocks."""
    return size_bytes + -(-size_bytes // BLOCK_BYTES) * SUM_BYTES


def data_bytes(size_bytes: int) -> int:
    """Returns the length of the data in a value of `size_bytes`, which ends with checksums."""
    blocks = -(-size_bytes // (BLOCK_BYTES + SUM_BYTES))
    return size_bytes - blocks * SUM_BYTES


def are_verified(value: memoryview, seed: int) -> bool:
    """Returns True if a value ends with the right checksums of its blocks."""
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
    """The data of a value that ends with the checksums of its blocks; blocks are checked on demand.

    `damaged` is called when a block does not match its checksum; it must raise. `checked` has one
    byte for each block: 1 for a block that needs no check, else 0. Checking a block sets its byte
    to 1. Several objects may share one `checked`.
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
        """Returns a copy for the same data that calls another `damaged`."""
        other = Blocks.__new__(Blocks)
        other.data, other._sums, other._count = self.data, self._sums, self._count
        other._seed, other._damaged, other._checked = self._seed, damaged, self._checked
        return other

    def check(self, start: int, end: int) -> None:
        """Checks the blocks that contain the bytes from `start` to `end`, each only once."""
        first, last = start // BLOCK_BYTES, min(-(-end // BLOCK_BYTES), self._count)
        if self._checked.find(0, first, last) >= 0:
            self._check_blocks(first, last)

    def check_all(self) -> memoryview:
        """Checks every block and returns the data."""
        self.check(0, len(self.data))
        return self.data

    def _check_blocks(self, first: int, last: int) -> None:
        seed = self._seed()
        sums = struct.unpack_from(f"<{last - first}Q", self._sums, first * SUM_BYTES)
        for block, expected in enumerate(sums, first):
            if not self._checked[block]:
                part = self.data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
                if xxh3_64_intdigest(part, seed + block) != expected:
                    self._damaged()
                self._checked[block] = 1
