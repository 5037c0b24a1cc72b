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


def with_checksum(data: Buffer, seed: int) -> bytes:
    """Returns `data` with its checksum behind it."""
    return b"".join((data, _SUM.pack(xxh3_64_intdigest(data, seed))))


def verified(value: memoryview, seed: int) -> memoryview | None:
    """Returns the data of what `with_checksum` made; None if it is damaged."""
    data = value[:-SUM_BYTES]
    if value[-SUM_BYTES:] != _SUM.pack(xxh3_64_intdigest(data, seed)):
        return None
    return data


def with_block_checksums(data: bytes, seed: int) -> bytes:
    """Returns `data` with the checksum of each block of it, in order, behind it."""
    starts = range(0, len(data), BLOCK_BYTES)
    sums = [
        xxh3_64_intdigest(data[start : start + BLOCK_BYTES], seed + block)
        for block, start in enumerate(starts)
    ]
    return data + struct.pack(f"<{len(sums)}Q", *sums)


def bytes_in_blocks(size_bytes: int) -> int:
    """The length of what `with_block_checksums` makes of so many bytes."""
    return size_bytes + -(-size_bytes // BLOCK_BYTES) * SUM_BYTES


def are_verified(value: memoryview, seed: int) -> bool:
    """Whether `with_block_checksums` made the value."""
    try:
        Blocks(value, seed, _raise).check_all()
    except _Damaged:
        return False
    return True


class _Damaged(Exception):
    pass


def _raise() -> NoReturn:
    raise _Damaged


class Blocks:
    """The data of what `with_block_checksums` made, not checked yet.

    `damaged` is called when a block is not what was stored, and raises.
    """

    __slots__ = ("_checked", "_damaged", "_seed", "_sums", "data")

    def __init__(self, value: memoryview, seed: int, damaged: Callable[[], NoReturn]) -> None:
        count = -(-len(value) // (BLOCK_BYTES + SUM_BYTES))
        size = len(value) - count * SUM_BYTES
        if size <= 0 < count:
            damaged()
        self.data = value[:size]
        self._sums = value[size:]
        self._seed = seed
        self._checked = bytearray(count)
        self._damaged = damaged

    def check(self, start: int, end: int) -> None:
        """Checks the blocks that hold the bytes from `start` to `end`, each once."""
        for block in range(start // BLOCK_BYTES, min(-(-end // BLOCK_BYTES), len(self._checked))):
            if not self._checked[block]:
                self._check(block)

    def check_all(self) -> memoryview:
        """Checks every block; returns the data."""
        self.check(0, len(self.data))
        return self.data

    def _check(self, block: int) -> None:
        part = self.data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
        (expected,) = _SUM.unpack_from(self._sums, block * SUM_BYTES)
        if xxh3_64_intdigest(part, self._seed + block) != expected:
            self._damaged()
        self._checked[block] = 1
