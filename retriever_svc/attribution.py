"""Citations: for each number in a text, the sentence of its passage that supports it best.

Sentences and statements are compared as vectors. If they cannot be compared, for example
because the embedder fails, the citation names the whole passage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from hrag.engine import Vector
from hrag.text.citations import pages_of
from hrag.text.sentences import has_word, sentence_ends
from hrag.values.answers import Citation
from hrag.values.chunks import Chunk, Span
from hrag.values.errors import HragError
from hrag.values.limits import MAX_EMBEDDED_BYTES
from hrag.values.reply_limit import ReplyLimit, text_bytes
from hrag.values.search import Passage
from retriever_svc.markers import Cited
from retriever_svc.work_limit import TEXT_BYTES

_CITATION_BYTES = 96  # At most, of the numbers in an encoded Citation.

Embed = Callable[[Sequence[str]], Sequence[Vector | HragError]]
"""Returns a vector or an error for each text."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    span: Span


def citations(
    text: str,
    found: Sequence[Cited],
    passages: Sequence[Passage],
    embed: Embed,
) -> tuple[Citation, ...]:
    """Returns one citation for each of `found`, which are numbers in `text`, in order.

    As many statements and sentences are compared as one call embeds, those of the first first.
    """
    statements = [text[each.start : each.end] for each in found]
    of_passage = {each.number: _sentences(passages[each.number - 1].chunk) for each in found}
    texts = [statement for statement in statements if statement]
    texts += [each.text for parts in of_passage.values() for each in parts]
    vector_of = _vectors(_affordable(texts), embed)
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


def _affordable(texts: Sequence[str]) -> list[str]:
    """The first distinct texts that one call may embed."""
    distinct = list(dict.fromkeys(texts))
    sizes = accumulate(len(text.encode()) + TEXT_BYTES for text in distinct)
    return distinct[: sum(size <= MAX_EMBEDDED_BYTES for size in sizes)]


def fitting(found: Sequence[Citation], reply: ReplyLimit) -> tuple[Citation, ...]:
    """Returns the first citations, as many as a reply may hold."""
    sizes = accumulate(
        text_bytes(each.document_id, each.chunk_id) + _CITATION_BYTES for each in found
    )
    return tuple(found[: sum(size <= reply.left_bytes for size in sizes)])


def _vectors(texts: list[str], embed: Embed) -> dict[str, Vector]:
    """Vectors by text, of those that could be embedded in time."""
    if not texts:
        return {}
    vectors = embed(texts)
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
