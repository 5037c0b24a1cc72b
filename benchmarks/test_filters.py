"""Search with a filter, compared with the same search without.

100,000 documents of one leaf each, the hardest case: a filter selects single leaves. All in
one segment, vectors of 384 dimensions. Each document has a unique random number from 0 to 1,
and that number's percentile, tenth and half, which 1, 10 and 50 % of the documents share.
"""

from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from benchmarks import corpus
from benchmarks.report import interleaved_ms, ratio
from benchmarks.sealed_store import sealed_store
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.search.selected_rows import SelectionCache
from hrag.filters import Match, NoneOf, Range
from hrag.values.deadline import NEVER

LEAVES = 100_000
DIMENSION = 384
SEED = 37
QUERIES = 200
WARM_UP = 20

ABSENT = 1000  # No document has a percentile, a tenth or a half from here on.


def by_values(share):
    """Returns a new filter for every number, so that none is cached; `share` in percent."""
    return lambda number: Match("metadata.percentile", (*range(share), ABSENT + number))


def by_one_value(field):
    """Returns a new filter for every number, which selects the documents with one value."""
    return lambda number: Match(f"metadata.{field}", (1, ABSENT + number))


def always(filter_):
    """Returns the same filter for every number: from the second use on it is cached."""
    return lambda _: filter_


def by_range(share):
    """Returns a new filter for every number; `share` is that of the documents, 0 to 1."""

    def numbered(number):
        start = (1 - share) * number / QUERIES
        return Range("metadata.draw", at_least=start, below=start + share)

    return numbered


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
# By a reader that keeps nothing, so the value's documents are read for each filter.
UNKEPT = {
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
    with corpus.reading(folder) as reader, closing(EmbeddedReader(reader._store)) as other:
        other._caches = replace(other._caches, selections=SelectionCache(max_bytes=0))

        def run(search, filter_of, number):
            query = corpus.dense_query(queries[number])
            return search(replace(query, filter=filter_of(number)), NEVER)

        searches = [
            partial(run, corpus.search_over(each, DIMENSION), filter_of)
            for each, filters in ((reader, FILTERS), (other, UNKEPT))
            for _, filter_of in filters.values()
        ]
        took = interleaved_ms(searches, WARM_UP, QUERIES)
        plans = [each(0).plan for each in searches]
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    for place, (key, (name, _)) in enumerate((FILTERS | UNKEPT).items()):
        what = f"search, {LEAVES:,} x {DIMENSION}, {name}"
        report.percentiles(f"filters.{key}", took[:, place], f"{what} ({plans[place]})")
        compared = (
            f"filters.{key}.ratio_to_unfiltered",
            ratio(took, place, 0),
            f"{what}, ratio to no filter, p50",
            "x",
        )
        if key in TARGETS:
            report.at_most(*compared, TARGETS[key])
        elif place:
            report.record(*compared, "lower")
    assert report.missed == []
