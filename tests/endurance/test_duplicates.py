"""Recall stays high, both among thousands of equal leaves and among other leaves.

One segment has 50,000 leaves, of which 20,000 are exact copies. Recall is measured against an
exact search.
"""

from pathlib import Path

import numpy as np
import pytest

from hrag.engine import VALUES, FindRequest, Snapshot, Vector
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.models.embedding import Vectors
from hrag.types import DEFAULT_CANDIDATES, DEFAULT_COLLECTION, SearchMode
from tests.endurance import stores, texts
from tests.endurance.report import Report

pytestmark = pytest.mark.timeout(300)

TENANT = "duplicates"
LEAVES = 50_000
COPIES = 20_000
DIMENSION = 384
TOPICS = 500
BEST = 10
QUERIES = 500
LEAST_RECALL = 0.99
SEED = 91
# A query is the vector of a leaf, which has length 1, plus noise of this length. The difference
# between a leaf's vector and its topic has about the same length.
_NOISE = 0.7
_TOLERANCE = 1e-5


@pytest.mark.parametrize(
    "originals",
    [pytest.param(1, marks=pytest.mark.endurance), pytest.param(200, marks=pytest.mark.slow)],
)
def test_recall_is_high_among_duplicates(data_dir: Path, report: Report, originals: int) -> None:
    random = np.random.default_rng(SEED)
    vectors = _vectors(random, originals)
    queries = _near(random, vectors, QUERIES)
    store = open_for_writing(data_dir)
    try:
        opened = stores.fill(store, TENANT, vectors)
        assert segment_build.reindex(store, opened.collection_id, 1, lambda: None) == LEAVES
        reader = EmbeddedReader(store)
        reader.preload()
        with reader.snapshot(TENANT, DEFAULT_COLLECTION) as snapshot:
            recalls = [_recall(snapshot, vectors, query) for query in queries]
        reader.close()
        assert check(store).problems == ()
    finally:
        store.close()
    title = f"recall@{BEST} among {LEAVES:,}, {COPIES:,} of them copies of {originals}"
    report.at_least(LEAST_RECALL, float(np.mean(recalls)), title, "of exact search")
    assert report.missed == []


def _vectors(random: np.random.Generator, originals: int) -> Vectors:
    """Returns unit vectors around topics: `float32[LEAVES, DIMENSION]`.

    COPIES random rows are copies of the first `originals` of these rows.
    """
    topics = random.standard_normal((TOPICS, DIMENSION), np.float32)
    offsets = random.standard_normal((LEAVES, DIMENSION), np.float32)
    vectors = stores.unit(topics[random.integers(TOPICS, size=LEAVES)] + offsets)
    copied_rows = random.permutation(LEAVES)[:COPIES]
    vectors[copied_rows] = vectors[copied_rows[np.arange(COPIES) % originals]]
    assert len(np.unique(vectors, axis=0)) == LEAVES - COPIES + originals
    return vectors


def _near(random: np.random.Generator, vectors: Vectors, count: int) -> Vectors:
    """Returns `count` unit vectors near random leaves. A copy is as likely as any other leaf."""
    chosen = vectors[random.integers(LEAVES, size=count)]
    noise = random.standard_normal(chosen.shape, np.float32)
    return stores.unit(chosen + np.float32(_NOISE / np.sqrt(DIMENSION)) * noise)


def _recall(snapshot: Snapshot, vectors: Vectors, query: Vector) -> float:
    """Returns the share of returned passages that an exact search would return, too.

    A passage counts if its score reaches the tenth best exact score, because leaves with equal
    scores are interchangeable.
    """
    exact = vectors @ query
    least = np.partition(exact, LEAVES - BEST)[LEAVES - BEST] - _TOLERANCE
    level = texts.TREE.embedding_level
    request = FindRequest(query, SearchMode.STANDARD, level, BEST, DEFAULT_CANDIDATES)
    passages = snapshot.find(request, VALUES).passages
    assert len({passage.chunk.chunk_id for passage in passages}) == BEST
    return float(np.mean([passage.score >= least for passage in passages]))
