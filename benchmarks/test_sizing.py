"""Measures the bytes of a leaf in LMDB, in segments, and in the retriever's memory.

The texts are English, with 230 new tokens a leaf. Documents have about 80 leaves, all in one
segment. The formulas of docs/operations/sizing.md must result in at least the bytes used, and in at
most 5 % more. The lexical index is not counted, because its size depends on the words: see
`test_lexical.py`.

Another benchmark measures the ratio of LMDB's file to text and vectors, by the length of the
documents. The shorter a document, the larger is the share of the records by which it is found, and
of the unused ends of pages.
"""

import pytest

from benchmarks import corpus

LEAVES = 5000
LEAVES_EACH = 80
SEED = 61
# Trees, document metadata, checksums and free space in pages take this many bytes per leaf.
TREES = 145
# HNSW's links, labels and ancestors take this many bytes per leaf.
LINKS = 210
# The retriever allocates this many bytes per leaf in addition to the graph's file, plus one byte
# for each dimension. If vectors stay in the file, each has a checksum.
CODES = 12
CHECKSUM = 8
# A formula may result in at most this many times the bytes used.
MAX_SPARE = 1.05
# The largest ratio of LMDB's file to text and vectors, by the number of leaves of a document.
MAX_RATIO = {1: 1.6, 3: 1.3, 10: 1.2, 30: 1.2, 100: 1.2}
SHORT_LEAVES = 2000


@pytest.mark.parametrize("dimension", [64, 384, 1536])
def test_bytes_of_a_leaf(dimension, tmp_path, report):
    corpus.fill(tmp_path, LEAVES, LEAVES_EACH, dimension, SEED, sealed=True)
    with corpus.engine(tmp_path) as engine:
        totals = engine.writer().totals()
    with corpus.reading(tmp_path) as reader:
        loaded_bytes = reader.status().embedded.loaded_bytes
    with corpus.reading(tmp_path, vector_memory_bytes=0) as reader:
        stored_bytes = reader.status().embedded.loaded_bytes
    words = corpus.lexical_bytes(tmp_path, totals.leaves)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=dimension)
    vector = 4 * dimension
    text = totals.text_bytes / totals.leaves
    leaf = f"a leaf of {dimension:,} dimensions and {text:.0f} bytes of text"
    for key, name, used, planned in (
        ("lmdb", "LMDB", totals.embedded.file_bytes, text + vector + TREES),
        ("segment", "segments", totals.embedded.segment_bytes - words, vector + LINKS),
        ("memory", "retriever's memory", loaded_bytes - words, LINKS + dimension + CODES + vector),
        (
            *("stored", "retriever's memory, vectors in the file", stored_bytes - words),
            LINKS + dimension + CODES + CHECKSUM,
        ),
    ):
        bytes_per_leaf = used / totals.leaves
        report.at_most(
            f"sizing.{key}.{dimension}", bytes_per_leaf, f"{name}, {leaf}", "bytes", planned
        )
        assert planned <= MAX_SPARE * bytes_per_leaf
    assert report.missed == []


@pytest.mark.parametrize("dimension", [384, 512, 1536])
@pytest.mark.parametrize("leaves_each", list(MAX_RATIO))
def test_disk_beside_text_and_vectors(leaves_each, dimension, tmp_path, report):
    corpus.fill(tmp_path, SHORT_LEAVES, leaves_each, dimension, SEED, sealed=False)
    with corpus.engine(tmp_path) as engine:
        totals = engine.writer().totals()
    content = totals.text_bytes + 4 * dimension * totals.leaves
    report.parameters(seed=SEED, leaves=SHORT_LEAVES, leaves_each=leaves_each, dimension=dimension)
    length = f"about {leaves_each} {'leaf' if leaves_each == 1 else 'leaves'} a document"
    description = f"LMDB to text and vectors, {length}, {dimension:,} dimensions"
    key = f"sizing.disk.{dimension}.leaves_{leaves_each}"
    report.at_most(
        key, totals.embedded.file_bytes / content, description, "x", MAX_RATIO[leaves_each]
    )
    assert report.missed == []
