"""What is taken of finished passages, in an order that the engine does not know.

The same rules as those of `hrag.passages.budget`, which has the documents at hand.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from hrag.text import tokens
from hrag.text.citations import pages_of
from hrag.text.sentences import fitting, sentence_ends
from hrag.values.chunks import Chunk, Span
from hrag.values.search import MatchedChild, Passage


def within_limits(
    passages: Sequence[Passage], limit: int, token_budget: int, *, cut_last: bool
) -> tuple[Passage, ...]:
    """Returns the first `limit` passages that fit the budget, in order; a budget of 0 is none.

    One that does not fit is left out; with `cut_last` it is cut to the whole sentences that
    fit, and is the last.
    """
    left = token_budget or sys.maxsize
    taken: list[Passage] = []
    for passage in passages:
        if len(taken) == limit:
            break
        if passage.chunk.token_count <= left:
            taken.append(passage)
            left -= passage.chunk.token_count
        elif cut_last:
            part = cut_passage(passage, left)
            return (*taken, part) if part else tuple(taken)
    return tuple(taken)


def cut_passage(passage: Passage, token_budget: int) -> Passage | None:
    """Returns the passage cut to the whole sentences that fit; None if none does.

    It begins with the passage or, if that would not reach its best leaf, with the sentence in
    which that leaf begins.
    """
    chunk = passage.chunk
    sentences = list(pairwise([0, *sentence_ends(chunk.content)]))
    sizes = [len(tokens.encode(chunk.content[start:end])) for start, end in sentences]
    best = passage.matched_children[0].span if passage.matched_children else chunk.span
    wanted = max(best.char_start - chunk.span.char_start, 0)
    number = next(number for number, (_, end) in enumerate(sentences) if end > wanted)
    left = token_budget
    while kept := fitting(sizes, number, left):
        part = _passage_part(passage, sentences[kept[0]][0], sentences[kept[-1]][1])
        if part.chunk.token_count <= token_budget:
            return part
        # Joined, sentences may have a token more than one by one.
        left = sum(sizes[kept.start : kept.stop]) - 1
    return None


def without_repeats(passages: Iterable[Passage]) -> list[Passage]:
    """Returns the passages, each without the text that those before it have.

    One of whose matched leaves nothing remains is left out. No passage is a part of another.
    """
    kept: list[Passage] = []
    for passage in passages:
        chunk = passage.chunk
        start, end = chunk.span.char_start, chunk.span.char_end
        same = (each.chunk for each in kept if each.chunk.document_id == chunk.document_id)
        for span in sorted((each.span for each in same), key=lambda span: span.char_start):
            if span.char_start <= start:
                start = max(start, span.char_end)
            else:
                end = min(end, span.char_start)
        if (start, end) == (chunk.span.char_start, chunk.span.char_end):
            kept.append(passage)
        elif start < end:
            first = start - chunk.span.char_start
            part = _passage_part(passage, first, first + end - start)
            kept += [part] if part.matched_children and part.chunk.content.strip() else []
    return kept


def _passage_part(passage: Passage, start: int, end: int) -> Passage:
    """The part of a passage between two characters of its content.

    It cites no sentence that is wholly outside of it.
    """
    part = _part(passage.chunk, start, end)
    children = (_inside(child, part.span) for child in passage.matched_children)
    sentence = passage.matched_sentence
    if sentence and _common(sentence.span, part.span) is None:
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


def _part(chunk: Chunk, start: int, end: int) -> Chunk:
    """The part of a chunk between two characters of its content."""
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
    )


def _inside(child: MatchedChild, span: Span) -> MatchedChild | None:
    """The part of a matched leaf inside `span`; None if no part is."""
    inside = _common(child.span, span)
    return replace(child, span=inside) if inside else None


def _common(one: Span, other: Span) -> Span | None:
    """What two spans have in common; None if nothing."""
    common = Span(
        max(one.byte_start, other.byte_start),
        min(one.byte_end, other.byte_end),
        max(one.char_start, other.char_start),
        min(one.char_end, other.char_end),
    )
    return common if common.char_start < common.char_end else None
