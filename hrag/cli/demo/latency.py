"""Compares the latency of small-to-big search with the latency of standard search.

The difference is the cost of returning larger passages. Both modes run the same questions, in
turn, and each mode goes first in every second round, so that other load on the machine affects
both alike. The retriever has cached the questions' vectors, so no time includes embedding.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hrag.values.search import SearchMode

if TYPE_CHECKING:
    from hrag.client import Client

_MODES = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)


@dataclass(frozen=True, slots=True)
class LatencySample:
    """The latency of one search, in microseconds.

    `service_us` is the time of the search, climb and fetch stages in the service;
    `round_trip_us` is the time that the client measured.
    """

    service_us: float
    round_trip_us: float


Samples = dict[SearchMode, list[LatencySample]]


def compare_modes(
    client: "Client", tenant_id: str, queries: Sequence[str], searches: int
) -> Samples:
    """Returns `searches` samples of each mode.

    A first round of all queries fills the cache of vectors and is not measured.
    """
    samples: Samples = {mode: [] for mode in _MODES}
    for query in queries:
        for mode in _MODES:
            _search(client, tenant_id, query, mode)
    for number in range(searches):
        query = queries[number % len(queries)]
        for mode in _MODES if number % 2 else reversed(_MODES):
            samples[mode].append(_search(client, tenant_id, query, mode))
    return samples


def _search(client: "Client", tenant_id: str, query: str, mode: SearchMode) -> LatencySample:
    started = time.perf_counter()
    timings = client.search(tenant_id, query, mode=mode).timings
    round_trip_us = (time.perf_counter() - started) * 1e6
    service_us = timings.search_us + timings.climb_us + timings.fetch_us
    return LatencySample(service_us, round_trip_us)


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns the nearest-rank percentile of `values`, which must not be empty."""
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(rank, 1) - 1]
