"""Small-to-big beside standard search: what the climb to larger passages costs.

Both kinds of search take the same questions in turn, alternating which goes first, so
that whatever else the machine does falls on both alike. The questions' vectors are in
the retriever's cache by then: the embedder's time is no part of either.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hrag.types import SearchMode

if TYPE_CHECKING:
    from hrag.client import Client

_BOTH = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)


@dataclass(frozen=True, slots=True)
class Sample:
    """One search: search, climb and fetch in the service, and all of it for the client."""

    service_us: float
    round_trip_us: float


Samples = dict[SearchMode, list[Sample]]


def compare(client: "Client", tenant_id: str, queries: Sequence[str], searches: int) -> Samples:
    """Searches so often in each mode, after one unmeasured round that warms the cache."""
    samples: Samples = {mode: [] for mode in _BOTH}
    for query in queries:
        for mode in _BOTH:
            _search(client, tenant_id, query, mode)
    for number in range(searches):
        query = queries[number % len(queries)]
        for mode in _BOTH if number % 2 else reversed(_BOTH):
            samples[mode].append(_search(client, tenant_id, query, mode))
    return samples


def _search(client: "Client", tenant_id: str, query: str, mode: SearchMode) -> Sample:
    began = time.perf_counter()
    took = client.search(tenant_id, query, mode=mode).timings
    round_trip_us = (time.perf_counter() - began) * 1e6
    return Sample(took.search_us + took.climb_us + took.fetch_us, round_trip_us)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` of 100 do not exceed; `values` not empty."""
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(rank, 1) - 1]
