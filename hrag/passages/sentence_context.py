"""A leaf with the sentences around it, as SENTENCE_WINDOW needs it."""

from dataclasses import dataclass
from itertools import pairwise

from hrag.passages.tree_text import TreePosition, TreeText
from hrag.text.sentences import MAX_SENTENCE_CHARS, sentence_ends
from hrag.values.chunks import Chunk, PageStart, Span
from hrag.values.tree import ChunkRecord

_MAX_CHARACTER_BYTES = 4  # UTF-8 needs at most 4 bytes per character.


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with the white space after it.

    Page numbers are 0 if the document has no pages. `page_starts` are the starts of the pages after
    `first_page`.
    """

    content: str
    span: Span
    first_page: int
    last_page: int
    page_starts: tuple[PageStart, ...] = ()


@dataclass(frozen=True, slots=True)
class SentenceContext:
    """A leaf and the sentences around it.

    `leaf_sentences` is the range of the sentences that the leaf touches, by index in `sentences`.
    The first of them may begin before the leaf, and the last may end after it. `chunk` is the leaf
    without content, and `score` is the leaf's score.
    """

    chunk: Chunk
    score: float
    sentences: tuple[Sentence, ...]
    leaf_sentences: range


def sentence_context(
    document: TreeText, position: TreePosition, score: float, margin: int
) -> SentenceContext:
    """Returns a chunk with the sentences that it touches and `margin` more on both sides.

    Reads no more text than this can need. So if sentences are very long, the outermost one may be
    cut where reading began or ended.
    """
    record = document.tree.record(*position)
    before, inside, after = _surroundings(document, record, (margin + 1) * MAX_SENTENCE_CHARS)
    text = before + inside + after
    start, end = len(before), len(before) + len(inside)
    spans = list(pairwise([0, *sentence_ends(text)]))
    touched_numbers = [
        number for number, (first, last) in enumerate(spans) if first < end and start < last
    ]
    window = range(
        max(touched_numbers[0] - margin, 0), min(touched_numbers[-1] + margin + 1, len(spans))
    )
    char = record.char_start - start
    byte = record.byte_start - len(before.encode()) + len(text[: spans[window[0]][0]].encode())
    sentences = []
    for first, last in spans[window.start : window.stop]:
        sentence = _sentence(document, text[first:last], byte, char + first)
        sentences.append(sentence)
        byte = sentence.span.byte_end
    leaf_sentences = range(
        touched_numbers[0] - window.start, touched_numbers[-1] - window.start + 1
    )
    chunk = document.chunk(position, record, content=False)
    return SentenceContext(chunk, score, tuple(sentences), leaf_sentences)


def _sentence(document: TreeText, content: str, byte_start: int, char_start: int) -> Sentence:
    char_end = char_start + len(content)
    span = Span(byte_start, byte_start + len(content.encode()), char_start, char_end)
    first_page, last_page = document.outline.page_range(char_start, char_end)
    page_starts = document.outline.page_starts_in(char_start, char_end)
    return Sentence(content, span, first_page, last_page, page_starts)


def _surroundings(document: TreeText, record: ChunkRecord, chars: int) -> tuple[str, str, str]:
    """Returns the text before a chunk, the chunk's text, and the text after it.

    The texts on both sides have `chars` characters, or fewer at the ends of the document.
    """
    max_bytes = chars * _MAX_CHARACTER_BYTES
    before = document.part(max(record.byte_start - max_bytes, 0), record.byte_start)
    after = document.part(record.byte_end, record.byte_end + max_bytes)
    # The outer ends may lie inside a character, so decoding ignores errors.
    return (
        str(before, "utf-8", "ignore")[-chars:],
        document.content(record),
        str(after, "utf-8", "ignore")[:chars],
    )
