"""Adds up the times of a search's stages."""

from collections.abc import Iterable, Mapping

from hrag.observe.tracing import Stage
from hrag.values.search import Timings


def stage_seconds(stages: Iterable[Stage]) -> dict[str, float]:
    """Returns the duration of each stage of a search, in seconds.

    If a stage ran several times, its durations are added up.
    """
    seconds: dict[str, float] = {}
    for stage, began, ended in stages:
        seconds[stage] = seconds.get(stage, 0.0) + ended - began
    return seconds


def timings(seconds: Mapping[str, float], total_s: float) -> Timings:
    """Returns the durations in `seconds` and `total_s`, converted into whole microseconds.

    `seconds` has the duration of each stage by name; `total_s` is the duration of the search.
    """
    return Timings(
        embed_us=_us(seconds["embed"]),
        search_us=_us(seconds["search"]),
        climb_us=_us(seconds["climb"]),
        fetch_us=_us(seconds["fetch"]),
        total_us=_us(total_s),
        filter_us=_us(seconds.get("filter", 0.0)),
        rerank_us=_us(seconds.get("rerank", 0.0)),
    )


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
