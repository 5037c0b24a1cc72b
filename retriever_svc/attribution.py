"""Citations: for each number in a text, the sentence of its passage that supports it best.

Sentences and statements are compared as vectors. If they cannot be compared, for example
because the embedder fails, the citation names the whole passage.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hrag.answers.citations import pages_of
from hrag.answers.values import Citation
from hrag.deadline import Deadline
from hrag.embedding.cache import CachedQueries
from hrag.engine import Vector
from hrag.errors import HragError
from hrag.sentences import has_word, sentence_ends
from hrag.types import (
    Chunk,
    Passage,
    Span,
)
from retriever_svc.markers import Cited


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    span: Span


def citations(
    text: str,
    found: Sequence[Cited],
    passages: Sequence[Passage],
    sentences: CachedQueries,
    deadline: Deadline,
) -> tuple[Citation, ...]:
    """Returns one citation for each of `found`, which are numbers in `text`, in order."""
    statements = [text[each.start : each.end] for each in found]
    of_passage = {each.number: _sentences(passages[each.number - 1].chunk) for each in found}
    texts = {statement for statement in statements if statement}
    texts.update(each.text for parts in of_passage.values() for each in parts)
    vector_of = _vectors(sorted(texts), sentences, deadline)
    return tuple(
        _citation(
            each,
            passages[each.number - 1].chunk,
            *_best(vector_of, statement, of_passage[each.number]),
        )
        for each, statement in zip(found, statements, strict=True)
    )


def _sentences(chunk: Chunk) -> list[_Sentence]:
    """The sentences of a chunk's content that hold a word, without the white space around."""
    found = []
    start, start_byte = 0, chunk.span.byte_start
    for end in sentence_ends(chunk.content):
        whole = chunk.content[start:end]
        text = whole.strip()
        if has_word(text):
            blank = len(whole) - len(whole.lstrip())
            char = chunk.span.char_start + start + blank
            byte = start_byte + len(whole[:blank].encode())
            span = Span(byte, byte + len(text.encode()), char, char + len(text))
            found.append(_Sentence(text, span))
        start, start_byte = end, start_byte + len(whole.encode())
    return found


def _vectors(texts: list[str], sentences: CachedQueries, deadline: Deadline) -> dict[str, Vector]:
    """Vectors by text, of those that could be embedded in time."""
    if not texts:
        return {}
    vectors = sentences.embed_each(texts, deadline)
    return {
        text: vector
        for text, vector in zip(texts, vectors, strict=True)
        if not isinstance(vector, HragError)
    }


def _best(
    vector_of: dict[str, Vector], statement: str, parts: Sequence[_Sentence]
) -> tuple[Span | None, float | None]:
    """The sentence nearest to the statement and its cosine; None if they cannot be compared."""
    known = [part for part in parts if part.text in vector_of]
    if statement not in vector_of or not known:
        return None, None
    scores = np.stack([vector_of[part.text] for part in known]) @ vector_of[statement]
    best = int(scores.argmax())
    return known[best].span, float(scores[best])


def _citation(cited: Cited, chunk: Chunk, nearest: Span | None, score: float | None) -> Citation:
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
    )
