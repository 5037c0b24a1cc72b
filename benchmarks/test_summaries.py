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
from benchmarks.report import interleaved_ms, ratio
from hrag.deadline import NEVER
from hrag.types import SearchMode, SearchQuery, SummaryScope, SummaryUnit

LEAVES = 100_000
LEAVES_EACH = 80
DIMENSION = 384
SEED = 43
QUERIES = 200
WARM_UP = 20
MOST = 1.5

FIRST = SearchMode.SUMMARY_FIRST
MODES = {
    "small_to_big": ("small to big", {"mode": SearchMode.SMALL_TO_BIG}),
    "sections": ("summaries of sections first", {"mode": FIRST}),
    "documents": (
        "summaries of documents first",
        {"mode": FIRST, "summary_scope": SummaryScope.DOCUMENTS},
    ),
    "sections_100": ("summaries of 100 sections first", {"mode": FIRST, "top_sections": 100}),
}
BARRED = "sections"


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


def test_searching_by_summaries(store, report):
    folder, queries = store
    with corpus.reading(folder) as reader:
        search = corpus.search_over(reader, DIMENSION)

        def found(asked, number):
            query = SearchQuery(corpus.TENANT, queries[number], corpus.COLLECTION)
            return search(replace(query, **asked), NEVER)

        searches = [partial(found, asked) for _, asked in MODES.values()]
        took = interleaved_ms(searches, WARM_UP, QUERIES)
    report.of(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    for place, (key, (name, _)) in enumerate(MODES.items()):
        what = f"search, {LEAVES:,} x {DIMENSION}, {name}"
        report.percentiles(f"summaries.{key}", took[:, place], what)
        to_all = (
            f"summaries.{key}.to_small_to_big",
            ratio(took, place, 0),
            f"{what}, to small to big, p50",
            "x",
        )
        if key == BARRED:
            report.at_most(*to_all, MOST)
        elif place:
            report.tell(*to_all, "lower")
    assert report.missed == []
