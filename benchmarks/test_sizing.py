"""What a leaf takes: in LMDB and in segments on the disk, and of the retriever's memory.

English text, 230 new tokens a leaf, documents of about 80 leaves, all in one segment. The
formulas are those of OPERATIONS.md: never less than is used, and at most a twentieth more.
"""

import pytest

from benchmarks import corpus
from benchmarks.report import at_most
from hrag.engine.embedded import store as stores
from hrag.engine.embedded.writer import EmbeddedWriter

LEAVES = 5000
LEAVES_EACH = 80
SEED = 61
TREES = 190  # A leaf's part of trees and heads, and of pages that are not full.
LINKS = 210  # HNSW's links, labels and ancestors.
MOST_SPARE = 1.05


@pytest.mark.parametrize("dimension", [64, 384, 1536])
def test_bytes_of_a_leaf(dimension, tmp_path, capsys):
    corpus.fill(tmp_path, LEAVES, LEAVES_EACH, dimension, SEED, sealed=True)
    store = stores.open_for_reading(tmp_path)
    try:
        totals = EmbeddedWriter(store).totals()
    finally:
        store.close()
    with corpus.reading(tmp_path) as reader:
        loaded_bytes = reader.status().loaded_bytes
    vector = 4 * dimension
    text = totals.text_bytes / totals.leaves
    kept = True
    with capsys.disabled():
        for what, used, promised in (
            ("LMDB", totals.file_bytes, text + vector + TREES),
            ("segments", totals.segment_bytes, vector + LINKS),
            ("retriever's memory", loaded_bytes, vector + LINKS),
        ):
            each = used / totals.leaves
            leaf = f"a leaf of {dimension} numbers and {text:.0f} bytes of text"
            kept &= at_most(promised, each, f"{what}, {leaf}", "bytes")
            kept &= promised <= MOST_SPARE * each
    assert kept
