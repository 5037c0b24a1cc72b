"""BatchHistogram records several observations at once."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from hrag.observe.histogram import BatchHistogram

BOUNDS = (0.1, 1.0, 2.5)
VALUES = (0.0, 0.1, 0.11, 1.0, 2.0, 2.5, 3.0, 1e9)


@pytest.fixture
def registry():
    return CollectorRegistry()


def test_the_metrics_page_equals_the_page_of_a_library_histogram(registry):
    """Bounds, cumulative counts and sums of two label values equal those of prometheus_client."""
    histogram = BatchHistogram("seconds", "Duration.", BOUNDS, "stage", registry)
    library_registry = CollectorRegistry()
    library_histogram = Histogram(
        "seconds", "Duration.", ["stage"], registry=library_registry, buckets=BOUNDS
    )
    histogram.observe(("a", value) for value in VALUES)
    histogram.observe([("b", 0.5), ("a", 7.0)])
    for label, value in [*(("a", value) for value in VALUES), ("b", 0.5), ("a", 7.0)]:
        library_histogram.labels(label).observe(value)
    # Unless hrag.observe.metrics is imported, the library also writes `_created` lines; skip them.
    page = generate_latest(library_registry).decode()
    lines = [line for line in page.splitlines() if "_created" not in line]
    assert generate_latest(registry).decode().splitlines() == lines


def test_a_histogram_without_observations_has_no_series(registry):
    BatchHistogram("seconds", "Duration.", BOUNDS, "stage", registry)
    assert registry.get_sample_value("seconds_count", {"stage": "a"}) is None


def test_no_observation_is_lost_when_several_threads_record(registry):
    histogram = BatchHistogram("seconds", "Duration.", BOUNDS, "stage", registry)
    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            threads.submit(
                lambda: [histogram.observe([("a", 0.5), ("b", 2.0)]) for _ in range(5_000)]
            )
    assert registry.get_sample_value("seconds_count", {"stage": "a"}) == 20_000
    assert math.isclose(registry.get_sample_value("seconds_sum", {"stage": "b"}), 40_000)
