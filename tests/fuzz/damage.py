"""Damages bytes of any kind at random."""

import random
import struct
from collections.abc import Callable, Sequence

_INSERTED = (
    # These are varints of protobuf: two that are too long, and the largest of 32 and 64 bits.
    b"\xff" * 10 + b"\x01",
    b"\x80" * 20,
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    # These bytes are not UTF-8.
    b"\xed\xa0\x80",
    b"\xc0\x80",
    # These tags begin and end a group of protobuf.
    b"\x0b",
    b"\x0c",
    b"\0",
    struct.pack("<d", float("nan")),
)


def damaged(raw: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """Returns `raw` after one to four random changes. A change may insert bytes of `others`."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        raw = draw.choice(_DAMAGES)(raw, draw, others)
    return raw


def _flip(raw: bytes, draw: random.Random, _: Sequence[bytes]) -> bytes:
    changed = bytearray(raw)
    for _bit in range(draw.choice((1, 2, 8))):
        if changed:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(raw: bytes, draw: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(raw, draw)
    return raw[:start] + raw[end:]


def _end_early(raw: bytes, draw: random.Random, _: Sequence[bytes]) -> bytes:
    return raw[: draw.randint(0, len(raw))]


def _duplicate(raw: bytes, draw: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(raw, draw)
    return raw[:end] + raw[start:end] * draw.choice((1, 2, 100)) + raw[end:]


def _splice(raw: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    other = draw.choice(others)
    return raw[: draw.randint(0, len(raw))] + other[draw.randint(0, len(other)) :]


def _insert(raw: bytes, draw: random.Random, _: Sequence[bytes]) -> bytes:
    place = draw.randint(0, len(raw))
    return raw[:place] + draw.choice(_INSERTED) + raw[place:]


def _overwrite(raw: bytes, draw: random.Random, _: Sequence[bytes]) -> bytes:
    place = draw.randint(0, len(raw))
    inserted = draw.choice(_INSERTED)
    return raw[:place] + inserted + raw[place + len(inserted) :]


def _span(raw: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randint(0, len(raw))
    return start, min(len(raw), start + draw.choice((1, 2, 5, 50)))


_DAMAGES: tuple[Callable[[bytes, random.Random, Sequence[bytes]], bytes], ...] = (
    _flip, _flip, _flip, _cut, _end_early, _duplicate, _splice, _insert, _overwrite,
)  # fmt: skip
