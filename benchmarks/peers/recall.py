"""Recall and precision of gold spans, within an equal number of tokens for every peer; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.peer import Found
from benchmarks.peers.spans import Span, find_span
from hrag.text import tokens

Spans = Mapping[str, Sequence[Span]]
"""Spans by document id."""


@dataclass(frozen=True, slots=True)
class Context:
    """What fits a budget. `lost` passages are in no document: they cost tokens, cover nothing."""

    spans: Spans
    tokens: int
    lost: int


@dataclass(frozen=True, slots=True)
class Score:
    """Shares of characters: the covered share of the gold, and the gold share of the covered."""

    recall: float
    precision: float
    tokens: float
    lost: int


def within_budget(found: Iterable[Found], documents: Mapping[str, str], budget: int) -> Context:
    """Returns the passages in order until their tokens fill the budget; truncates the last."""
    spans: dict[str, list[Span]] = {}
    used = lost = 0
    for passage in found:
        if used >= budget:
            break
        text, count = truncated(passage.text, budget - used)
        used += count
        span = find_span(documents[passage.document_id], text, passage.start)
        if span is None:
            lost += 1
        else:
            spans.setdefault(passage.document_id, []).append(span)
    return Context(spans, used, lost)


def truncated(text: str, limit: int) -> tuple[str, int]:
    """Returns at most `limit` tokens from the start, in whole code points, and their number."""
    encoded = _encoded(text)
    if len(encoded) <= limit:
        return text, len(encoded)
    end = int(tokens.byte_ends(encoded[:limit])[-1])
    return text.encode()[:end].decode("utf-8", "ignore"), limit


@lru_cache(maxsize=10_000)
def _encoded(text: str) -> NDArray[np.uint32]:
    """Cached, since many queries return the same passages."""
    return tokens.encode(text)


def score(context: Context, gold: Spans) -> Score:
    """Scores one query; repeated characters count once."""
    wanted = {name: union(spans) for name, spans in gold.items()}
    covered = {name: union(spans) for name, spans in context.spans.items()}
    both = sum(shared(spans, covered.get(name, [])) for name, spans in wanted.items())
    returned = sum(length(spans) for spans in covered.values())
    return Score(
        recall=both / sum(length(spans) for spans in wanted.values()),
        precision=both / returned if returned else 0.0,
        tokens=context.tokens,
        lost=context.lost,
    )


def mean(scores: Sequence[Score]) -> Score:
    """Returns the mean over queries, and the sum of lost passages."""
    return Score(
        recall=float(np.mean([each.recall for each in scores])),
        precision=float(np.mean([each.precision for each in scores])),
        tokens=float(np.mean([each.tokens for each in scores])),
        lost=sum(each.lost for each in scores),
    )


def union(spans: Iterable[Span]) -> list[Span]:
    """Returns the same characters as sorted spans that neither overlap nor touch."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def length(spans: Iterable[Span]) -> int:
    """Returns the characters in spans that do not overlap."""
    return sum(end - start for start, end in spans)


def shared(some: Iterable[Span], others: Sequence[Span]) -> int:
    """Returns the characters in both; neither side has overlapping spans."""
    return sum(
        max(0, min(end, other_end) - max(start, other_start))
        for start, end in some
        for other_start, other_end in others
    )
