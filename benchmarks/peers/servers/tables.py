"""Formats the figures of the comparison of servers as a Markdown table. The functions are pure."""

import statistics
from collections.abc import Iterator

from benchmarks.peers.scale.effort import ENOUGH_RECALL
from benchmarks.peers.servers.comparison import Figures, Results
from benchmarks.peers.servers.server import CALLERS, DIMENSION, SERVERS
from benchmarks.table import head, row

_MB = 1e6
_COLUMNS = (
    *("server", "graph", "ef", "recall@10", "searches a second", "p50, p99"),
    *("server's processor time", "generator's", "memory", "index"),
)


def table(results: Results) -> Iterator[str]:
    """Yields the table: a row for each server, and the reasons for missing servers."""
    yield f"\n{results.leaves:,} leaves, {DIMENSION} dimensions, {CALLERS} callers\n"
    yield from head(*_COLUMNS)
    for name, figures in results.servers.items():
        if figures.rounds:
            yield row(SERVERS[name].title, *_cells(figures))
    for name, figures in results.servers.items():
        if figures.failed is not None:
            yield f"\nNot measured: {SERVERS[name].title}: {figures.failed}"


def median(figures: Figures, name: str) -> float:
    """Returns the median of one figure over the rounds."""
    return statistics.median(measured[name] for measured in figures.rounds)


def _cells(figures: Figures) -> Iterator[str]:
    costs = figures.costs
    yield costs["graph"]
    yield str(costs["ef"] or "own")
    yield f"{costs['recall']:.3f}" + ("" if costs["recall"] >= ENOUGH_RECALL else " (too low)")
    yield f"{median(figures, 'per_second'):,.0f}"
    yield f"{median(figures, 'p50_ms'):.2f}, {median(figures, 'p99_ms'):.2f} ms"
    yield f"{median(figures, 'server_ms'):.3f} ms"
    yield f"{median(figures, 'sender_ms'):.3f} ms"
    yield f"{median(figures, 'memory_bytes') / _MB:,.0f} MB"
    yield f"{costs['index_s']:,.1f} s"
