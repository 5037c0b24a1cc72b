"""Cuts a leaf and the text around it into sentences, for SENTENCE_WINDOW."""

from dataclasses import dataclass
from itertools import pairwise

from hrag.passages.outline import Outline
from hrag.passages.surrounded_leaf import SurroundedLeaf
from hrag.text.sentences import MAX_SENTENCE_CHARS, sentence_ends
from hrag.values.chunks import Chunk, PageStart, Span


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with the white space after it.

    Page numbers are 0 if the document has no pages. `page_starts` are the starts of the pages after
    `first_page`. `recognised_pages` are the numbers of the pages whose text was recognised in a
    picture.
    """

    content: str
    span: Span
    first_page: int
    last_page: int
    page_starts: tuple[PageStart, ...] = ()
    recognised_pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SentenceContext:
    """A leaf and the sentences around it.

    `leaf_sentences` is the range of the sentences that the leaf touches, by index in `sentences`.
    The first of these sentences may begin before the leaf, and the last one may end after the leaf.
    `score` is the leaf's score.
    """

    chunk: Chunk
    score: float
    sentences: tuple[Sentence, ...]
    leaf_sentences: range


def surrounding_chars(margin: int) -> int:
    """Returns how many characters of text `sentence_context` needs on each side of a leaf.

    `margin` is how many sentences `sentence_context` returns before and after those that the leaf
    touches.
    """
    return (margin + 1) * MAX_SENTENCE_CHARS


def sentence_context(leaf: SurroundedLeaf, margin: int) -> SentenceContext:
    """Returns a leaf with the sentences that it touches, and `margin` more sentences on each side.

    `leaf.before` and `leaf.after`, the texts around the leaf, must have `surrounding_chars(margin)`
    characters each, or fewer if the document begins or ends there. If sentences are very long, the
    first sentence may be cut at the start of `leaf.before`, and the last sentence at the end of
    `leaf.after`.
    """
    chunk, before = leaf.chunk, leaf.before
    text = before + chunk.content + leaf.after
    start, end = len(before), len(before) + len(chunk.content)
    spans = list(pairwise([0, *sentence_ends(text)]))
    touched = [index for index, (first, last) in enumerate(spans) if first < end and start < last]
    window = range(max(touched[0] - margin, 0), min(touched[-1] + margin + 1, len(spans)))
    char = chunk.span.char_start - start
    byte = chunk.span.byte_start - len(before.encode()) + len(text[: spans[window[0]][0]].encode())
    sentences = []
    for first, last in spans[window.start : window.stop]:
        sentence = _sentence(leaf.outline, text[first:last], byte, char + first)
        sentences.append(sentence)
        byte = sentence.span.byte_end
    leaf_sentences = range(touched[0] - window.start, touched[-1] - window.start + 1)
    return SentenceContext(chunk, leaf.score, tuple(sentences), leaf_sentences)


def _sentence(outline: Outline, content: str, byte_start: int, char_start: int) -> Sentence:
    char_end = char_start + len(content)
    span = Span(byte_start, byte_start + len(content.encode()), char_start, char_end)
    first_page, last_page = outline.page_range(char_start, char_end)
    return Sentence(
        content,
        span,
        first_page,
        last_page,
        outline.page_starts_in(char_start, char_end),
        outline.recognised_pages_in(char_start, char_end),
    )
