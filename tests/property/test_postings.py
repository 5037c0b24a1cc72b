"""The compiled lexical kernels return the same bits as their twins in Python, for any arguments."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hrag_fast
from hrag.text.bm25 import LengthNorm, leaf_scores
from tests import twins
from tests.support.documents.lexical import DROPPED, forward, query

# Rows near the borders of the kernels' windows of 8192 rows. So even a short posting list has
# several blocks.
ROWS = st.sampled_from([0, 1, 2, 31, 32, 100, 8190, 8191, 8192, 8193, 16383, 16384, 20000])
TERMS = st.sampled_from([0, 1, 2, 3, 1 << 20, (1 << 56) - 2, (1 << 56) - 1])
TERMS_OF_TIES = (1, 2, 3)
FREQUENCIES = st.sampled_from([1, 1, 1, 2, 6, 7, 8, 15, 254, 255, 300])
ROW_TERMS = st.dictionaries(TERMS, FREQUENCIES, max_size=7)
RANDOM = st.integers(0, 999).map(np.random.default_rng)


@st.composite
def sparse_rows(draw):
    """Draws the term frequencies of some rows, and the count of all rows.

    Most rows have no term.
    """
    rows = draw(st.dictionaries(ROWS, ROW_TERMS, max_size=13))
    return rows, max(rows, default=-1) + 1 + draw(st.sampled_from([0, 0, 1, 9000]))


@st.composite
def masks(draw, count):
    """Draws None, or a mask `uint8[count]` that excludes or includes a few rows."""
    kind = draw(st.sampled_from(["none", "out", "in"]))
    if kind == "none":
        return None
    mask = np.full(count, kind == "out", np.uint8)
    chosen = [row for row in draw(st.lists(ROWS, max_size=6)) if row < count]
    mask[chosen] = kind == "in"
    return mask


@st.composite
def queries(draw, count):
    """Draws the arguments of `Postings.best` from `ids` to `lengths`."""
    ids = sorted(draw(st.sets(TERMS, max_size=7)))
    weight = st.one_of(st.sampled_from([0.0, 0.25, 1.0]), st.floats(0, 1, width=32))
    weights = draw(st.lists(weight, min_size=len(ids), max_size=len(ids)))
    longest = draw(st.sampled_from([2, 300, 2**32]))
    return (
        np.array(ids, np.uint64),
        np.array(weights, np.float32),
        draw(st.sampled_from([0.0, 0.3])),
        draw(st.sampled_from([0.0, 0.9 / 120])),
        draw(RANDOM).integers(1, longest, count, np.uint32),
    )


def assert_same(arrays, expected):
    for array, other in zip(arrays, expected, strict=True):
        assert array.dtype == other.dtype
        assert array.tobytes() == other.tobytes(), (array, other)


def assert_same_answers(postings, twin, query, mask, rows, count):
    ids = query[0]
    assert (postings.rows, len(postings)) == (twin.rows, len(twin))
    for name, arguments in (
        ("document_frequencies", (ids, mask)),
        ("rows_with_all", (ids[:2],)),
    ):
        assert_same([getattr(postings, name)(*arguments)], [getattr(twin, name)(*arguments)])
    assert_same(postings.best(*query, mask, count), twin.best(*query, mask, count))
    arguments = (*query, mask, count, rows if mask is None else rows[mask[rows] != 0])
    assert_same(postings.best_and_scores(*arguments), twin.best_and_scores(*arguments))


@given(sparse_rows(), st.data())
def test_postings_equal_their_twin(rows_and_count, data):
    arguments = forward(*rows_and_count)
    buffer = hrag_fast.postings_of(*arguments)
    assert buffer == twins.postings_of(*arguments)
    rows = rows_and_count[1]
    scored_rows = [row for row in sorted(data.draw(st.sets(ROWS))) if row < rows]
    assert_same_answers(
        hrag_fast.Postings(buffer),
        twins.Postings(buffer),
        data.draw(queries(rows)),
        data.draw(masks(rows)),
        np.array(scored_rows, np.uint32),
        data.draw(st.sampled_from([0, 1, 2, 3, 5, 100])),
    )


@given(RANDOM, st.sampled_from([1, 2, 3, 5, 20]), st.sampled_from([1, 2]))
def test_in_ties_the_lowest_rows_are_the_best(random, count, terms_per_row):
    """All rows have equal lengths, and all terms have equal weights and frequencies."""
    rows = random.choice(TERMS_OF_TIES, (60, terms_per_row))
    terms = {row: dict.fromkeys(row_terms, 1) for row, row_terms in enumerate(rows.tolist())}
    buffer = hrag_fast.postings_of(*forward(terms, len(rows)))
    arguments = query(dict.fromkeys(TERMS_OF_TIES, 0.25), rows=len(rows))
    best = hrag_fast.Postings(buffer).best(*arguments, None, count)
    assert_same(best, twins.Postings(buffer).best(*arguments, None, count))


@given(sparse_rows(), st.data())
def test_matches_of_forward_rows_equal_the_twin_and_have_the_scores_of_postings(
    rows_and_count, data
):
    starts, entries, count = forward(*rows_and_count)
    ids, weights, *norm, lengths = data.draw(queries(count))
    first = data.draw(st.integers(0, count))
    last = data.draw(st.integers(first, count))
    arguments = (starts, entries, first, last, ids)
    matches = hrag_fast.forward_matches(*arguments)
    assert_same(matches, twins.forward_matches(*arguments))
    postings = hrag_fast.Postings(hrag_fast.postings_of(starts, entries, count))
    rows = np.arange(first, last, dtype=np.uint32)
    query = (ids, weights, *norm, lengths)
    _, _, expected = postings.best_and_scores(*query, None, 0, rows)
    scores = leaf_scores(weights, LengthNorm(*norm), *matches, lengths[first:last])
    assert_same([scores], [expected])


@given(st.lists(sparse_rows(), max_size=3), RANDOM, st.booleans(), st.sampled_from([0, 0.3, 1]))
def test_merged_postings_equal_those_built_from_scratch(parts, random, shuffled, dropped):
    """Rows may be dropped, and the rows of the merged postings may be interleaved in any way."""
    ends = np.cumsum([count for _, count in parts], dtype=np.int64)
    total = int(ends[-1]) if parts else 0
    remaining = np.flatnonzero(random.random(total) >= dropped)
    remap = np.full(total, DROPPED, np.uint32)
    remap[remaining] = random.permutation(len(remaining)) if shuffled else np.arange(len(remaining))
    remaps = np.split(remap, ends[:-1])
    merged = {
        int(new_rows[row]): terms
        for (rows, _), new_rows in zip(parts, remaps, strict=False)
        for row, terms in rows.items()
        if new_rows[row] != DROPPED
    }
    sources = [
        (hrag_fast.Postings(hrag_fast.postings_of(*forward(*part))), new_rows)
        for part, new_rows in zip(parts, remaps, strict=False)
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "postings"
        hrag_fast.write_postings(path, sources)
        assert path.read_bytes() == hrag_fast.postings_of(*forward(merged, len(remaining)))


@given(sparse_rows(), st.data())
def test_damaged_postings_are_refused_or_read_as_other_postings(rows_and_count, data):
    """The kernel accepts the same damaged buffers as its twin, and returns the same results."""
    buffer = bytearray(hrag_fast.postings_of(*forward(*rows_and_count)))
    for _ in range(data.draw(st.integers(1, 3))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        twin = twins.Postings(buffer)
    except ValueError:
        twin = None
    try:
        postings = hrag_fast.Postings(buffer)
    except ValueError:
        assert twin is None
        return
    assert twin is not None
    if twin.rows < 100_000:
        query = data.draw(queries(twin.rows))
        rows = np.arange(0, twin.rows, 1000, dtype=np.uint32)
        assert_same_answers(postings, twin, query, None, rows, 10)
