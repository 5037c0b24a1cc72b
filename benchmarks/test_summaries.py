"""Compares SUMMARY_FIRST with SMALL_TO_BIG over all leaves.

Documents have 80 leaves, and each chunk of the top level is a section. The leaves are in one
segment, and the summaries are in another. The vector of a summary is the mean of its leaves'
vectors, normalised to length 1.
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
    for column, (key, (name, _)) in enumerate(MODES.items()):
        description = f"search, {LEAVES:,} x {DIMENSION}, {name}"
        report.percentiles(f"summaries.{key}", took[:, column], description)
        figure = (
            f"summaries.{key}.ratio_to_small_to_big",
            ratio(took, column, 0),
            f"{description}, ratio to small-to-big, p50",
            "x",
        )
        if key == WITH_TARGET:
            report.at_most(*figure, MAX_RATIO)
        elif column:
            report.record(*figure, "lower")
