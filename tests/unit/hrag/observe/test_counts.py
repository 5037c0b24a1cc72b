"""The gauge and the counter that each call changes are exported like those of prometheus_client."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

# This import disables the lines `_created`, which prometheus_client would write for its counter.
from hrag.observe import metrics  # noqa: F401
from hrag.observe.counts import CountGauge, LabelledCounter


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_the_metrics_page_equals_the_page_of_the_library(registry: CollectorRegistry) -> None:
    gauge = CountGauge("running", "Running calls.", registry)
    counter = LabelledCounter("calls_total", "Calls.", ("method", "code"), registry)
    library = CollectorRegistry()
    library_gauge = Gauge("running", "Running calls.", registry=library)
    library_counter = Counter("calls_total", "Calls.", ["method", "code"], registry=library)
    for change in (1, 1, -1):
        gauge.change(change)
        library_gauge.inc(change)
    for code in ("OK", "CANCELLED", "OK"):
        counter.increment("Search", code)
        library_counter.labels("Search", code).inc()
    assert generate_latest(registry) == generate_latest(library)


def test_a_counter_without_increments_has_no_series(registry: CollectorRegistry) -> None:
    LabelledCounter("calls_total", "Calls.", ("method",), registry)
    assert registry.get_sample_value("calls_total", {"method": "Search"}) is None


def test_no_change_is_lost_when_several_threads_count(registry: CollectorRegistry) -> None:
    gauge = CountGauge("running", "Running calls.", registry)
    counter = LabelledCounter("calls_total", "Calls.", ("method",), registry)

    def count() -> None:
        for _ in range(5_000):
            gauge.change(1)
            counter.increment("Search")

    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            threads.submit(count)
    assert registry.get_sample_value("running") == 20_000
    assert registry.get_sample_value("calls_total", {"method": "Search"}) == 20_000
