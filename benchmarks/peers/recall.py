"""Computes recall and precision of gold spans, with the same token budget for every peer.

The functions are pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.peer import FoundPassage
from benchmarks.peers.spans import Span, find_span
from hrag.text import tokens

Spans = Mapping[str, Sequence[Span]]
"""Spans by document id."""


@dataclass(frozen=True, slots=True)
class Context:
    """The passages that fit a budget of tokens.

    `lost` is the count of passages whose text is not in their document. Their tokens are part of
    `tokens`, but they cover no text.
    """

    spans: Spans
    tokens: int
    lost: int


@dataclass(frozen=True, slots=True)
class Score:
    """Recall and precision, as shares of characters.

    Recall is the share of the gold that is covered. Precision is the share of the covered text that
    is gold.
    """

    recall: float
    precision: float
    tokens: float
    lost: int


def within_budget(
    passages: Iterable[FoundPassage], documents: Mapping[str, str], budget: int
) -> Context:
    """Returns the passages in order until their tokens fill the budget.

    The last one is truncated.
    """
    spans: dict[str, list[Span]] = {}
    used = lost = 0
    for passage in passages:
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
    """Returns the text up to `limit` tokens, in whole code points, and the count of its tokens."""
    encoded = _encoded(text)
    if len(encoded) <= limit:
        return text, len(encoded)
    end = int(tokens.byte_ends(encoded[:limit])[-1])
    return text.encode()[:end].decode("utf-8", "ignore"), limit


@lru_cache(maxsize=10_000)
def _encoded(text: str) -> NDArray[np.uint32]:
    """Returns the tokens of a text.

    They are cached, because many queries return the same passages.
    """
    return tokens.encode(text)


def score(context: Context, gold: Spans) -> Score:
    """Scores one query. A character that occurs in several passages counts once."""
    gold_spans = {name: union(spans) for name, spans in gold.items()}
    covered = {name: union(spans) for name, spans in context.spans.items()}
    common = sum(shared(spans, covered.get(name, [])) for name, spans in gold_spans.items())
    covered_length = sum(length(spans) for spans in covered.values())
    return Score(
        recall=common / sum(length(spans) for spans in gold_spans.values()),
        precision=common / covered_length if covered_length else 0.0,
        tokens=context.tokens,
        lost=context.lost,
    )


def mean(scores: Sequence[Score]) -> Score:
    """Returns the mean score of all queries, and the sum of their lost passages."""
    return Score(
        recall=float(np.mean([one_score.recall for one_score in scores])),
        precision=float(np.mean([one_score.precision for one_score in scores])),
        tokens=float(np.mean([one_score.tokens for one_score in scores])),
        lost=sum(one_score.lost for one_score in scores),
    )


def union(spans: Iterable[Span]) -> list[Span]:
    """Returns sorted spans of the same characters; overlapping and touching ones are joined."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def length(spans: Iterable[Span]) -> int:
    """Returns the number of characters in spans that do not overlap."""
    return sum(end - start for start, end in spans)


def shared(spans: Iterable[Span], other_spans: Sequence[Span]) -> int:
    """Returns the number of characters in both lists of spans. Spans of one list do not overlap."""
    return sum(
        max(0, min(end, other_end) - max(start, other_start))
        for start, end in spans
        for other_start, other_end in other_spans
    )
