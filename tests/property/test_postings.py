"""Lexical search equals its plain twins to the bit, on whatever hypothesis finds."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hrag_fast
from hrag_fast import _bm25_reference as reference
from hrag_fast._bm25_reference import DROPPED

# Rows next to borders of windows, so that short lists have several blocks.
ROWS = st.sampled_from([0, 1, 2, 31, 32, 100, 8190, 8191, 8192, 8193, 16383, 16384, 20000])
TERMS = st.sampled_from([0, 1, 2, 3, 1 << 20, (1 << 56) - 2, (1 << 56) - 1])
FREQUENCIES = st.sampled_from([1, 1, 1, 2, 6, 7, 8, 15, 254, 255, 300])
ROW_TERMS = st.dictionaries(TERMS, FREQUENCIES, max_size=7)


def forward(rows):
    """The forward form of rows, each a dict of frequencies by term."""
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    entries = [
        term << 8 | min(frequency, 255) for row in rows for term, frequency in sorted(row.items())
    ]
    return starts, np.array(entries, np.uint64), len(rows)


@st.composite
def row_lists(draw):
    """Dicts of frequencies by term, for up to 20,001 rows, most without a term."""
    some = draw(st.dictionaries(ROWS, ROW_TERMS, max_size=13))
    rows = max(some, default=-1) + 1 + draw(st.sampled_from([0, 0, 1, 9000]))
    return [some.get(row, {}) for row in range(rows)]


@st.composite
def masks(draw, rows):
    """None, or uint8[rows] with a few rows ruled out or in."""
    kind = draw(st.sampled_from(["none", "out", "in"]))
    if kind == "none":
        return None
    mask = np.full(rows, kind == "out", np.uint8)
    for row in draw(st.lists(ROWS, max_size=6)):
        if row < rows:
            mask[row] = kind == "in"
    return mask


@st.composite
def queries(draw, rows):
    """Arguments of `best` up to `lengths`."""
    ids = sorted(draw(st.sets(TERMS, max_size=7)))
    weight = st.one_of(st.sampled_from([0.0, 0.25, 1.0]), st.floats(0, 1, width=32))
    weights = draw(st.lists(weight, min_size=len(ids), max_size=len(ids)))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    lengths = random.integers(1, draw(st.sampled_from([2, 300, 2**32 - 1])), rows)
    return (
        np.array(ids, np.uint64),
        np.array(weights, np.float32),
        draw(st.sampled_from([0.0, 0.3])),
        draw(st.sampled_from([0.0, 0.9 / 120])),
        lengths.astype(np.uint32),
    )


def assert_same(array, expected):
    assert array.dtype == expected.dtype
    assert array.tobytes() == expected.tobytes(), (array, expected)


@given(row_lists(), st.data())
def test_postings_equal_their_twin(rows, data):
    arguments = forward(rows)
    buffer = hrag_fast.postings_of(*arguments)
    assert buffer == reference.postings_of(*arguments)
    postings, twin = hrag_fast.Postings(buffer), reference.Postings(buffer)
    assert (postings.rows, len(postings)) == (len(rows), len(twin))
    query = data.draw(queries(len(rows)))
    mask = data.draw(masks(len(rows)))
    ids = query[0]
    assert_same(postings.document_frequencies(ids, mask), twin.document_frequencies(ids, mask))
    assert_same(postings.rows_with_all(ids[:2]), twin.rows_with_all(ids[:2]))
    count = data.draw(st.sampled_from([0, 1, 2, 3, 5, 100]))
    for array, expected in zip(
        postings.best(*query, mask, count), twin.best(*query, mask, count), strict=True
    ):
        assert_same(array, expected)
    some = [row for row in data.draw(st.lists(ROWS, max_size=20)) if row < len(rows)]
    some = np.array(some, np.uint32)
    assert_same(postings.scores(*query, some), twin.scores(*query, some))


@given(row_lists(), st.data())
def test_forward_matches_equal_their_twin(rows, data):
    starts, entries, count = forward(rows)
    first = data.draw(st.integers(0, count))
    last = data.draw(st.integers(first, count))
    ids = np.array(sorted(data.draw(st.sets(TERMS))), np.uint64)
    arguments = (starts, entries, first, last, ids)
    for array, expected in zip(
        hrag_fast.forward_matches(*arguments), reference.forward_matches(*arguments), strict=True
    ):
        assert_same(array, expected)


@given(st.lists(row_lists(), max_size=3), st.integers(0, 9), st.sampled_from([0, 0.3, 1]))
def test_merged_postings_equal_those_built_from_scratch(parts, seed, dropped):
    """Whatever rows are dropped and however those of the sources interleave."""
    random = np.random.default_rng(seed)
    every = [row for part in parts for row in part]
    kept = np.flatnonzero(random.random(len(every)) >= dropped)
    remap = np.full(len(every), DROPPED, np.uint32)
    remap[kept] = random.permutation(len(kept)) if seed % 2 else np.arange(len(kept))
    merged = [{} for _ in kept]
    for row in kept.tolist():
        merged[remap[row]] = every[row]
    borders = np.cumsum([len(part) for part in parts])
    sources = [
        (hrag_fast.Postings(hrag_fast.postings_of(*forward(part))), np.ascontiguousarray(piece))
        for part, piece in zip(parts, np.split(remap, borders), strict=False)
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "postings"
        hrag_fast.write_postings(path, sources)
        assert path.read_bytes() == hrag_fast.postings_of(*forward(merged))
