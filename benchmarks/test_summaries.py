"""What a search by summaries costs beside the same search among all leaves.

Documents of 80 leaves, a section of them for each chunk of the top level; leaves and
summaries in a segment each. A summary's vector is the middle of its leaves'.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks import corpus
from benchmarks.report import at_most, medians_ms, tell
from hrag.deadline import NEVER
from hrag.types import SearchMode, SearchQuery, SummaryScope, SummaryUnit

LEAVES = 100_000
LEAVES_EACH = 80
DIMENSION = 384
SEED = 43
QUERIES = 300
WARM_UP = 20
MOST = 1.5

FIRST = SearchMode.SUMMARY_FIRST
MODES = {
    "small to big": {"mode": SearchMode.SMALL_TO_BIG},
    "summaries of sections first": {"mode": FIRST},
    "summaries of documents first": {"mode": FIRST, "summary_scope": SummaryScope.DOCUMENTS},
    "the same, 100 sections": {"mode": FIRST, "top_sections": 100},
}
BARRED = "summaries of sections first"


@pytest.fixture(scope="module")
def store():
    with TemporaryDirectory() as name:
        folder = Path(name)
        vectors = corpus.fill(
            folder,
            LEAVES,
            LEAVES_EACH,
            DIMENSION,
            SEED,
            sealed=True,
            summaries=SummaryUnit.CHUNK,
        )
        yield folder, corpus.queries_near(vectors, QUERIES, SEED + 1)


def test_searching_by_summaries(store, capsys):
    folder, queries = store
    with corpus.reading(folder) as reader:
        search = corpus.search_over(reader, DIMENSION)

        def found(asked, number):
            query = SearchQuery(corpus.TENANT, queries[number], corpus.COLLECTION)
            return search(replace(query, **asked), NEVER)

        searches = {name: partial(found, asked) for name, asked in MODES.items()}
        p50s = medians_ms(list(searches.values()), WARM_UP, QUERIES)
        results = {name: each(0) for name, each in searches.items()}
    with capsys.disabled():
        kept = True
        for (name, result), p50 in zip(results.items(), p50s, strict=True):
            what = f"search, {LEAVES:,} x {DIMENSION}, {name}"
            tell(what, f"{p50:.3f} ms; {result.eligible_leaves:,} leaves, {result.plan}")
            ratio = p50 / p50s[0]
            if name == BARRED:
                kept = at_most(MOST, ratio, what, "of small to big")
            else:
                tell(f"{what}, against small to big", f"{ratio:.2f} x")
        assert kept
