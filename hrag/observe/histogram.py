"""A Prometheus histogram that records several observations under one lock.

With the histogram of prometheus_client, an observation takes two locks and a dozen function calls.
A search makes five observations, which took 5 % of the time of the search in the service.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString


class BatchHistogram:
    """A thread-safe histogram with one label. It registers itself with `registry`."""

    def __init__(
        self,
        name: str,
        meaning: str,
        bounds: Sequence[float],
        label: str,
        registry: CollectorRegistry,
    ) -> None:
        """Creates the histogram.

        `meaning` is the help text. `bounds` are the upper bounds of the buckets, ascending,
        without infinity.
        """
        self._name = name
        self._meaning = meaning
        self._bounds = bounds
        self._label = label
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        registry.register(self)

    def observe(self, observations: Iterable[tuple[str, float]]) -> None:
        """Records observations. An observation is a pair: value of the label, observed value."""
        with self._lock:
            for label, value in observations:
                counts = self._counts.get(label)
                if counts is None:
                    counts = self._counts[label] = [0] * (len(self._bounds) + 1)
                    self._sums[label] = 0.0
                counts[bisect_left(self._bounds, value)] += 1
                self._sums[label] += value

    def collect(self) -> list[HistogramMetricFamily]:
        """Returns the histogram of all observations so far. prometheus_client calls it."""
        family = HistogramMetricFamily(self._name, self._meaning, labels=[self._label])
        ends = [*map(floatToGoString, self._bounds), "+Inf"]
        with self._lock:
            series = [(label, list(self._counts[label]), self._sums[label]) for label in self._sums]
        for label, counts, total in series:
            buckets = list(zip(ends, accumulate(counts), strict=True))
            family.add_metric([label], buckets, total)
        return [family]
