"""A matched leaf with the text around it."""

from dataclasses import dataclass

from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.values.chunks import Chunk

_MAX_CHARACTER_BYTES = 4  # UTF-8 needs at most 4 bytes per character.


@dataclass(frozen=True, slots=True)
class SurroundedLeaf:
    """A leaf with its score, and the text before and after the leaf.

    `before` and `after` have as many characters as were requested, or fewer at the ends of the
    document. `outline` contains the document's pages.
    """

    chunk: Chunk
    score: float
    before: str
    after: str
    outline: Outline


def surrounded_leaf(
    document: TreeText, position: TreePosition, score: float, chars: int
) -> SurroundedLeaf:
    """Returns a leaf with up to `chars` characters of text on each side."""
    record = document.tree.record(*position)
    max_bytes = chars * _MAX_CHARACTER_BYTES
    before = document.part(max(record.byte_start - max_bytes, 0), record.byte_start)
    after = document.part(record.byte_end, record.byte_end + max_bytes)
    return SurroundedLeaf(
        document.chunk(position, record),
        score,
        # The first byte of `before` and the last byte of `after` may lie inside a character, so
        # decoding ignores errors.
        str(before, "utf-8", "ignore")[-chars:],
        str(after, "utf-8", "ignore")[:chars],
        document.outline,
    )
