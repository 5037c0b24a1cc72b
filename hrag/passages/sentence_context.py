"""A leaf with the sentences around it, as SENTENCE_WINDOW reads it from a document."""

from dataclasses import dataclass

from hrag.types import Chunk, PageStart, Span


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
    """A chunk's surroundings, sentence by sentence.

    `own` numbers those that the chunk touches; a sentence may begin before it or end
    behind it. `chunk` is without content; `score` is the chunk's.
    """

    chunk: Chunk
    score: float
    sentences: tuple[Sentence, ...]
    own: range
