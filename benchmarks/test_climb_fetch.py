"""What the climb to larger passages costs: small-to-big beside standard search.

The same 100,000 leaves and the same vectors as queries, in process and through the real
services; search, climb and fetch as the service itself times them. The bar is on the
difference of the two p99s. The p99 of the difference of each query is printed too: it is
the harsher number, because every hiccup of the machine in either search is part of it.
"""

import statistics
import time
from tempfile import TemporaryDirectory
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from benchmarks import corpus
from benchmarks.report import at_most, interleaved, tell
from hrag.cli.running import Services, free_addresses
from hrag.client import Client
from hrag.deadline import NEVER
from hrag.embedding.cache import CachedQueries
from hrag.embedding.hashing import HashEmbedder
from hrag.engine.embedded import store as stores
from hrag.engine.embedded.reader import EmbeddedReader
from hrag.types import SearchMode, SearchQuery
from retriever_svc.search import Search

LEAVES = 100_000
LEAVES_EACH = 100
DIMENSION = 64  # The climb never sees a vector; few dimensions build the index soonest.
SEED = 21
CANDIDATES = 100
RETURN_LEVEL = 2
QUERIES = 2000
WARM_UP = 200
REPETITIONS = 3
MOST_MS = 0.1
MODES = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)


@pytest.fixture(scope="module")
def filled():
    """The folder of a store with one segment over all leaves, and queries."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = stores.open_for_writing(folder)
        vectors = corpus.fill(store, LEAVES, LEAVES_EACH, DIMENSION, SEED, sealed=True)
        store.close()
        yield folder, corpus.queries_near(vectors, QUERIES, SEED + 1)


@pytest.fixture
def search(filled):
    folder, _ = filled
    store = stores.open_for_reading(folder)
    reader = EmbeddedReader(store)
    reader.load_segmented()
    embedder = HashEmbedder(DIMENSION)
    with threadpool_limits(1, "blas"):  # As the services run.
        yield Search(reader, embedder, CachedQueries(embedder, 0), RETURN_LEVEL)
    reader.close()
    store.close()


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
    """Tells both figures, each a median over repetitions; whether the bar is kept.

    `figures` is in ms, standard search in column 0 and small-to-big in column 1.
    """
    p50, p99 = np.median(np.percentile(figures, [50, 99], axis=1), axis=1)
    each = np.percentile(figures[:, :, 1] - figures[:, :, 0], [50, 99], axis=1)
    p99s = np.percentile(figures, 99, axis=1)
    tell(f"{what}: standard, small-to-big p50", "{:.3f}, {:.3f} ms".format(*p50))
    tell(f"{what}: standard, small-to-big p99", "{:.3f}, {:.3f} ms".format(*p99))
    tell(
        f"{what}: difference of each query, p50, p99",
        "{:.3f}, {:.3f} ms".format(*np.median(each, axis=1)),
    )
    difference = statistics.median((p99s[:, 1] - p99s[:, 0]).tolist())
    return at_most(MOST_MS, difference, f"{what}: small-to-big p99 - standard p99", "ms")


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

    figures = repeated([measure(mode) for mode in MODES])
    with capsys.disabled():
        assert verdict(figures, f"in process, {LEAVES:,} leaves, k = {CANDIDATES}")


def test_small_to_big_costs_little_more_than_standard_search_through_grpc(filled, client, capsys):
    """The bar is on the service's own timings; the client's round trips are printed beside."""
    _, queries = filled
    vectors = queries.tolist()
    round_trips = {mode: [] for mode in MODES}

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

    figures = repeated([measure(mode) for mode in MODES])
    with capsys.disabled():
        for mode, took in round_trips.items():
            p50, p99 = np.percentile(took[WARM_UP:], [50, 99])
            tell(f"gRPC round trip, {mode.value}, p50, p99", f"{p50:.3f}, {p99:.3f} ms")
        assert verdict(figures, f"through gRPC, {LEAVES:,} leaves, k = {CANDIDATES}")
