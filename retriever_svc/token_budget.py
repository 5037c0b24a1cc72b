"""Fills a token budget with passages whose order the engine does not know.

The rules are those of `hrag.passages.drafts.select_drafts`, applied to finished passages.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from hrag.answers.citations import pages_of
from hrag.passages.truncation import truncated
from hrag.tree import ChunkRecord
from hrag.types import MatchedChild, Passage, Span


def within_budget(
    passages: Sequence[Passage], token_budget: int, *, cut_last: bool
) -> tuple[Passage, ...]:
    """Returns the passages that fit the budget, in order; a budget of 0 is none.

    One that does not fit is left out; with `cut_last` it is cut to the whole sentences that
    fit, and is the last.
    """
    left = token_budget or sys.maxsize
    taken: list[Passage] = []
    for passage in passages:
        if passage.chunk.token_count <= left:
            taken.append(passage)
            left -= passage.chunk.token_count
        elif cut_last:
            part = cut_passage(passage, left)
            return (*taken, part) if part else tuple(taken)
    return tuple(taken)


def cut_passage(passage: Passage, token_budget: int) -> Passage | None:
    """Returns the passage cut to the whole sentences that fit; None if none does.

    The sentence in which its best leaf begins is among them.
    """
    chunk = passage.chunk
    record = _record(chunk.span, chunk.token_count)
    best = passage.matched_children[0].span if passage.matched_children else chunk.span
    cut = truncated(chunk.content, record, _record(best, 0), token_budget)
    if cut is None:
        return None
    span = Span(cut.byte_start, cut.byte_end, cut.char_start, cut.char_end)
    first_page, last_page = pages_of(chunk, span)
    offset = chunk.span.char_start
    part = replace(
        chunk,
        content=chunk.content[span.char_start - offset : span.char_end - offset],
        token_count=cut.token_count,
        span=span,
        first_page=first_page,
        last_page=last_page,
        page_starts=tuple(
            page for page in chunk.page_starts if span.char_start < page.char_start < span.char_end
        ),
    )
    children = (_inside(child, span) for child in passage.matched_children)
    return replace(
        passage,
        chunk=part,
        matched_children=tuple(filter(None, children)),
        term_spans=tuple(
            term
            for term in passage.term_spans
            if span.char_start <= term.char_start and term.char_end <= span.char_end
        ),
    )


def _record(span: Span, token_count: int) -> ChunkRecord:
    return ChunkRecord(
        span.byte_start, span.byte_end, span.char_start, span.char_end, 0, token_count, 0, 0, 0, 0
    )


def _inside(child: MatchedChild, span: Span) -> MatchedChild | None:
    """The part of a matched leaf inside `span`; None if no part is."""
    inside = Span(
        max(child.span.byte_start, span.byte_start),
        min(child.span.byte_end, span.byte_end),
        max(child.span.char_start, span.char_start),
        min(child.span.char_end, span.char_end),
    )
    return replace(child, span=inside) if inside.char_start < inside.char_end else None
