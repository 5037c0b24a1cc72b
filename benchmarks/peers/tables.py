"""Formats the figures of a comparison as Markdown tables. The functions are pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.peers.driver import BUDGETS, CANDIDATES, LIMIT, Results
from benchmarks.peers.registry import PEERS
from benchmarks.peers.vectors import DIMENSION
from benchmarks.table import head, row

# A float32 has 4 bytes.
_NUMBER_BYTES = 4
_MB = 1e6


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Latencies of searches, in milliseconds."""

    p50: float
    p99: float
    count: int


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """Returns the percentiles of `seconds`, which are the times of at least one search."""
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return Percentiles(float(p50), float(p99), len(seconds))


def median(indexed: Sequence[dict[str, Any]], name: str) -> float:
    """Returns the median of one figure over the rounds of indexing."""
    return float(np.median([costs[name] for costs in indexed]))


def times(results: Results, text_bytes: int) -> Iterator[str]:
    """Yields the table of indexing, disk, memory and searches, with a row for each peer."""
    searched = [f"{count} candidates, p50, p99" for count in CANDIDATES]
    yield from head(
        "peer", "leaves", "index", "save", "stored", "less vectors", "memory", *searched
    )
    for name, indexed in results.indexed.items():
        if name in results.searched:
            took = [percentiles(results.searched[name][count]) for count in CANDIDATES]
            yield row(PEERS[name].title, *_costs(indexed, text_bytes), *map(_latencies, took))


def recalls(results: Results, candidates: int, budget: int) -> Iterator[str]:
    """Yields the table of recall and precision: a row for each peer, a column for each corpus."""
    corpora = list(dict.fromkeys(corpus for scored in results.recall.values() for corpus in scored))
    yield from head("peer", *corpora)
    for name, scored in results.recall.items():
        cells = [_recall_cell(scored.get(corpus, []), candidates, budget) for corpus in corpora]
        yield row(PEERS[name].title, *cells)


def all_tables(results: Results, text_bytes: int) -> Iterator[str]:
    """Yields all tables of a run."""
    if results.searched:
        yield f"Times; the first {LIMIT} passages of each search\n"
        yield from times(results, text_bytes)
    for candidates in reversed(CANDIDATES):
        for budget in BUDGETS if results.recall else ():
            yield f"\nRecall of gold in {budget:,} tokens, precision; {candidates} candidates\n"
            yield from recalls(results, candidates, budget)
    for name, reason in results.skipped.items():
        yield f"\nNot measured: {PEERS[name].title}: {reason}"


def _costs(indexed: Sequence[dict[str, Any]], text_bytes: int) -> list[str]:
    leaves, stored = median(indexed, "leaves"), median(indexed, "stored_bytes")
    vectors = leaves * DIMENSION * _NUMBER_BYTES
    return [
        f"{leaves:,.0f}",
        f"{median(indexed, 'index_s'):.2f} s",
        f"{median(indexed, 'save_s'):.2f} s",
        f"{stored / text_bytes:.2f} x",
        f"{(stored - vectors) / text_bytes:.2f} x",
        f"{median(indexed, 'memory_bytes') / _MB:.0f} MB",
    ]


def _latencies(took: Percentiles) -> str:
    return f"{took.p50:.2f}, {took.p99:.2f} ms"


def _recall_cell(scores: Sequence[dict[str, Any]], candidates: int, budget: int) -> str:
    for score in scores:
        if (score["candidates"], score["budget"]) == (candidates, budget):
            short = "" if score["tokens"] > 0.9 * budget else f" ({score['tokens']:,.0f} tokens)"
            return f"{score['recall']:.3f}, {score['precision']:.3f}{short}"
    return "none"
