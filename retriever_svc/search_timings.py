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
    return created(
        Timings,
        {
            "embed_us": round(seconds["embed"] * 1e6),
            "search_us": round(seconds["search"] * 1e6),
            "climb_us": round(seconds["climb"] * 1e6),
            "fetch_us": round(seconds["fetch"] * 1e6),
            "total_us": round(total_s * 1e6),
            "filter_us": round(seconds["filter"] * 1e6) if "filter" in seconds else 0,
            "rerank_us": round(seconds["rerank"] * 1e6) if "rerank" in seconds else 0,
        },
    )
