"""Compares search in process with the raw index, and times the exact scan of a tail.

100,000 leaves are in one segment. The raw index is hnswlib's index of the same segment, searched
with the same k and ef. hrag also opens a transaction, climbs, reads the texts and creates the
values that it returns. But it searches the graph with a different kernel, which is faster than
hnswlib. With 64 dimensions a search of the index is fast, so the ratio is stricter than with 384.
"""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import interleaved_ms, ratio
from benchmarks.sealed_store import sealed_store
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.sources.vector_source import VectorSource
from hrag.types import SearchMode
from hrag.values.deadline import NEVER

LEAVES = 100_000
LEAVES_EACH = 100
DIMENSION = 64
SEED = 31
QUERIES = 2000
WARM_UP = 200
K = 100
# The shortest vectors of common embedding models have 384 dimensions.
LONG_DIMENSION = 384


@pytest.fixture(scope="module")
def filled():
    """The folder of a store with one segment of all leaves, and the query vectors."""
    with sealed_store(LEAVES, LEAVES_EACH, DIMENSION, SEED, QUERIES) as store:
        yield store


def test_search_beside_the_raw_index(filled, report):
    folder, queries = filled
    index = corpus.raw_index(folder)
    with corpus.reading(folder) as reader:
        search = corpus.search_over(reader, DIMENSION)

        def raw(number):
            return index.knn_query(queries[number], k=K, num_threads=1)

        def whole(mode):
            assert search(query(queries[0], mode), NEVER).passages
            return lambda number: search(query(queries[number], mode), NEVER)

        searches = [raw, whole(SearchMode.STANDARD), whole(SearchMode.SMALL_TO_BIG)]
        took = interleaved_ms(searches, WARM_UP, QUERIES)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    kinds = {
        "raw_index": "raw index (knn_query)",
        "standard": "standard",
        "small_to_big": "small-to-big",
    }
    for column, (key, name) in enumerate(kinds.items()):
        description = f"{name}, {LEAVES:,} x {DIMENSION}, k = {K}"
        report.percentiles(f"search.{key}", took[:, column], description)
        if column:
            description = f"{description}, ratio to raw index, p50"
            to_raw_index = ratio(took, column, 0)
            report.record(
                f"search.{key}.ratio_to_raw_index", to_raw_index, description, "x", "lower"
            )


def query(vector, mode):
    return replace(corpus.dense_query(vector, mode), candidates=K)


@pytest.mark.parametrize("leaves", [1000, 8000])
def test_tail_scan(benchmark, leaves, tmp_path, report):
    vectors = corpus.fill(tmp_path, leaves, LEAVES_EACH, LONG_DIMENSION, SEED, sealed=False)
    (vector,) = corpus.queries_near(vectors, 1, SEED + 1)
    with corpus.view(tmp_path) as view:
        candidates = benchmark(VectorSource(view, vector).candidates, EligibleRows(view), K)
    assert set(candidates.rows) == set(np.argsort(vectors @ vector)[-K:])
    report.parameters(seed=SEED, leaves=len(vectors), dimension=LONG_DIMENSION)
    description = f"exact scan of a tail of {len(vectors):,} x {LONG_DIMENSION}"
    report.record(
        f"tail_scan.{leaves}", benchmark.stats.stats.median * 1e6, description, "us", "lower"
    )
