"""What the climb to larger passages costs: small-to-big beside standard search.

The same 100,000 leaves and the same vectors as queries, in process and through the real
services; search, climb and fetch as the service itself times them. The bar is on the
difference of the two p99s. The p99 of each query's own difference is printed too. Every
hiccup of the machine in either search is part of that one, so the same figure for a second,
equal standard search stands beside it: what it says of a difference that is none.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import at_most, interleaved, tell
from hrag.cli.running import Services, free_addresses
from hrag.client import Client
from hrag.deadline import NEVER
from hrag.types import SearchMode, SearchQuery

LEAVES = 100_000
LEAVES_EACH = 100
DIMENSION = 64  # The climb never sees a vector; few dimensions build the index soonest.
SEED = 21
CANDIDATES = 100
QUERIES = 2000
WARM_UP = 200
REPETITIONS = 3
MOST_MS = 0.1
# Those compared come first and last, so that each goes first as often as the other: who
# goes first finds the index's and the texts' pages cold.
MEASURED = (SearchMode.STANDARD, SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)


@pytest.fixture(scope="module")
def filled():
    """The folder of a store with one segment over all leaves, and queries."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        vectors = corpus.fill(folder, LEAVES, LEAVES_EACH, DIMENSION, SEED, sealed=True)
        yield folder, corpus.queries_near(vectors, QUERIES, SEED + 1)


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
    with Services(folder, *addresses, logs=tmp_path, settings=settings) as services:
        services.wait_until_serving(timeout_s=60)
        with Client(*addresses) as connected:
            yield connected


def service_ms(result):
    """Search, climb and fetch of one search."""
    took = result.timings
    return (took.search_us + took.climb_us + took.fetch_us) / 1e3


def repeated(measures):
    """`float64[REPETITIONS, QUERIES, measures]`, after a warm-up."""
    interleaved(measures, WARM_UP)
    return np.stack([interleaved(measures, QUERIES) for _ in range(REPETITIONS)])


def verdict(figures, what):
    """Tells every figure, a median over repetitions; returns whether the bar is kept.

    `figures` is in ms, in the order of MEASURED.
    """
    at = np.percentile(figures, [50, 99], axis=1)
    for name, place in (("standard", 0), ("small-to-big", -1)):
        tell_percentiles(f"{what}, {name}", at[:, :, place])
    own = np.percentile(figures[:, :, 1:] - figures[:, :, :1], [50, 99], axis=1)
    tell_percentiles(f"{what}, each query's small-to-big - standard", own[:, :, -1])
    tell_percentiles(f"{what}, each query's standard - standard", own[:, :, 0])
    difference = float(np.median(at[1, :, -1] - at[1, :, 0]))
    return at_most(MOST_MS, difference, f"{what}, small-to-big's p99 - standard's p99", "ms")


def tell_percentiles(what, at):
    """`at` is `float64[2, repetitions]` in ms: p50 and p99."""
    p50, p99 = np.median(at, axis=1)
    tell(f"{what}, p50, p99", f"{p50:.3f}, {p99:.3f} ms")


def test_small_to_big_costs_little_more_than_standard_search(filled, search, capsys):
    _, queries = filled

    def measure(mode):
        def one(number):
            query = SearchQuery(
                corpus.TENANT, queries[number], corpus.COLLECTION, mode, candidates=CANDIDATES
            )
            result = search(query, NEVER)
            assert len(result.passages) == query.limit
            return service_ms(result)

        return one

    figures = repeated([measure(mode) for mode in MEASURED])
    with capsys.disabled():
        assert verdict(figures, f"in process, {LEAVES:,} leaves, k = {CANDIDATES}")


def test_small_to_big_costs_little_more_than_standard_search_through_grpc(filled, client, capsys):
    """The bar is on the service's own timings; the client's round trips are printed beside."""
    _, queries = filled
    vectors = queries.tolist()
    round_trips = {mode: [] for mode in SearchMode}

    def measure(mode):
        def one(number):
            began = time.perf_counter()
            result = client.search(
                corpus.TENANT,
                vectors[number],
                collection=corpus.COLLECTION,
                mode=mode,
                candidates=CANDIDATES,
            )
            round_trips[mode].append((time.perf_counter() - began) * 1e3)
            return service_ms(result)

        return one

    figures = repeated([measure(mode) for mode in MEASURED])
    with capsys.disabled():
        for mode, took in round_trips.items():
            at = np.percentile(took, [50, 99])[:, None]
            tell_percentiles(f"through gRPC, the client's round trip, {mode.value}", at)
        assert verdict(figures, f"through gRPC, {LEAVES:,} leaves, k = {CANDIDATES}")
