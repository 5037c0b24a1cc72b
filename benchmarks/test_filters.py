"""What a filtered search costs beside the same search without a filter.

100,000 documents of one leaf each, the hardest case: a filter names single leaves. All in
one segment, 384 numbers a vector. Each document has a random number from 0 to 1, which no
other has, and its percentile, which a hundredth of them share.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks import corpus
from benchmarks.report import interleaved_ms, ratio
from hrag.deadline import NEVER
from hrag.filters import Match, NoneOf, Range
from hrag.types import SearchQuery

LEAVES = 100_000
DIMENSION = 384
SEED = 37
QUERIES = 200
WARM_UP = 20
MOST = 2.0

NOWHERE = 1000  # From here on, no document has the percentile.


def by_values(share):
    """Another filter for every number, of so many hundredths: what was selected is not known."""
    return lambda number: Match("metadata.percentile", (*range(share), NOWHERE + number))


def always(chosen):
    return lambda _: chosen


def by_range(share):
    def of(number):
        start = (1 - share) * number / QUERIES
        return Range("metadata.draw", at_least=start, below=start + share)

    return of


FILTERS = {
    "none": ("no filter", always(None)),
    "range_0_01": ("0.01 % by range, a new one", by_range(0.0001)),
    "value_1": ("1 % by value, a new one", by_values(1)),
    "range_1": ("1 % by range, a new one", by_range(0.01)),
    "range_1_known": ("1 % by range, known", always(Range("metadata.draw", 0.5, below=0.51))),
    "value_10": ("10 % by value, a new one", by_values(10)),
    "value_50": ("50 % by value, a new one", by_values(50)),
    "range_50_known": ("50 % by range, known", always(Range("metadata.draw", below=0.5))),
    "not_99_known": (
        "99 % by what it is not, known",
        always(NoneOf((Match("metadata.percentile", (7,)),))),
    ),
}
BARRED = ("value_1", "range_1_known")


@pytest.fixture(scope="module")
def store():
    with TemporaryDirectory() as name:
        folder = Path(name)
        vectors = corpus.fill(folder, LEAVES, 1, DIMENSION, SEED, sealed=True)
        yield folder, corpus.queries_near(vectors, QUERIES, SEED + 1)


def test_filtered_search(store, report):
    folder, queries = store
    with corpus.reading(folder) as reader:
        search = corpus.search_over(reader, DIMENSION)

        def found(of, number):
            query = SearchQuery(
                corpus.TENANT, queries[number], corpus.COLLECTION, filter=of(number)
            )
            return search(query, NEVER)

        searches = [partial(found, of) for _, of in FILTERS.values()]
        took = interleaved_ms(searches, WARM_UP, QUERIES)
        plans = [each(0).plan for each in searches]
    report.of(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    for place, (key, (name, _)) in enumerate(FILTERS.items()):
        what = f"search, {LEAVES:,} x {DIMENSION}, {name}"
        report.percentiles(f"filters.{key}", took[:, place], f"{what} ({plans[place]})")
        to_none = f"filters.{key}.to_none", ratio(took, place, 0), f"{what}, to no filter, p50", "x"
        if key in BARRED:
            report.at_most(*to_none, MOST)
        elif place:
            report.tell(*to_none, "lower")
    assert report.missed == []
