"""Compares AUTO_MERGE with SMALL_TO_BIG at the same limit, for long documents.

100,000 leaves are in documents of 3,000 leaves. The sixteen best leaves lie in a few of these
documents, whose trees are read. All other candidates are compared with the merged chunks. Queries
have a vector and no text.
"""

from dataclasses import replace
from functools import partial

import pytest

from benchmarks import corpus
from benchmarks.report import interleaved_ms, ratio
from benchmarks.sealed_store import sealed_store
from hrag.types import SearchMode
from hrag.values.deadline import NEVER

LEAVES = 100_000
LEAVES_EACH = 3000
# The benchmark compares reads of trees, on which the dimension has no influence. An index of few
# dimensions is built fastest.
DIMENSION = 64
SEED = 41
QUERIES = 400
WARM_UP = 40
LIMITS = (5, 20, 100)
MAX_RATIO = 1.5
COMPARED = (SearchMode.SMALL_TO_BIG, SearchMode.AUTO_MERGE)


@pytest.fixture(scope="module")
def store():
    """The folder of a store with one segment of all leaves, and the query vectors."""
    with sealed_store(LEAVES, LEAVES_EACH, DIMENSION, SEED, QUERIES) as store:
        yield store


@pytest.mark.parametrize("limit", LIMITS)
def test_auto_merge_costs_little_more_than_small_to_big(store, limit, report):
    folder, queries = store
    with corpus.reading(folder) as reader:
        search = corpus.search_over(reader, DIMENSION)

        def run(mode, number):
            query = replace(corpus.dense_query(queries[number], mode), limit=limit)
            result = search.encoded(query, NEVER)
            assert len(result.passages) == limit

        took = interleaved_ms([partial(run, mode) for mode in COMPARED], WARM_UP, QUERIES)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION, limit=limit)
    description = f"{LEAVES:,} leaves, documents of {LEAVES_EACH:,}, limit {limit}"
    for column, mode in enumerate(COMPARED):
        key = f"auto_merge.limit_{limit}.{mode.lower()}"
        report.percentiles(key, took[:, column], f"{description}, {mode.lower()}")
    key = f"auto_merge.limit_{limit}.ratio_to_small_to_big"
    description = f"{description}, AUTO_MERGE, ratio to SMALL_TO_BIG, p50"
    report.at_most(key, ratio(took, 1, 0), description, "x", MAX_RATIO)
    assert report.missed == []
