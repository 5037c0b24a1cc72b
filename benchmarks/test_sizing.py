"""What a leaf takes: in LMDB and in segments on the disk, and of the retriever's memory.

English text, 230 new tokens a leaf, documents of about 80 leaves, all in one segment. The
formulas are those of OPERATIONS.md: never less than is used, and at most a twentieth more.
The bar on the disk is on LMDB beside the bare text and vectors, segments aside.
"""

import pytest

from benchmarks import corpus
from hrag.engine.embedded import store as stores
from hrag.engine.embedded.writer import EmbeddedWriter

LEAVES = 5000
LEAVES_EACH = 80
SEED = 61
TREES = 190  # A leaf's part of trees and heads, and of pages that are not full.
LINKS = 210  # HNSW's links, labels and ancestors.
MOST_SPARE = 1.05
MOST_DISK = 1.3


@pytest.mark.parametrize("dimension", [64, 384, 1536])
def test_bytes_of_a_leaf(dimension, tmp_path, report):
    corpus.fill(tmp_path, LEAVES, LEAVES_EACH, dimension, SEED, sealed=True)
    store = stores.open_for_reading(tmp_path)
    try:
        totals = EmbeddedWriter(store).totals()
    finally:
        store.close()
    with corpus.reading(tmp_path) as reader:
        loaded_bytes = reader.status().loaded_bytes
    report.of(seed=SEED, leaves=LEAVES, dimension=dimension)
    vector = 4 * dimension
    text = totals.text_bytes / totals.leaves
    leaf = f"a leaf of {dimension:,} numbers and {text:.0f} bytes of text"
    for key, what, used, promised in (
        ("lmdb", "LMDB", totals.file_bytes, text + vector + TREES),
        ("segment", "segments", totals.segment_bytes, vector + LINKS),
        ("memory", "retriever's memory", loaded_bytes, vector + LINKS),
    ):
        each = used / totals.leaves
        report.at_most(f"sizing.{key}.{dimension}", each, f"{what}, {leaf}", "bytes", promised)
        assert promised <= MOST_SPARE * each
    ratio = totals.file_bytes / totals.leaves / (text + vector)
    what = f"LMDB to text and vectors, {leaf}"
    report.at_most(f"sizing.disk.{dimension}", ratio, what, "x", MOST_DISK)
    assert report.missed == []
