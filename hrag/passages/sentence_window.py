"""SENTENCE_WINDOW: replaces a leaf by its sentence to cite and the sentences around it.

These sentences together are called a window. A window may begin before its leaf and end after it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from hrag.passages.drafts import PassageDraft, SentenceWindow
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.passages.truncation import part_of
from hrag.text.sentences import MAX_SENTENCE_CHARS, sentence_ends
from hrag.values.tree import ChunkRecord, covering

_MAX_CHARACTER_BYTES = 4  # UTF-8 needs at most 4 bytes per character.


def widened(draft: PassageDraft) -> PassageDraft:
    """Returns a draft with the span of its window; returns a draft without a window unchanged.

    The window has up to `margin` sentences before its sentence, and as many after it. If these
    sentences are very long, the first or the last one may be cut.
    """
    if draft.window is None:
        return draft
    document = draft.document
    # The text that was read to find the sentence nearly always has its neighbours, too.
    excerpt = _Excerpt.of(document, draft.window, MAX_SENTENCE_CHARS)
    if not excerpt.has_whole_window:
        excerpt = _Excerpt.of(
            document, draft.window, (draft.window.margin + 1) * MAX_SENTENCE_CHARS
        )
    leaves = covering(list(_leaves_around(document, draft.position, *excerpt.span)))
    return draft.spanning(part_of(document, leaves, *excerpt.span))


class _Excerpt(NamedTuple):
    """A sentence with the text around it, cut into sentences.

    `borders` are the starts and ends of all sentences, in code points of the document. The window
    is from `borders[first]` to `borders[end]`; both indexes may be outside of `borders`. `is_start`
    and `is_end` are True if the document begins and ends where the excerpt does.
    """

    borders: list[int]
    first: int
    end: int
    is_start: bool
    is_end: bool

    @classmethod
    def of(cls, document: TreeText, window: SentenceWindow, reach: int) -> "_Excerpt":
        """Reads the sentence of a window, with up to `reach` code points before and after it."""
        byte_start, byte_end, char_start, char_end, margin = window
        before = document.part(max(byte_start - _MAX_CHARACTER_BYTES * reach, 0), byte_start)
        after = document.part(byte_end, byte_end + _MAX_CHARACTER_BYTES * reach)
        # The first byte of `before` and the last byte of `after` may lie inside a character, so
        # decoding ignores errors.
        text_before = str(before, "utf-8", "ignore")[-reach:]
        text_after = str(after, "utf-8", "ignore")[:reach]
        sentence = str(document.part(byte_start, byte_end), "utf-8")
        text_start = char_start - len(text_before)
        ends = sentence_ends(text_before + sentence + text_after)
        borders = [text_start, *(text_start + end for end in ends)]
        return cls(
            borders,
            bisect_right(borders, char_start) - 1 - margin,
            bisect_left(borders, char_end) + margin,
            is_start=text_start == 0,
            is_end=len(text_after) < reach,
        )

    @property
    def has_whole_window(self) -> bool:
        """True if no sentence of the window ends only because the excerpt ends."""
        return (self.first > 0 or self.is_start) and (
            self.end < len(self.borders) - 1 or self.is_end
        )

    @property
    def span(self) -> tuple[int, int]:
        """The start and the end of the window, in code points of the document."""
        last = len(self.borders) - 1
        return self.borders[max(self.first, 0)], self.borders[min(self.end, last)]


def _leaves_around(
    document: TreeText, position: TreePosition, char_start: int, char_end: int
) -> Iterator[ChunkRecord]:
    """Yields the leaf at `position` and the leaves that cover a range of code points with it."""
    level, index = position
    tree = document.tree
    leaf = record = tree.record(level, index)
    yield leaf
    before = after = index
    while record.char_start > char_start:
        before -= 1
        record = tree.record(level, before)
        yield record
    record = leaf
    while record.char_end < char_end:
        after += 1
        record = tree.record(level, after)
        yield record
