"""Measures the cost of the climb to larger passages: small-to-big minus standard search.

Both modes search the same 100,000 leaves with the same query vectors, in process and through both
services. The figures are the times of search, climb and fetch, as the service measures them. The
target is on the difference of the two p99s, for 100 candidates and the default limit of 5 passages.
Queries have a vector and no text, and STANDARD has no neighbour bonus, so both modes do the same
work to rank leaves.

The difference is also computed for each query, and its p99 is reported. This p99 includes every
delay of the machine in either search. As a control, the same figure is reported for two equal
standard searches.

Larger limits cost more, because a passage has four times as much text as a leaf. Also, if 100
leaves have fewer ancestors than the limit, the search continues with more leaves. If limit 100
misses its target, this is reported and does not fail the run.
"""

import time
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import interleaved, measured
from benchmarks.sealed_store import sealed_store
from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.client import Client
from hrag.types import DEFAULT_LIMIT, SearchMode
from hrag.values.deadline import NEVER

LEAVES = 100_000
LEAVES_EACH = 100
# The climb reads no vectors, so few dimensions are enough. An index of few is built fastest.
DIMENSION = 64
SEED = 21
CANDIDATES = 100
QUERIES = 2000
WARM_UP = 200
REPETITIONS = 3
MAX_DIFFERENCE_MS = 0.1
# The targets in milliseconds by limit. The limit 20 has no target.
LARGER_LIMITS = {20: None, 100: 1.0}
COMPARED = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)
EQUAL = (SearchMode.STANDARD, SearchMode.STANDARD)


@pytest.fixture(scope="module")
def filled():
    """The folder of a store with one segment of all leaves, and the query vectors."""
    with sealed_store(LEAVES, LEAVES_EACH, DIMENSION, SEED, QUERIES) as store:
        yield store


@pytest.fixture
def search(filled):
    folder, _ = filled
    with corpus.reading(folder) as reader:
        yield corpus.search_over(reader, DIMENSION)


@pytest.fixture
def client(filled, tmp_path):
    folder, _ = filled
    addresses = free_addresses(2)
    settings = {"HRAG_EMBEDDER": f"hash:{DIMENSION}"}
    with ServiceProcesses(folder, *addresses, logs=tmp_path, settings=settings) as services:
        services.wait_until_serving(timeout_s=60)
        with Client(*addresses) as connected:
            yield connected


def service_ms(result):
    """Returns the sum of the milliseconds of search, climb and fetch."""
    took = result.timings
    return (took.search_us + took.climb_us + took.fetch_us) / 1e3


def repeated(measure, modes, repetitions=REPETITIONS):
    """Measures all modes repeatedly after a warm-up: `float64[repetitions, QUERIES, modes]`.

    `measure` is a function from a mode to its measure.
    """
    measures = [measure(mode) for mode in modes]
    interleaved(measures, WARM_UP)
    return np.stack([interleaved(measures, QUERIES) for _ in range(repetitions)])


def difference_of_p99s(samples):
    """Returns the p99 of small-to-big minus that of standard: the median over repetitions."""

    def statistic(queries):
        return np.median(np.diff(np.percentile(queries, 99, axis=0)))

    return measured(samples.swapaxes(0, 1), statistic)


def record_modes(report, key, measure, description):
    """Records all figures of both modes. The difference of their p99s has the target."""
    compared, equal = repeated(measure, COMPARED), repeated(measure, EQUAL)
    description = f"{description}, {LEAVES:,} leaves, k = {CANDIDATES}"
    title = f"Search, climb and fetch {description}, as the service times them"
    for column, mode in enumerate(COMPARED):
        report.draw_percentiles(key.replace(".", "_"), mode, compared[:, :, column], title)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    for name, title, took in (
        ("standard", "standard", compared[:, :, 0]),
        ("small_to_big", "small-to-big", compared[:, :, 1]),
        ("paired_difference", "small-to-big - standard of each query", np.diff(compared)),
        ("control_difference", "standard - standard of each query (control)", np.diff(equal)),
    ):
        report.percentiles(f"{key}.{name}", took.ravel(), f"{description}, {title}")
    difference = difference_of_p99s(compared)
    description = f"{description}, small-to-big's p99 - standard's p99"
    report.at_most(f"{key}.p99_difference", difference, description, "ms", MAX_DIFFERENCE_MS)


def in_process(search, queries, limit):
    """Returns a function from a mode to its measure, for searches in process."""

    def measure(mode):
        def search_ms(number):
            query = corpus.dense_query(queries[number], mode)
            result = search(replace(query, limit=limit, candidates=CANDIDATES), NEVER)
            assert len(result.passages) == limit
            return service_ms(result)

        return search_ms

    return measure


def test_small_to_big_costs_little_more_than_standard_search(filled, search, report):
    _, queries = filled
    record_modes(
        report, "climb.in_process", in_process(search, queries, DEFAULT_LIMIT), "in process"
    )
    assert report.missed == []


@pytest.mark.parametrize("limit", LARGER_LIMITS)
def test_cost_of_larger_limits(filled, search, limit, report):
    _, queries = filled
    samples = repeated(in_process(search, queries, limit), COMPARED, repetitions=1)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION, limit=limit)
    description = f"in process, limit {limit}, small-to-big's p99 - standard's p99"
    key = f"climb.limit_{limit}.p99_difference"
    difference, target = difference_of_p99s(samples), LARGER_LIMITS[limit]
    if target is None:
        report.record(key, difference, description, "ms", "lower")
    else:
        report.at_most(key, difference, description, "ms", target)


def test_small_to_big_costs_little_more_than_standard_search_through_grpc(filled, client, report):
    """The target is for the times that the service measures; the client's are only reported."""
    vectors = filled[1].tolist()
    round_trips = {mode: [] for mode in COMPARED}

    def measure(mode):
        def search_ms(number):
            began = time.perf_counter()
            result = client.search(
                corpus.TENANT,
                vectors[number],
                collection=corpus.COLLECTION,
                mode=mode,
                candidates=CANDIDATES,
                neighbour_bonus=0.0,
            )
            round_trips[mode].append((time.perf_counter() - began) * 1e3)
            assert len(result.passages) == DEFAULT_LIMIT
            return service_ms(result)

        return search_ms

    record_modes(report, "climb.grpc", measure, "through gRPC")
    title = f"Round trips of one client through gRPC, {LEAVES:,} leaves, k = {CANDIDATES}"
    for mode, took in round_trips.items():
        report.draw_percentiles("climb_client", mode, np.array(took), title)
        description = f"through gRPC, the client's round trip, {mode}"
        report.percentiles(f"climb.grpc.client.{mode.lower()}", np.array(took), description)
    assert report.missed == []
