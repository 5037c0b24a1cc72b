"""Compares a search with a filter with the same search without a filter.

100,000 documents have one leaf each. This is the hardest case, because a filter decides about every
single leaf. All leaves are in one segment, with vectors of 384 dimensions. Each document has a
different random number from 0 to 1, and the percentile, tenth and half of that number. So 1 % of
the documents share a percentile, 10 % share a tenth, and 50 % share a half.
"""

from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from benchmarks import corpus
from benchmarks.report import interleaved_ms, ratio
from benchmarks.sealed_store import sealed_store
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.search.selected_rows import FilterResultCache
from hrag.filters import Match, NoneOf, Range
from hrag.values.deadline import NEVER

LEAVES = 100_000
DIMENSION = 384
SEED = 37
QUERIES = 200
WARM_UP = 20

# No document has a percentile, a tenth or a half of 1000 or more.
ABSENT = 1000


def by_values(share):
    """Returns a function that makes another filter for each number, so no result is cached.

    The filter lists `share` values of `percentile`, so it passes `share` percent of the documents.
    """
    return lambda number: Match("metadata.percentile", (*range(share), ABSENT + number))


def by_one_value(field):
    """Returns a function that makes, for each number, a filter for one value of `field`."""
    return lambda number: Match(f"metadata.{field}", (1, ABSENT + number))


def always(filter_):
    """Returns a function that always returns this filter, whose result is cached after one use."""
    return lambda _: filter_


def by_range(share):
    """Returns a function that makes, for each number, a filter that passes a share of documents.

    `share` is a number from 0 to 1.
    """

    def new_filter(number):
        start = (1 - share) * number / QUERIES
        return Range("metadata.draw", at_least=start, below=start + share)

    return new_filter


FILTERS = {
    "unfiltered": ("no filter", always(None)),
    "range_0_01": ("0.01 % by range, first use", by_range(0.0001)),
    "value_1": ("1 % by value, first use", by_values(1)),
    "range_1": ("1 % by range, first use", by_range(0.01)),
    "range_1_cached": ("1 % by range, cached", always(Range("metadata.draw", 0.5, below=0.51))),
    "value_10": ("10 % by ten values, first use", by_values(10)),
    "value_50": ("50 % by fifty values, first use", by_values(50)),
    "one_value_10": ("10 % by one value, first use", by_one_value("tenth")),
    "one_value_50": ("50 % by one value, first use", by_one_value("half")),
    "range_50_cached": ("50 % by range, cached", always(Range("metadata.draw", below=0.5))),
    "not_99_cached": (
        "99 % by negation, cached",
        always(NoneOf((Match("metadata.percentile", (7,)),))),
    ),
}
# A reader without a cache of filter results evaluates these filters. So for each filter the reader
# reads which documents have the value.
UNCACHED = {
    "unkept_10": ("10 % by one value, never read before", by_one_value("tenth")),
    "unkept_50": ("50 % by one value, never read before", by_one_value("half")),
}
TARGETS = {"value_1": 2, "range_1_cached": 2, "one_value_10": 3, "one_value_50": 3}


@pytest.fixture(scope="module")
def store():
    with sealed_store(LEAVES, 1, DIMENSION, SEED, QUERIES, grouped=True) as store:
        yield store


def test_filtered_search(store, report):
    folder, queries = store
    with corpus.reading(folder) as reader, closing(EmbeddedReader(reader._store)) as uncached:
        uncached._caches = replace(uncached._caches, selections=FilterResultCache(max_bytes=0))

        def run(search, filter_of, number):
            query = corpus.dense_query(queries[number])
            return search(replace(query, filter=filter_of(number)), NEVER)

        searches = [
            partial(run, corpus.search_over(filter_reader, DIMENSION), filter_of)
            for filter_reader, filters in ((reader, FILTERS), (uncached, UNCACHED))
            for _, filter_of in filters.values()
        ]
        took = interleaved_ms(searches, WARM_UP, QUERIES)
        plans = [search(0).plan for search in searches]
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    for column, (key, (name, _)) in enumerate((FILTERS | UNCACHED).items()):
        description = f"search, {LEAVES:,} x {DIMENSION}, {name}"
        report.percentiles(f"filters.{key}", took[:, column], f"{description} ({plans[column]})")
        figure = (
            f"filters.{key}.ratio_to_unfiltered",
            ratio(took, column, 0),
            f"{description}, ratio to no filter, p50",
            "x",
        )
        if key in TARGETS:
            report.at_most(*figure, TARGETS[key])
        elif column:
            report.record(*figure, "lower")
    assert report.missed == []
