"""Adds up the times of a search's stages."""

from collections.abc import Iterable, Mapping

from hrag.observe.tracing import Stage
from hrag.values.quick_creation import created
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
    us = {stage: round(stage_s * 1e6) for stage, stage_s in seconds.items()}
    return created(
        Timings,
        embed_us=us["embed"],
        search_us=us["search"],
        climb_us=us["climb"],
        fetch_us=us["fetch"],
        total_us=round(total_s * 1e6),
        filter_us=us.get("filter", 0),
        rerank_us=us.get("rerank", 0),
    )
