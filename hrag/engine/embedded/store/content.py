"""The content of a document: its tree, text and vectors as one byte string, cut into values.

| length            | meaning                                                          |
| ----------------- | ---------------------------------------------------------------- |
| 3 u32, LE         | lengths of tree, text and vectors, with their checksums          |
| u32, LE           | checksum of these lengths, seeded with the document's address    |
| the three lengths | tree, text and vectors, each followed by its checksums; vectors  |
|                   | begin at an offset that is a multiple of four                    |

LMDB stores a value that is longer than half a page in separate pages, and the end of the last page
stays empty. So the whole pages of a content become one value. The remainder, less than a page, is
cut into pieces of equal length, which share pages with pieces of other documents. A long content
is a single value: half an empty page is little compared with it, and no pieces have to be joined
to read it. Knows nothing of transactions.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

from xxhash import xxh3_64_intdigest

from hrag.engine.embedded.store.checksums import Buffer, seed_of

# Passages need only the first two parts, so these come first.
PARTS = ("trees", "texts", "vectors")


class ContentPart(IntEnum):
    """A part of a content: an index into `PARTS`."""

    TREE = 0
    TEXT = 1
    VECTORS = 2


# A longer content is stored as a single value.
LONG_BYTES = 64 << 10
# Six pieces of this size fill a page. They are short, so little of a page stays empty.
PIECE_BYTES = 660

_PAGE = 4096
_PAGE_HEADER = 16
_LENGTHS = struct.Struct("<3I")
_SUM = struct.Struct("<I")
_HEADER_BYTES = _LENGTHS.size + _SUM.size
_ALIGNMENT = 4
_SEED = seed_of(b"contents", 0)
_NUMBERS = [bytes([number]) for number in range(_PAGE // PIECE_BYTES + 3)]

Sealed = tuple[Buffer, Buffer]
"""The data of a part and the checksums of that data."""


class DamagedContent(Exception):
    """The content differs from what was stored."""


def value_key(slot: bytes, number: int) -> bytes:
    """Returns the key of value `number`, counted from 0, of the content in a packed slot."""
    return slot + _NUMBERS[number]


def joined(parts: Sequence[Sealed], owner: bytes) -> bytes:
    """Returns the content that consists of three parts; `owner` is their document's address."""
    lengths = _LENGTHS.pack(*(len(data) + len(sums) for data, sums in parts))
    (tree, tree_sums), (text, text_sums), (vectors, vector_sums) = parts
    gap = bytes(_gap(len(tree) + len(tree_sums) + len(text) + len(text_sums)))
    header = lengths + _sum(lengths, owner)
    return b"".join((header, tree, tree_sums, text, text_sums, gap, vectors, vector_sums))


def size_bytes(lengths: Sequence[int]) -> int:
    """Returns the length of a content whose parts, with checksums, have these lengths."""
    return _HEADER_BYTES + sum(lengths) + _gap(lengths[0] + lengths[1])


def value_lengths(content_bytes: int) -> list[int]:
    """Returns the lengths of the values into which a content of `content_bytes` is cut."""
    if content_bytes > LONG_BYTES:
        return [content_bytes]
    remainder = (content_bytes + _PAGE_HEADER) % _PAGE
    whole_pages = content_bytes - remainder
    if whole_pages <= 0:
        whole_pages, remainder = 0, content_bytes
    if not remainder:
        return [whole_pages]
    count = -(-remainder // PIECE_BYTES)
    ends = [remainder * piece // count for piece in range(count + 1)]
    pieces = [end - start for start, end in pairwise(ends)]
    return [whole_pages, *pieces] if whole_pages else pieces


def cut(content: bytes) -> list[memoryview]:
    """Cuts a content into the values that are stored."""
    values, start = [], 0
    for length in value_lengths(len(content)):
        values.append(memoryview(content)[start : start + length])
        start += length
    return values


class Content:
    """The content of the document at `address`, of which at least the first value was read.

    `bounds` has the start and end of each part, in the order of `PARTS`. `data` is the beginning
    of the content, as far as it was read.
    """

    __slots__ = ("address", "bounds", "data")

    def __init__(self, address: bytes, first: memoryview) -> None:
        """Reads the header of the first value, `first`. Raises DamagedContent."""
        lengths = first[: _LENGTHS.size]
        if bytes(first[_LENGTHS.size : _HEADER_BYTES]) != _sum(lengths, address):
            raise DamagedContent
        tree, text, vectors = _LENGTHS.unpack(lengths)
        ends = _HEADER_BYTES + tree, _HEADER_BYTES + tree + text
        start = ends[1] + _gap(tree + text)
        self.bounds = (_HEADER_BYTES, ends[0]), (ends[0], ends[1]), (start, start + vectors)
        self.address = address
        self.data = first

    @property
    def size_bytes(self) -> int:
        """The length of the whole content."""
        return self.needed_bytes(len(PARTS) - 1)

    def needed_bytes(self, part: int) -> int:
        """Returns how many bytes from the start of the content are needed to read a part.

        The tree and the text are always read together.
        """
        needed: int = self.bounds[max(part, 1)][1]
        return needed

    def part(self, part: int) -> memoryview:
        """Returns a part with its checksums. Raises DamagedContent if `data` ends inside it."""
        start, end = self.bounds[part]
        if end > len(self.data):
            raise DamagedContent
        return self.data[start:end]


def _gap(length: int) -> int:
    """Returns the padding before the vectors; `length` is that of tree and text together."""
    return -(_HEADER_BYTES + length) % _ALIGNMENT


def _sum(lengths: Buffer, owner: bytes) -> bytes:
    return _SUM.pack(xxh3_64_intdigest(lengths, seed_of(owner, _SEED)) & 0xFFFF_FFFF)
