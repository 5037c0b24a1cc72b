"""Builds a search's result from the engine's result and the timings."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hrag.engine import Found
from hrag.observe.tracing import Stage
from hrag.values.search import Retrieval, SearchPlan, SearchQuery, SearchResult, Timings


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """A search without its passages.

    `engine_result` is the engine's last result, and `sequence` is the sequence of its snapshot.
    `exhausted` and `stages` describe the whole search. `fallback` says why `retrieval` has fewer
    sources than the query asks for; otherwise it is empty. `reranked` and `rerank_failure` mean
    the same as in SearchResult.
    """

    engine_result: Found[Any]
    exhausted: bool
    stages: tuple[Stage, ...]
    matched_at_level: int
    returned_at_level: int
    sequence: int
    retrieval: Retrieval
    fallback: str
    reranked: bool = False
    rerank_failure: str = ""


def stage_seconds(stages: Iterable[Stage]) -> dict[str, float]:
    """Returns the time of each stage in seconds. Times of a repeated stage are added up."""
    seconds: dict[str, float] = {}
    for stage, began, ended in stages:
        seconds[stage] = seconds.get(stage, 0.0) + ended - began
    return seconds


def result_of(
    query: SearchQuery, outcome: SearchOutcome, seconds: dict[str, float], total_s: float
) -> SearchResult:
    """Returns the result without its passages, because these may be encoded already."""
    engine_result = outcome.engine_result
    return SearchResult(
        passages=(),
        mode=query.mode_or_default,
        matched_at_level=outcome.matched_at_level,
        returned_at_level=outcome.returned_at_level,
        candidates_considered=engine_result.considered,
        exhausted=outcome.exhausted,
        sequence=outcome.sequence,
        timings=Timings(
            embed_us=_us(seconds["embed"]),
            search_us=_us(seconds["search"]),
            climb_us=_us(seconds["climb"]),
            fetch_us=_us(seconds["fetch"]),
            total_us=_us(total_s),
            filter_us=_us(seconds.get("filter", 0.0)),
            rerank_us=_us(seconds.get("rerank", 0.0)),
        ),
        plan=SearchPlan.SCAN if engine_result.exact else SearchPlan.INDEX,
        eligible_leaves=engine_result.eligible_leaves,
        sections=engine_result.sections,
        retrieval=outcome.retrieval,
        fallback=outcome.fallback,
        reranked=outcome.reranked,
        rerank_failure=outcome.rerank_failure,
    )


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
