"""SUMMARY_FIRST, compared with SMALL_TO_BIG over all leaves.

Documents of 80 leaves, with a section for each chunk of the top level; leaves and summaries
have a segment each. A summary's vector is the mean of its leaves' vectors, normalised.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks import corpus
from benchmarks.report import interleaved_ms, ratio
from hrag.types import SearchMode, SummaryScope, SummaryUnit
from hrag.values.deadline import NEVER

LEAVES = 100_000
LEAVES_EACH = 80
DIMENSION = 384
SEED = 43
QUERIES = 200
WARM_UP = 20
MAX_RATIO = 1.5

FIRST = SearchMode.SUMMARY_FIRST
MODES = {
    "small_to_big": ("small-to-big", {"mode": SearchMode.SMALL_TO_BIG}),
    "sections": ("summaries of sections first", {"mode": FIRST}),
    "documents": (
        "summaries of documents first",
        {"mode": FIRST, "summary_scope": SummaryScope.DOCUMENTS},
    ),
    "sections_100": ("summaries of 100 sections first", {"mode": FIRST, "top_sections": 100}),
}
WITH_TARGET = "sections"


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

        def run(options, number):
            return search(replace(corpus.dense_query(queries[number]), **options), NEVER)

        searches = [partial(run, options) for _, options in MODES.values()]
        took = interleaved_ms(searches, WARM_UP, QUERIES)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    for place, (key, (name, _)) in enumerate(MODES.items()):
        what = f"search, {LEAVES:,} x {DIMENSION}, {name}"
        report.percentiles(f"summaries.{key}", took[:, place], what)
        compared = (
            f"summaries.{key}.ratio_to_small_to_big",
            ratio(took, place, 0),
            f"{what}, ratio to small-to-big, p50",
            "x",
        )
        if key == WITH_TARGET:
            report.at_most(*compared, MAX_RATIO)
        elif place:
            report.record(*compared, "lower")
    assert report.missed == []
