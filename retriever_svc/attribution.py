"""Finds the sentence of a passage that best supports a statement of an answer.

The statement cites the passage by the passage's number. The vectors of statements and sentences are
compared. If a statement cannot be compared with the sentences, for example because the embedder
fails, the citation names the whole passage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

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
    sentences_of = {item.number: _sentences(passages[item.number - 1].chunk) for item in cited}
    texts = [statement for statement in statements if statement]
    texts += [sentence.text for sentences in sentences_of.values() for sentence in sentences]
    vector_of = _vectors(_first_distinct(texts), embed)
    return tuple(
        _citation(
            item,
            passages[item.number - 1].chunk,
            *_best(vector_of, statement, sentences_of[item.number]),
        )
        for item, statement in zip(cited, statements, strict=True)
    )


def _sentences(chunk: Chunk) -> list[_Sentence]:
    """Returns the sentences of a chunk, without the white space around each sentence.

    Sentences without a word are left out.
    """
    sentences = []
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
            sentences.append(_Sentence(text, span))
        start, start_byte = end, start_byte + len(raw.encode())
    return sentences


def _first_distinct(texts: Sequence[str]) -> list[str]:
    """Returns the first texts, without duplicates, whose total size is at most MAX_EMBEDDED_BYTES.

    The order stays the same. The size of a text is its length in bytes plus TEXT_BYTES.
    """
    distinct = list(dict.fromkeys(texts))
    sizes = accumulate(len(text.encode()) + TEXT_BYTES for text in distinct)
    return distinct[: sum(size <= MAX_EMBEDDED_BYTES for size in sizes)]


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


def _best(
    vector_of: dict[str, Vector], statement: str, sentences: Sequence[_Sentence]
) -> tuple[Span | None, float | None]:
    """Returns the span of the sentence that is nearest to the statement, and their cosine.

    Returns (None, None) if the statement has no vector, or if no sentence has a vector.
    """
    comparable = [sentence for sentence in sentences if sentence.text in vector_of]
    if statement not in vector_of or not comparable:
        return None, None
    scores = np.stack([vector_of[sentence.text] for sentence in comparable]) @ vector_of[statement]
    best = int(scores.argmax())
    return comparable[best].span, float(scores[best])


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
