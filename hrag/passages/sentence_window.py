"""SENTENCE_WINDOW: replaces a leaf by its sentence to cite and the sentences around it.

These sentences together are called a window. A window may begin before its leaf and end after it.
A window leaves out text of better windows, like other chunks (`hrag.passages.budget`). If a better
window has its sentence, it is left out whole.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace

from hrag.passages.drafts import PassageDraft
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.passages.truncation import part_of
from hrag.text.sentences import MAX_SENTENCE_CHARS, sentence_ends
from hrag.values.tree import ChunkRecord, covering

_MAX_CHARACTER_BYTES = 4  # UTF-8 needs at most 4 bytes per character.


def windowed(draft: PassageDraft, sentence: tuple[int, int, int, int], margin: int) -> PassageDraft:
    """Returns the draft of a leaf with the span of a window: a sentence and its neighbours.

    `sentence` is the start and the end of the sentence in bytes, then in code points; it overlaps
    the leaf. The window has up to `margin` sentences before it, and as many after it. If these
    sentences are very long, the first or the last one may be cut.
    """
    document, (byte_start, byte_end, char_start, char_end) = draft.document, sentence
    reach = (margin + 1) * MAX_SENTENCE_CHARS
    before = document.part(max(byte_start - _MAX_CHARACTER_BYTES * reach, 0), byte_start)
    after = document.part(byte_end, byte_end + _MAX_CHARACTER_BYTES * reach)
    # The first byte of `before` and the last byte of `after` may lie inside a character, so
    # decoding ignores errors.
    text_before = str(before, "utf-8", "ignore")[-reach:]
    text_after = str(after, "utf-8", "ignore")[:reach]
    content = str(document.part(byte_start, byte_end), "utf-8")
    first_char = char_start - len(text_before)
    borders = [first_char]
    borders += (first_char + end for end in sentence_ends(text_before + content + text_after))
    first = bisect_right(borders, char_start) - 1
    end = bisect_left(borders, char_end)
    span = borders[max(first - margin, 0)], borders[min(end + margin, len(borders) - 1)]
    leaves = covering(list(_leaves_around(document, draft.position, *span)))
    return replace(draft, record=part_of(document, leaves, *span), sentence_char=char_start)


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
