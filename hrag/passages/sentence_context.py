"""A leaf with the sentences around it, as SENTENCE_WINDOW needs it."""

from dataclasses import dataclass
from itertools import pairwise

from hrag.passages.tree_text import TreePosition, TreeText
from hrag.text.sentences import MAX_SENTENCE_CHARS, sentence_ends
from hrag.values.chunks import Chunk, PageStart, Span
from hrag.values.tree import ChunkRecord

_MAX_CHARACTER_BYTES = 4  # Of UTF-8.


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with the white space behind it.

    Pages are 0 where there are none; those after the first begin at `page_starts`.
    """

    content: str
    span: Span
    first_page: int
    last_page: int
    page_starts: tuple[PageStart, ...] = ()


@dataclass(frozen=True, slots=True)
class SentenceContext:
    """A leaf and the sentences around it.

    `leaf_sentences` is the range of those that the leaf touches, by index in `sentences`; the
    first may begin before the leaf, and the last may end after it. `chunk` has no content;
    `score` is the leaf's.
    """

    chunk: Chunk
    score: float
    sentences: tuple[Sentence, ...]
    leaf_sentences: range


def sentence_context(
    document: TreeText, position: TreePosition, score: float, margin: int
) -> SentenceContext:
    """Returns a chunk with the sentences it touches and `margin` more on either side.

    Reads no more of the text than that can need, so a sentence at the far end of very long
    ones may be cut where reading began.
    """
    record = document.tree.record(*position)
    before, inside, behind = _surroundings(document, record, (margin + 1) * MAX_SENTENCE_CHARS)
    text = before + inside + behind
    start, end = len(before), len(before) + len(inside)
    spans = list(pairwise([0, *sentence_ends(text)]))
    touched = [n for n, (first, last) in enumerate(spans) if first < end and start < last]
    chosen = range(max(touched[0] - margin, 0), min(touched[-1] + margin + 1, len(spans)))
    char = record.char_start - start
    byte = record.byte_start - len(before.encode()) + len(text[: spans[chosen[0]][0]].encode())
    sentences = []
    for first, last in spans[chosen.start : chosen.stop]:
        sentence = _sentence(document, text[first:last], byte, char + first)
        sentences.append(sentence)
        byte = sentence.span.byte_end
    leaf_sentences = range(touched[0] - chosen.start, touched[-1] - chosen.start + 1)
    chunk = document.chunk(position, record, content=False)
    return SentenceContext(chunk, score, tuple(sentences), leaf_sentences)


def _sentence(document: TreeText, content: str, byte_start: int, char_start: int) -> Sentence:
    char_end = char_start + len(content)
    span = Span(byte_start, byte_start + len(content.encode()), char_start, char_end)
    first_page, last_page = document.outline.page_range(char_start, char_end)
    page_starts = document.outline.page_starts_in(char_start, char_end)
    return Sentence(content, span, first_page, last_page, page_starts)


def _surroundings(document: TreeText, record: ChunkRecord, chars: int) -> tuple[str, str, str]:
    """Returns the text before a chunk, its own and the text behind it.

    On either side `chars` characters, or as many as there are.
    """
    reach = chars * _MAX_CHARACTER_BYTES
    before = document.part(max(record.byte_start - reach, 0), record.byte_start)
    behind = document.part(record.byte_end, record.byte_end + reach)
    # The outer ends may lie inside a character.
    return (
        str(before, "utf-8", "ignore")[-chars:],
        document.content(record),
        str(behind, "utf-8", "ignore")[:chars],
    )
