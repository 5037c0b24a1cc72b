"""Measures recall and latency of searches for several numbers of candidates.

hrag searches in process. It is compared with hnswlib's `knn_query` on the index of the same
segment, with several values of ef. hrag's ef is the number of candidates, but at least
`segment_files.search_ef` of the index's dimension and size.
"""

from functools import partial

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import interleaved_ms, measured
from hrag.types import DEFAULT_CANDIDATES
from hrag.values.deadline import NEVER

LEAVES = 50_000
LEAVES_EACH = 100
SEED = 31
QUERIES = 500
WARM_UP = 50
CANDIDATES = (50, 100, DEFAULT_CANDIDATES, 400)
EFS = (10, 16, 32, 64, 100, 200, 400)
MIN_RECALL = 0.99


@pytest.mark.parametrize("dimension", [64, 384])
def test_recall_beside_latency(dimension, tmp_path, report):
    vectors = corpus.fill(tmp_path, LEAVES, LEAVES_EACH, dimension, SEED, sealed=True)
    queries = corpus.queries_near(vectors, QUERIES, SEED + 1)
    index = corpus.raw_index(tmp_path)

    def raw(ef, number):
        index.set_ef(ef)
        return index.knn_query(queries[number], k=10, num_threads=1)[0][0]

    starts = corpus.first_rows(LEAVES, LEAVES_EACH)
    with corpus.reading(tmp_path) as reader:
        search = corpus.search_over(reader, dimension)

        def whole(candidates, number):
            return search(corpus.leaves_query(queries[number], candidates), NEVER)

        def rows_of(candidates, number):
            return corpus.found_rows(whole(candidates, number), starts)

        raws = [partial(raw, ef) for ef in EFS]
        timed = [*raws, *(partial(whole, count) for count in CANDIDATES)]
        p50s = np.median(interleaved_ms(timed, WARM_UP, QUERIES), axis=0).tolist()
        finders = [*raws, *(partial(rows_of, count) for count in CANDIDATES)]
        rows = [[find(number) for number in range(QUERIES)] for find in finders]

    exact = corpus.nearest_10(vectors, queries)
    recalls = [measured(corpus.recalls(results, exact), np.mean) for results in rows]
    report.parameters(seed=SEED, leaves=len(vectors), dimension=dimension)
    description = f"recall@10 against exact search, {len(vectors):,} x {dimension}"
    searched = f"search in process, {len(vectors):,} x {dimension}"
    for key, name, settings, part in (
        ("ef", "hnswlib, ef", EFS, slice(len(EFS))),
        ("candidates", "hrag, candidates", CANDIDATES, slice(len(EFS), None)),
    ):
        points = list(zip(settings, recalls[part], p50s[part], strict=True))
        for setting, recall, p50 in points:
            setting_key = f"recall.{dimension}.{key}_{setting}"
            report.record(
                setting_key, recall, f"{description}, {name} {setting}", "share", "higher"
            )
            report.record(f"{setting_key}.p50", p50, f"{searched}, {name} {setting}: p50", "ms")
        report.draw(
            f"recall_{dimension}",
            f"{name} {settings[0]} to {settings[-1]}",
            [(recall.value, p50) for _, recall, p50 in points],
            title=f"Recall and latency, {LEAVES:,} x {dimension}, in process",
            x="recall@10",
            y="p50, ms",
        )
    default = recalls[len(EFS) + CANDIDATES.index(DEFAULT_CANDIDATES)]
    description = f"{description}, default settings"
    report.at_least(f"recall.{dimension}.default", default, description, "share", MIN_RECALL)
    assert report.missed == []
