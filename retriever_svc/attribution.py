"""Finds the sentence of a passage that best supports a statement of an answer.

The statement cites the passage by the passage's number. The vectors of statements and sentences are
compared. If a statement cannot be compared with the sentences, for example because the embedder
fails, the citation names the whole passage.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

import numpy as np

from hrag.engine import Vector
from hrag.text.citations import pages_of, recognised_pages_of
from hrag.text.sentences import has_word, sentence_ends
from hrag.values.answers import Citation
from hrag.values.chunks import Chunk, Span
from hrag.values.errors import HragError
from hrag.values.limits import MAX_EMBEDDED_BYTES
from hrag.values.reply_limit import ReplyLimit, text_bytes
from hrag.values.search import Passage
from retriever_svc.markers import CitedStatement
from retriever_svc.work_limit import TEXT_BYTES

_CITATION_BYTES = 96  # An encoded Citation without its two ids has at most this many bytes.

Embed = Callable[[Sequence[str]], Sequence[Vector | HragError]]
"""Returns a vector or an error for each text."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    span: Span


def citations(
    text: str,
    cited: Sequence[CitedStatement],
    passages: Sequence[Passage],
    embed: Embed,
) -> tuple[Citation, ...]:
    """Returns one citation for each statement in `cited`, in order.

    `cited` has the statements of the answer `text`, each with the number of the passage that it
    cites. The statements are embedded first, then the sentences of the cited passages, until
    MAX_EMBEDDED_BYTES of text are embedded. If a statement is not embedded, or no sentence of its
    passage is embedded, the citation names the whole passage.
    """
    statements = [text[item.start : item.end] for item in cited]
    texts = _TextsToEmbed()
    texts.add_all(filter(None, statements))
    # Only sentences that can be embedded are cut out, because a passage may have very many.
    sentences_of = {
        number: list(takewhile(lambda sentence: texts.add(sentence.text), _sentences(chunk)))
        for number, chunk in _cited_chunks(cited, passages)
    }
    vector_of = _vectors(list(texts.distinct), embed)
    comparisons = {
        number: _Comparison(sentences, vector_of) for number, sentences in sentences_of.items()
    }
    return tuple(
        _citation(
            item,
            passages[item.number - 1].chunk,
            *comparisons[item.number].best(statement),
        )
        for item, statement in zip(cited, statements, strict=True)
    )


def _cited_chunks(
    cited: Sequence[CitedStatement], passages: Sequence[Passage]
) -> Iterator[tuple[int, Chunk]]:
    """Yields the number and the chunk of each cited passage once, in order of the citations."""
    for number in dict.fromkeys(item.number for item in cited):
        yield number, passages[number - 1].chunk


def _sentences(chunk: Chunk) -> Iterator[_Sentence]:
    """Yields the sentences of a chunk, without the white space around each sentence.

    Sentences without a word are left out.
    """
    start, start_byte = 0, chunk.span.byte_start
    for end in sentence_ends(chunk.content):
        raw = chunk.content[start:end]
        text = raw.strip()
        if has_word(text):
            leading_blanks = len(raw) - len(raw.lstrip())
            char_start = chunk.span.char_start + start + leading_blanks
            byte_start = start_byte + len(raw[:leading_blanks].encode())
            span = Span(
                byte_start, byte_start + len(text.encode()), char_start, char_start + len(text)
            )
            yield _Sentence(text, span)
        start, start_byte = end, start_byte + len(raw.encode())


class _TextsToEmbed:
    """The first texts, without duplicates, whose total size is at most MAX_EMBEDDED_BYTES.

    The size of a text is its length in bytes plus TEXT_BYTES.
    """

    def __init__(self) -> None:
        self.distinct: dict[str, None] = {}
        self._left_bytes = MAX_EMBEDDED_BYTES

    def add_all(self, texts: Iterable[str]) -> None:
        """Adds texts in order, until one does not fit."""
        for _ in takewhile(self.add, texts):
            pass

    def add(self, text: str) -> bool:
        """Adds a text; returns False if it does not fit. No further text fits then."""
        if text not in self.distinct:
            self._left_bytes -= len(text.encode()) + TEXT_BYTES
            if self._left_bytes < 0:
                return False
            self.distinct[text] = None
        return True


def fitting(all_citations: Sequence[Citation], reply: ReplyLimit) -> tuple[Citation, ...]:
    """Returns as many of the first citations as fit the limit `reply`, in order.

    `reply` limits the total size of all returned citations, in bytes.
    """
    sizes = accumulate(
        text_bytes(citation.document_id, citation.chunk_id) + _CITATION_BYTES
        for citation in all_citations
    )
    return tuple(all_citations[: sum(size <= reply.left_bytes for size in sizes)])


def _vectors(texts: list[str], embed: Embed) -> dict[str, Vector]:
    """Returns the vector of each text. Texts that could not be embedded are left out."""
    if not texts:
        return {}
    vectors = embed(texts)
    return {
        text: vector
        for text, vector in zip(texts, vectors, strict=True)
        if not isinstance(vector, HragError)
    }


class _Comparison:
    """Compares statements with the sentences of one passage."""

    def __init__(self, sentences: Sequence[_Sentence], vector_of: dict[str, Vector]) -> None:
        self._sentences = [sentence for sentence in sentences if sentence.text in vector_of]
        self._vector_of = vector_of
        vectors = [vector_of[sentence.text] for sentence in self._sentences]
        self._matrix = np.stack(vectors) if vectors else None
        self._best: dict[str, tuple[Span, float]] = {}

    def best(self, statement: str) -> tuple[Span | None, float | None]:
        """Returns the span of the sentence that is nearest to the statement, and their cosine.

        Returns (None, None) if the statement has no vector, or if no sentence has a vector.
        """
        if self._matrix is None or statement not in self._vector_of:
            return None, None
        if statement not in self._best:
            scores = self._matrix @ self._vector_of[statement]
            best = int(scores.argmax())
            self._best[statement] = self._sentences[best].span, float(scores[best])
        return self._best[statement]


def _citation(
    cited: CitedStatement, chunk: Chunk, nearest: Span | None, score: float | None
) -> Citation:
    span = nearest or chunk.span
    first_page, last_page = pages_of(chunk, span)
    return Citation(
        marker=cited.number,
        document_id=chunk.document_id,
        chunk_id=chunk.chunk_id,
        statement_start=cited.start,
        statement_end=cited.end,
        span=span,
        first_page=first_page,
        last_page=last_page,
        score=score,
        page_unit=chunk.page_unit,
        recognised_pages=recognised_pages_of(chunk, span),
    )
