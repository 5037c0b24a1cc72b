"""Formats the figures of the comparison by size as Markdown tables."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.scale.comparison import CALLERS, Figures, Results, Searched, Size
from benchmarks.peers.scale.effort import ENOUGH_RECALL
from benchmarks.peers.scale.peer import CANDIDATES, LIMIT, SCALE_PEERS
from benchmarks.peers.tables import Percentiles, percentiles
from benchmarks.table import head, row

_MB = 1e6
_COSTS = ("index", "save", "stored", "memory", "peak", "ef", "recall@10")
_NONE = "none"
# Smaller values are shown as `none`.
_MIN_SHOWN = 0.001


@dataclass(frozen=True, slots=True)
class Rate:
    """The performance for a number of callers: latencies, and searches a second."""

    latency: Percentiles
    per_second: float


def rate(searched: Searched) -> Rate:
    """Returns the performance over all rounds."""
    took_s = searched.took_s
    return Rate(percentiles(took_s), len(took_s) / searched.elapsed_s)


def all_tables(results: Results) -> Iterator[str]:
    """Yields the tables of each size."""
    for size in results.sizes:
        yield f"\n{size.leaves:,} leaves; {CANDIDATES} candidates, {LIMIT} passages\n"
        yield from table(size)


def table(size: Size) -> Iterator[str]:
    """Yields the table of one size: a row for each peer, and the reasons for missing figures."""
    rates = [
        name
        for callers in CALLERS
        for name in (f"{_callers(callers)}: p50, p99", "searches a second")
    ]
    yield from head("peer", *_COSTS, *rates)
    for name, figures in size.peers.items():
        costs = _costs(figures)
        yield row(SCALE_PEERS[name].title, *costs, *_rates(figures))
    for name, figures in size.peers.items():
        if figures.failed is not None:
            yield f"\n{SCALE_PEERS[name].title} did not reach this size: {figures.failed}"


def _callers(count: int) -> str:
    return "1 caller" if count == 1 else f"{count} callers"


def _costs(figures: Figures) -> list[str]:
    costs = figures.costs
    if "recall" in costs:
        ef, recall = costs["ef"] or "own", costs["recall"]
        effort = [f"{ef}", f"{recall:.3f}" + ("" if recall >= ENOUGH_RECALL else " (too low)")]
    else:
        effort = [_NONE, _NONE]
    return [
        _cell(costs, "index_s", 1, " s"),
        _cell(costs, "save_s", 1, " s"),
        _cell(costs, "stored_bytes", _MB, " MB"),
        _cell(costs, "memory_bytes", _MB, " MB"),
        _cell(costs, "peak_bytes", _MB, " MB"),
        *effort,
    ]


def _cell(costs: dict[str, float], name: str, unit: float, symbol: str) -> str:
    value = costs.get(name, 0) / unit
    if value < _MIN_SHOWN:  # It was not measured, or there was nothing to do.
        return _NONE
    return f"{value:,.0f}{symbol}" if value >= 100 else f"{value:.2g}{symbol}"


def _rates(figures: Figures) -> Iterator[str]:
    for callers in CALLERS:
        if callers in figures.searched:
            measured = rate(figures.searched[callers])
            yield f"{measured.latency.p50:.2f}, {measured.latency.p99:.2f} ms"
            yield f"{measured.per_second:,.0f}"
        else:
            yield from (_NONE, _NONE)
