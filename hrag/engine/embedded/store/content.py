"""The content of a document: one byte string with its tree, text and vectors, cut into values.

| length            | meaning                                                          |
| ----------------- | ---------------------------------------------------------------- |
| 3 x u32 LE        | three lengths in bytes: of tree, text and vectors; each length   |
|                   | includes the checksums of the part                               |
| u32 LE            | a checksum of these lengths; its seed is computed from the       |
|                   | document's address (slot, collection id and ordinal; see         |
|                   | `schema.address`)                                                |
| the three lengths | tree, text and vectors, each followed by its checksums; vectors  |
|                   | begin at an offset that is a multiple of four                    |

LE means little-endian.

LMDB stores a value that is longer than half a page in separate pages, and the end of the last page
stays empty. To save this space, the byte string is cut. The first value contains as many bytes as
fill whole pages. The remaining bytes, less than a page, are cut into short values of equal length,
called pieces. Pieces share pages with pieces of other documents.

Exception: a byte string of more than `LONG_BYTES` is stored as a single value. The empty end of its
last page is small compared with the whole, and nothing has to be joined when it is read.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

from xxhash import xxh3_64_intdigest

from hrag.engine.embedded.store.checksums import Buffer, seed_of

# The names of the three parts of a document's content, in stored order. The vectors come last,
# because creating passages needs only the tree and the text.
PARTS = ("trees", "texts", "vectors")


class ContentPart(IntEnum):
    """A part of a document's content: the tree, the text or the vectors.

    The integer value of each member is the index of the part's name in `PARTS`.
    """

    TREE = 0
    TEXT = 1
    VECTORS = 2


# A document's content of more bytes than this is stored as a single LMDB value.
LONG_BYTES = 64 << 10
# The maximum length in bytes of a piece, a short value with a part of a document's content. Six
# pieces of this length fill a page. Because pieces are short, little of a page stays empty.
PIECE_BYTES = 660

_PAGE = 4096
_PAGE_HEADER = 16
_LENGTHS = struct.Struct("<3I")
_SUM = struct.Struct("<I")
_HEADER_BYTES = _LENGTHS.size + _SUM.size
_ALIGNMENT = 4
_SEED = seed_of(b"contents", 0)
# A document's content is stored as several values, which are counted from 0. The key of each value
# ends with the index of the value, as one byte. This list has the bytes of all possible indexes. It
# also has the next byte, under which no value is ever stored: `ContentTable.put` looks up index
# after index to delete the values of an earlier version, until it finds an index without a value.
_KEY_ENDS = [bytes([index]) for index in range(_PAGE // PIECE_BYTES + 3)]

StoredPart = tuple[Buffer, Buffer]
"""The tree, the text or the vectors of a document, and the checksums that are stored after it."""


class DamagedContent(Exception):
    """The stored bytes of a document's text, tree or vectors differ from what was written."""


def value_key(slot: bytes, index: int) -> bytes:
    """Returns the key of one of the values into which a document's content is cut.

    The key consists of `slot`, the encoded slot of the document, and of `index`, the index of the
    value, as one byte. Indexes are counted from 0.
    """
    return slot + _KEY_ENDS[index]


def joined(parts: Sequence[StoredPart], address: bytes) -> bytes:
    """Returns a document's content: one byte string with its tree, text and vectors.

    `parts` has three pairs, for the tree, the text and the vectors. Each pair has the data and the
    checksums of the data. The content begins with a header. The seed of the header's checksum is
    computed from `address`, the address of the document (see `schema.address`).
    """
    lengths = _LENGTHS.pack(*(len(data) + len(sums) for data, sums in parts))
    (tree, tree_sums), (text, text_sums), (vectors, vector_sums) = parts
    gap = bytes(_gap(len(tree) + len(tree_sums) + len(text) + len(text_sums)))
    header = lengths + _sum(lengths, address)
    return b"".join((header, tree, tree_sums, text, text_sums, gap, vectors, vector_sums))


def size_bytes(lengths: Sequence[int]) -> int:
    """Returns the length of a document's content in bytes.

    `lengths` has the lengths in bytes of the tree, the text and the vectors. Each length includes
    the checksums.
    """
    return _HEADER_BYTES + sum(lengths) + _gap(lengths[0] + lengths[1])


def value_lengths(content_bytes: int) -> list[int]:
    """Returns the lengths of the LMDB values into which a document's content is cut.

    `content_bytes` is the length of the whole content in bytes.
    """
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
    """Cuts the content of a document into LMDB values. Returns these values in order."""
    values, start = [], 0
    for length in value_lengths(len(content)):
        values.append(memoryview(content)[start : start + length])
        start += length
    return values


class Content:
    """The content of a document, its tree, text and vectors, as far as it has been read.

    `data` contains the bytes that have been read, from the start of the content: the first of the
    stored values, or all of them. `bounds` has the start and end of each part in the content, in
    the order of `PARTS`. `address` is the document's address (see `schema.address`).
    """

    __slots__ = ("address", "bounds", "data")

    def __init__(self, address: bytes, first: memoryview) -> None:
        """Decodes the header of the content.

        `first` is the first of the values in which LMDB stores the content. Raises DamagedContent
        if the header does not match its checksum.
        """
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
        """Returns how many bytes of the content, from its start, must be read to get a part.

        `part` is a ContentPart. For the tree, the result is the same as for the text, because tree
        and text are always read together.
        """
        needed: int = self.bounds[max(part, 1)][1]
        return needed

    def part(self, part: int) -> memoryview:
        """Returns the tree, the text or the vectors, followed by the checksums of this part.

        `part` is a ContentPart. Raises DamagedContent if `data` ends before the end of the part.
        """
        start, end = self.bounds[part]
        if end > len(self.data):
            raise DamagedContent
        return self.data[start:end]


def _gap(length: int) -> int:
    """Returns the count of padding bytes between the text and the vectors.

    With the padding, the vectors begin at an offset that is a multiple of four. `length` is the
    total length of tree and text in bytes, with their checksums.
    """
    return -(_HEADER_BYTES + length) % _ALIGNMENT


def _sum(lengths: Buffer, address: bytes) -> bytes:
    return _SUM.pack(xxh3_64_intdigest(lengths, seed_of(address, _SEED)) & 0xFFFF_FFFF)
