"""A Prometheus gauge and a counter that each call of a service can afford to change.

A change of an instrument of prometheus_client takes several function calls and a lock whose methods
are Python functions. Here a change takes one function call and a simple lock. The samples are
created when Prometheus scrapes.
"""

import threading

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


class CountGauge:
    """A thread-safe gauge of things that begin and end. It registers itself with `registry`."""

    def __init__(self, name: str, meaning: str, registry: CollectorRegistry) -> None:
        """Creates the gauge with the value 0. `meaning` is the help text."""
        self._name = name
        self._meaning = meaning
        self._lock = threading.Lock()
        self._count = 0
        registry.register(self)

    def change(self, by: int) -> None:
        """Adds `by` to the count; `by` is 1 for a beginning and -1 for an end."""
        with self._lock:
            self._count += by

    def collect(self) -> list[GaugeMetricFamily]:
        """Returns the current count. prometheus_client calls it."""
        return [GaugeMetricFamily(self._name, self._meaning, self._count)]


class LabelledCounter:
    """A thread-safe counter with several labels. It registers itself with `registry`."""

    def __init__(
        self, name: str, meaning: str, labels: tuple[str, ...], registry: CollectorRegistry
    ) -> None:
        """Creates a counter without series. `meaning` is the help text."""
        self._name = name
        self._meaning = meaning
        self._labels = labels
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {}
        registry.register(self)

    def increment(self, *values: str) -> None:
        """Adds one to the series whose labels have these values."""
        with self._lock:
            self._counts[values] = self._counts.get(values, 0) + 1

    def collect(self) -> list[CounterMetricFamily]:
        """Returns the counts of all series. prometheus_client calls it."""
        family = CounterMetricFamily(self._name, self._meaning, labels=self._labels)
        with self._lock:
            counts = list(self._counts.items())
        for values, count in counts:
            family.add_metric(values, count)
        return [family]
