"""What a leaf takes: in LMDB and in segments on the disk, and of the retriever's memory.

English text, 230 new tokens a leaf, documents of about 80 leaves, all in one segment. The
formulas of docs/operations/sizing.md give never less than is used, and at most a twentieth more.

And what LMDB takes beside text and vectors by the length of documents: a value of over half
a page has pages of its own, so a short document's text and vectors each leave one half empty.
"""

import pytest

from benchmarks import corpus
from hrag.engine.embedded.store import environment as stores
from hrag.engine.embedded.write.writer import EmbeddedWriter

LEAVES = 5000
LEAVES_EACH = 80
SEED = 61
TREES = 190  # A leaf's part of trees and heads, and of pages that are not full.
LINKS = 210  # HNSW's links, labels and ancestors.
MOST_SPARE = 1.05
MOST_OF_CONTENT = 1.3
SHORT_LEAVES = 2000
LONG = 30  # Leaves of a document from which on the bar holds.


@pytest.mark.parametrize("dimension", [64, 384, 1536])
def test_bytes_of_a_leaf(dimension, tmp_path, report):
    corpus.fill(tmp_path, LEAVES, LEAVES_EACH, dimension, SEED, sealed=True)
    store = stores.open_for_reading(tmp_path)
    try:
        totals = EmbeddedWriter(store).totals()
    finally:
        store.close()
    with corpus.reading(tmp_path) as reader:
        loaded_bytes = reader.status().embedded.loaded_bytes
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
    assert report.missed == []


@pytest.mark.parametrize("dimension", [384, 512, 1536])
@pytest.mark.parametrize("leaves_each", [1, 3, 10, LONG, 100])
def test_disk_beside_text_and_vectors(leaves_each, dimension, tmp_path, report):
    corpus.fill(tmp_path, SHORT_LEAVES, leaves_each, dimension, SEED, sealed=False)
    store = stores.open_for_reading(tmp_path)
    try:
        totals = EmbeddedWriter(store).totals()
    finally:
        store.close()
    content = totals.text_bytes + 4 * dimension * totals.leaves
    report.of(seed=SEED, leaves=SHORT_LEAVES, leaves_each=leaves_each, dimension=dimension)
    what = f"LMDB to text and vectors, about {leaves_each} leaves a document, {dimension} numbers"
    key = f"sizing.disk.{dimension}.leaves_{leaves_each}"
    report.at_most(key, totals.file_bytes / content, what, "x", MOST_OF_CONTENT)
    assert report.missed == [] or leaves_each < LONG
