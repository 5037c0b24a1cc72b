"""Applies the limits of a search again, after a reranker has changed the order of its passages.

The limits are the maximum count of passages and the token budget. The rules are the same as in
`hrag.passages.budget`, but the input is different. `hrag.passages.budget` chooses passages before
their texts are read, and can read whole documents. This module has only the finished passages.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from hrag.text import tokens
from hrag.text.citations import pages_of, recognised_pages_of
from hrag.text.sentences import fitting, sentence_ends
from hrag.values.chunks import Chunk, Span
from hrag.values.search import MatchedChild, Passage


def within_limits(
    passages: Sequence[Passage], limit: int, token_budget: int, *, cut_last: bool
) -> tuple[Passage, ...]:
    """Returns the first `limit` passages that fit the token budget, in order.

    If `token_budget` is 0, tokens are not limited. A passage that does not fit is left out. With
    `cut_last`, the first passage that does not fit is instead cut to the whole sentences that fit,
    and it is the last passage.
    """
    remaining = token_budget or sys.maxsize
    chosen: list[Passage] = []
    for passage in passages:
        if len(chosen) == limit:
            break
        if passage.chunk.token_count <= remaining:
            chosen.append(passage)
            remaining -= passage.chunk.token_count
        elif cut_last:
            part = cut_passage(passage, remaining)
            return (*chosen, part) if part else tuple(chosen)
    return tuple(chosen)


def cut_passage(passage: Passage, token_budget: int) -> Passage | None:
    """Returns the passage cut to the whole sentences that fit; None if no sentence fits.

    The result begins where the passage begins. Exception: if the sentences from there that fit
    would end before the passage's best leaf, the result begins with the sentence in which this leaf
    begins.
    """
    chunk = passage.chunk
    sentences = list(pairwise([0, *sentence_ends(chunk.content)]))
    sizes = [len(tokens.encode(chunk.content[start:end])) for start, end in sentences]
    best = passage.matched_children[0].span if passage.matched_children else chunk.span
    leaf_start = max(best.char_start - chunk.span.char_start, 0)
    keep = next(index for index, (_, end) in enumerate(sentences) if end > leaf_start)
    remaining = token_budget
    while kept_range := fitting(sizes, keep, remaining):
        part = _passage_part(passage, sentences[kept_range[0]][0], sentences[kept_range[-1]][1])
        if part.chunk.token_count <= token_budget:
            return part
        # The text of several sentences may have more tokens than the sum over the sentences. Then
        # the next attempt gets a smaller budget, so it keeps fewer sentences.
        remaining = sum(sizes[kept_range.start : kept_range.stop]) - 1
    return None


def without_repeats(passages: Iterable[Passage]) -> list[Passage]:
    """Returns the passages, each without the text that earlier passages already contain.

    A passage is left out if nothing of its matched leaves remains. The caller guarantees that no
    passage lies completely inside another one.
    """
    shortened: list[Passage] = []
    for passage in passages:
        chunk = passage.chunk
        start, end = chunk.span.char_start, chunk.span.char_end
        earlier = (
            other.chunk for other in shortened if other.chunk.document_id == chunk.document_id
        )
        for span in sorted((other.span for other in earlier), key=lambda span: span.char_start):
            if span.char_start <= start:
                start = max(start, span.char_end)
            else:
                end = min(end, span.char_start)
        if (start, end) == (chunk.span.char_start, chunk.span.char_end):
            shortened.append(passage)
        elif start < end:
            first = start - chunk.span.char_start
            part = _passage_part(passage, first, first + end - start)
            shortened += [part] if part.matched_children and part.chunk.content.strip() else []
    return shortened


def _passage_part(passage: Passage, start: int, end: int) -> Passage:
    """Returns the part of a passage between two offsets in characters of its content.

    If the matched sentence lies completely outside of this part, the result has no matched
    sentence.
    """
    part = _chunk_part(passage.chunk, start, end)
    children = (_child_inside(child, part.span) for child in passage.matched_children)
    sentence = passage.matched_sentence
    if sentence and _shared_span(sentence.span, part.span) is None:
        sentence = None
    return replace(
        passage,
        chunk=part,
        matched_children=tuple(filter(None, children)),
        matched_sentence=sentence,
        term_spans=tuple(
            term
            for term in passage.term_spans
            if part.span.char_start <= term.char_start and term.char_end <= part.span.char_end
        ),
    )


def _chunk_part(chunk: Chunk, start: int, end: int) -> Chunk:
    """Returns the part of a chunk between two offsets in characters of its content."""
    content = chunk.content[start:end]
    whole = chunk.span
    byte_start = whole.byte_start + len(chunk.content[:start].encode())
    span = Span(
        byte_start,
        byte_start + len(content.encode()),
        whole.char_start + start,
        whole.char_start + end,
    )
    first_page, last_page = pages_of(chunk, span)
    return replace(
        chunk,
        content=content,
        token_count=len(tokens.encode(content)),
        span=span,
        first_page=first_page,
        last_page=last_page,
        page_starts=tuple(
            page for page in chunk.page_starts if span.char_start < page.char_start < span.char_end
        ),
        recognised_pages=recognised_pages_of(chunk, span),
    )


def _child_inside(child: MatchedChild, span: Span) -> MatchedChild | None:
    """Returns the part of a matched leaf inside `span`; None if no part is inside."""
    inside = _shared_span(child.span, span)
    return replace(child, span=inside) if inside else None


def _shared_span(first: Span, second: Span) -> Span | None:
    """Returns the span that two spans have in common; None if they do not overlap."""
    common = Span(
        max(first.byte_start, second.byte_start),
        min(first.byte_end, second.byte_end),
        max(first.char_start, second.char_start),
        min(first.char_end, second.char_end),
    )
    return common if common.char_start < common.char_end else None
