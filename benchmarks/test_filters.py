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
from benchmarks.report import at_most, medians_ms, tell
from hrag.deadline import NEVER
from hrag.filters import Match, NoneOf, Range
from hrag.types import SearchQuery

LEAVES = 100_000
DIMENSION = 384
SEED = 37
QUERIES = 300
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
    "no filter": always(None),
    "0.01 % by range, a new one": by_range(0.0001),
    "1 % by value, a new one": by_values(1),
    "1 % by range, a new one": by_range(0.01),
    "1 % by range, known": always(Range("metadata.draw", at_least=0.5, below=0.51)),
    "10 % by value, a new one": by_values(10),
    "50 % by value, a new one": by_values(50),
    "50 % by range, known": always(Range("metadata.draw", below=0.5)),
    "99 % by what it is not, known": always(NoneOf((Match("metadata.percentile", (7,)),))),
}
BARRED = ("1 % by value, a new one", "1 % by range, known")


@pytest.fixture(scope="module")
def store():
    with TemporaryDirectory() as name:
        folder = Path(name)
        vectors = corpus.fill(folder, LEAVES, 1, DIMENSION, SEED, sealed=True)
        yield folder, corpus.queries_near(vectors, QUERIES, SEED + 1)


def test_filtered_search(store, capsys):
    folder, queries = store
    with corpus.reading(folder) as reader:
        search = corpus.search_over(reader, DIMENSION)

        def found(of, number):
            query = SearchQuery(
                corpus.TENANT, queries[number], corpus.COLLECTION, filter=of(number)
            )
            return search(query, NEVER)

        searches = {name: partial(found, of) for name, of in FILTERS.items()}
        p50s = medians_ms(list(searches.values()), WARM_UP, QUERIES)
        results = {name: each(0) for name, each in searches.items()}
    with capsys.disabled():
        kept = True
        for (name, result), p50 in zip(results.items(), p50s, strict=True):
            ratio = p50 / p50s[0]
            what = f"search, {LEAVES:,} x {DIMENSION}, {name}"
            took = f"{p50:.3f} ms, {result.timings.filter_us} us of it for the filter"
            tell(what, f"{took}; {result.eligible_leaves:,} leaves, {result.plan}")
            if name in BARRED:
                kept &= at_most(MOST, ratio, what, "of no filter")
            else:
                tell(f"{what}, against no filter", f"{ratio:.2f} x")
        assert kept
