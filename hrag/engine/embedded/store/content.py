"""The content of a document: one byte string with its tree, text and vectors, cut into values.

| length            | meaning                                                          |
| ----------------- | ---------------------------------------------------------------- |
| 3 little-endian   | the lengths of tree, text and vectors, each with its checksums   |
| u32               |                                                                  |
| little-endian u32 | a checksum of these lengths; the document's address is its seed  |
| the three lengths | tree, text and vectors, each followed by its checksums; vectors  |
|                   | begin at an offset that is a multiple of four                    |

LMDB stores a value that is longer than half a page in separate pages, and the end of the last page
stays empty. So as many bytes of a content as fill whole pages become one value. The remaining
bytes, less than a page, are cut into short values of equal length, called pieces. Pieces share
pages with pieces of other documents. A content of more than `LONG_BYTES` is stored as a single
value: the empty end of its last page is small compared with the content, and nothing has to be
joined when the content is read.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

from xxhash import xxh3_64_intdigest

from hrag.engine.embedded.store.checksums import Buffer, seed_of

# The parts of a content, in stored order. Creating passages needs only the tree and the text, so
# the vectors come last.
PARTS = ("trees", "texts", "vectors")


class ContentPart(IntEnum):
    """A part of a content; the value is the index of the part's name in `PARTS`."""

    TREE = 0
    TEXT = 1
    VECTORS = 2


# A longer content is stored as a single value.
LONG_BYTES = 64 << 10
# The maximum length of a piece. Six pieces of this length fill a page. Because pieces are short,
# little of a page stays empty.
PIECE_BYTES = 660

_PAGE = 4096
_PAGE_HEADER = 16
_LENGTHS = struct.Struct("<3I")
_SUM = struct.Struct("<I")
_HEADER_BYTES = _LENGTHS.size + _SUM.size
_ALIGNMENT = 4
_SEED = seed_of(b"contents", 0)
# The last byte of the keys of a content's values, by the index of the value. There are more keys
# than a content can have values.
_KEY_ENDS = [bytes([index]) for index in range(_PAGE // PIECE_BYTES + 3)]

Sealed = tuple[Buffer, Buffer]
"""The data of a part, and the checksums that are stored after the data."""


class DamagedContent(Exception):
    """The bytes of a stored content differ from what was written."""


def value_key(slot: bytes, index: int) -> bytes:
    """Returns the key of a value of a content: a packed slot and the value's index from 0."""
    return slot + _KEY_ENDS[index]


def joined(parts: Sequence[Sealed], owner: bytes) -> bytes:
    """Returns the content with these three parts, in the order of `PARTS`.

    `owner` is the address of the document.
    """
    lengths = _LENGTHS.pack(*(len(data) + len(sums) for data, sums in parts))
    (tree, tree_sums), (text, text_sums), (vectors, vector_sums) = parts
    gap = bytes(_gap(len(tree) + len(tree_sums) + len(text) + len(text_sums)))
    header = lengths + _sum(lengths, owner)
    return b"".join((header, tree, tree_sums, text, text_sums, gap, vectors, vector_sums))


def size_bytes(lengths: Sequence[int]) -> int:
    """Returns the length of a content in bytes.

    `lengths` has the length of each part with its checksums, in the order of `PARTS`.
    """
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
    """Returns the values into which a content is cut, in order."""
    values, start = [], 0
    for length in value_lengths(len(content)):
        values.append(memoryview(content)[start : start + length])
        start += length
    return values


class Content:
    """The content of the document at `address`; its first value, or all values have been read.

    `bounds` has the start and end of each part in the content, in the order of `PARTS`. `data`
    contains the bytes that have been read, from the start of the content.
    """

    __slots__ = ("address", "bounds", "data")

    def __init__(self, address: bytes, first: memoryview) -> None:
        """Decodes the header of the content's first value, `first`. Raises DamagedContent."""
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
        """The length of the whole content in bytes."""
        return self.needed_bytes(len(PARTS) - 1)

    def needed_bytes(self, part: int) -> int:
        """Returns how many bytes of the content must be read, from its start, to read a part.

        For the tree, this includes the text, because both are always read together.
        """
        needed: int = self.bounds[max(part, 1)][1]
        return needed

    def part(self, part: int) -> memoryview:
        """Returns a part with its checksums.

        Raises DamagedContent if `data` ends before the part does.
        """
        start, end = self.bounds[part]
        if end > len(self.data):
            raise DamagedContent
        return self.data[start:end]


def _gap(length: int) -> int:
    """Returns the count of padding bytes before the vectors.

    `length` is the length of tree and text together, with their checksums.
    """
    return -(_HEADER_BYTES + length) % _ALIGNMENT


def _sum(lengths: Buffer, owner: bytes) -> bytes:
    return _SUM.pack(xxh3_64_intdigest(lengths, seed_of(owner, _SEED)) & 0xFFFF_FFFF)
