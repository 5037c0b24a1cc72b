"""The content of a document: its tree, text and vectors as one run of bytes, cut into values.

| bytes         | what                                                               |
| ------------- | ------------------------------------------------------------------ |
| 3 u32, LE     | lengths of tree, text and vectors, their checksums included        |
| u32, LE       | checksum of these lengths and of whose they are                    |
| the lengths   | tree, text, vectors, each with its checksums behind it; vectors at |
|               | a multiple of four                                                 |

LMDB gives a value of over half a page pages of its own, and the end of the last one stays empty.
So the whole pages of a content are one value, and the rest of it, less than a page, is cut into
equal pieces that share pages with those of other documents. A long content is one value: there
half a page is little, and nothing has to be joined to read it. Knows nothing of transactions.
"""

import struct
from collections.abc import Sequence
from itertools import pairwise

from xxhash import xxh3_64_intdigest

from hrag.engine.embedded.store.checksums import Buffer, seed_of

PARTS = ("trees", "texts", "vectors")  # Passages need a document's first two parts.
LONG_BYTES = 64 << 10
PIECE_BYTES = 660  # Six fill a page; so short that little of one is empty.

_PAGE = 4096
_PAGE_HEADER = 16
_LENGTHS = struct.Struct("<3I")
_SUM = struct.Struct("<I")
_HEADER_BYTES = _LENGTHS.size + _SUM.size
_ALIGNMENT = 4
_SEED = seed_of(b"contents", 0)
_NUMBERS = [bytes([number]) for number in range(_PAGE // PIECE_BYTES + 3)]

Sealed = tuple[Buffer, Buffer]
"""The data of a part, and its checksums."""


class DamagedContent(Exception):
    """The content is not what was stored."""


def value_key(slot: bytes, number: int) -> bytes:
    """The key of one of the values of the content in a packed slot, from 0 on."""
    return slot + _NUMBERS[number]


def joined(parts: Sequence[Sealed], owner: bytes) -> bytes:
    """Returns the content of tree, text and vectors; `owner` is their document's address."""
    lengths = _LENGTHS.pack(*(len(data) + len(sums) for data, sums in parts))
    (tree, tree_sums), (text, text_sums), (vectors, vector_sums) = parts
    gap = bytes(_gap(len(tree) + len(tree_sums) + len(text) + len(text_sums)))
    header = lengths + _sum(lengths, owner)
    return b"".join((header, tree, tree_sums, text, text_sums, gap, vectors, vector_sums))


def size_bytes(lengths: Sequence[int]) -> int:
    """The length of the content of parts with these lengths, checksums included."""
    return _HEADER_BYTES + sum(lengths) + _gap(lengths[0] + lengths[1])


def value_lengths(content_bytes: int) -> list[int]:
    """Returns the lengths of the values that a content of so many bytes is cut into."""
    if content_bytes > LONG_BYTES:
        return [content_bytes]
    rest = (content_bytes + _PAGE_HEADER) % _PAGE
    whole = content_bytes - rest
    if whole <= 0:
        whole, rest = 0, content_bytes
    if not rest:
        return [whole]
    count = -(-rest // PIECE_BYTES)
    ends = [rest * place // count for place in range(count + 1)]
    pieces = [end - start for start, end in pairwise(ends)]
    return [whole, *pieces] if whole else pieces


def cut(content: bytes) -> list[memoryview]:
    """Returns the values in which a content is stored."""
    found, start = [], 0
    for length in value_lengths(len(content)):
        found.append(memoryview(content)[start : start + length])
        start += length
    return found


class Content:
    """What was read of the content of the document at `address`: a beginning of it at least."""

    __slots__ = ("address", "bounds", "held")

    def __init__(self, address: bytes, first: memoryview) -> None:
        """`first` is the first value. Raises DamagedContent."""
        lengths = first[: _LENGTHS.size]
        if bytes(first[_LENGTHS.size : _HEADER_BYTES]) != _sum(lengths, address):
            raise DamagedContent
        tree, text, vectors = _LENGTHS.unpack(lengths)
        ends = _HEADER_BYTES + tree, _HEADER_BYTES + tree + text
        start = ends[1] + _gap(tree + text)
        self.bounds = (_HEADER_BYTES, ends[0]), (ends[0], ends[1]), (start, start + vectors)
        self.address = address
        self.held = first

    @property
    def size_bytes(self) -> int:
        """The length of the whole content."""
        return self.needed_bytes(len(PARTS) - 1)

    def needed_bytes(self, part: int) -> int:
        """How much of the content is to be held for a part; a text is read with its tree."""
        needed: int = self.bounds[max(part, 1)][1]
        return needed

    def part(self, part: int) -> memoryview:
        """Returns a part with its checksums. Raises DamagedContent if it is not whole."""
        start, end = self.bounds[part]
        if end > len(self.held):
            raise DamagedContent
        return self.held[start:end]


def _gap(before: int) -> int:
    return -(_HEADER_BYTES + before) % _ALIGNMENT


def _sum(lengths: Buffer, owner: bytes) -> bytes:
    return _SUM.pack(xxh3_64_intdigest(lengths, seed_of(owner, _SEED)) & 0xFFFF_FFFF)
