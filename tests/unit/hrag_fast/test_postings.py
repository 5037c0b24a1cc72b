"""Lexical search gives the same results with the kernels and with their twins."""

import mmap
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import hrag_fast
from hrag.text.bm25 import LengthNorm, leaf_scores, length_norm
from tests import twins
from tests.support.documents.lexical import DROPPED, forward, query, zipf_rows
from tests.twins.postings import HEADER, WINDOW_ROWS

# Row 0 has both terms, row 1 has the term 10, row 2 has the term 20 often.
ROWS = {0: {10: 1, 20: 1}, 1: {10: 2}, 2: {20: 40}}


@pytest.fixture(params=[hrag_fast, twins], ids=["kernel", "twin"])
def kernels(request):
    return request.param


def postings_of(kernels, rows, count):
    return kernels.Postings(kernels.postings_of(*forward(rows, count)))


def ids_of(*terms):
    return np.array(terms, np.uint64)


def all_scores(postings, terms):
    """Returns the scores of all rows."""
    rows = np.arange(postings.rows, dtype=np.uint32)
    return postings.best_and_scores(*terms, None, 0, rows)[2]


def test_a_score_is_the_weighted_sum_of_saturated_frequencies(kernels):
    postings = postings_of(kernels, ROWS, 3)
    terms = query({10: 0.75, 20: 0.25}, [2, 200, 40], norm_base=0.3, norm_per_term=0.009)
    rows, scores = postings.best(*terms, None, 10)
    assert rows.tolist() == [0, 1, 2]
    expected = [1 / (1.3 + 0.018), 0.75 * 2 / (2.3 + 1.8), 0.25 * 40 / (40.3 + 0.36)]
    assert scores == pytest.approx(expected)
    best, _, again = postings.best_and_scores(*terms, None, 1, np.array([0, 2], np.uint32))
    assert best.tolist() == [0]
    assert again.tolist() == [scores[0], scores[2]]


def test_lists_are_in_order_of_terms_whose_ids_begin_alike():
    """Most ids are hashes. Some differ only in their last bits, and occur in many rows in turn."""
    random = np.random.default_rng(5)
    hashes = random.integers(0, 1 << 56, 500).tolist()
    crowded = [hashes[0] ^ bit for bit in range(5)]
    rows = {
        row: dict.fromkeys((*random.choice(hashes, 20).tolist(), crowded[row % 5]), 1 + row % 9)
        for row in range(300)
    }
    arguments = forward(rows, 301)
    assert hrag_fast.postings_of(*arguments) == twins.postings_of(*arguments)


def test_rows_with_equal_scores_are_in_ascending_order(kernels):
    """The rows are in several windows, which are searched one after another."""
    rows = {row: {5: 1} for row in (3, 700, WINDOW_ROWS - 1, WINDOW_ROWS, 3 * WINDOW_ROWS)}
    postings = postings_of(kernels, rows, 3 * WINDOW_ROWS + 1)
    for count in range(1, 7):
        best, _ = postings.best(*query({5: 0.5}, rows=postings.rows), None, count)
        assert best.tolist() == sorted(rows)[:count]


def test_only_rows_with_a_score_are_returned(kernels):
    postings = postings_of(kernels, ROWS, 5)
    rows, scores = postings.best(*query({10: 0.5, 20: 0, 30: 0.5}, rows=5), None, 10)
    assert rows.tolist() == [1, 0]
    assert (rows.dtype, scores.dtype) == (np.uint32, np.float32)
    for terms in ({}, {20: 0.0}, {9: 1.0}):
        assert len(postings.best(*query(terms, rows=5), None, 10)[0]) == 0


def test_only_allowed_rows_are_returned(kernels):
    postings = postings_of(kernels, ROWS, 3)
    allowed = np.array([0, 1, 7], np.uint8)
    rows, _ = postings.best(*query({10: 0.5, 20: 0.5}, rows=3), allowed, 10)
    assert rows.tolist() == [2, 1]


def test_document_frequencies_count_only_rows_that_are_alive(kernels):
    postings = postings_of(kernels, ROWS, 3)
    ids = ids_of(20, 99, 10)
    assert postings.document_frequencies(ids, None).tolist() == [2, 0, 2]
    alive = np.array([0, 1, 1], np.uint8)
    assert postings.document_frequencies(ids, alive).tolist() == [1, 0, 1]


def test_rows_with_all_returns_the_rows_that_have_every_term(kernels):
    postings = postings_of(kernels, ROWS, 4)
    for terms, expected in (((10,), [0, 1]), ((10, 20), [0]), ((10, 30), []), ((), [0, 1, 2, 3])):
        rows = postings.rows_with_all(ids_of(*terms))
        assert rows.tolist() == expected
        assert rows.dtype == np.uint32


def test_frequencies_are_counted_up_to_255(kernels):
    rows = {row: {1: frequency} for row, frequency in enumerate([1, 6, 7, 8, 254, 255, 300])}
    postings = postings_of(kernels, rows, 7)
    scores = all_scores(postings, query({1: 1}, rows=7, norm_per_term=0))
    expected = [f / (f + 0.3) for f in (1, 6, 7, 8, 254, 255, 255)]
    assert scores == pytest.approx(expected)


def test_a_list_has_one_unit_for_each_posting_and_two_for_each_window():
    """A unit has two bytes. The rows of this list are in two windows."""
    rows = {row: {1: 1} for row in range(WINDOW_ROWS + 1)}
    buffer = hrag_fast.postings_of(*forward(rows, WINDOW_ROWS + 1))
    assert len(buffer) == HEADER.size + 20 + 8 + 2 * (WINDOW_ROWS + 1 + 2 + 2)


@cache
def long_lists():
    """Returns postings of thousands of rows in three windows, their twin, and the rows' lengths."""
    count = 2 * WINDOW_ROWS + 500
    starts, entries, lengths = zipf_rows(count, vocabulary=300, shortest=5, longest=40)
    entries[::97] |= np.uint64(8)  # Frequencies of 8 and more.
    buffer = hrag_fast.postings_of(starts, entries, count)
    return hrag_fast.Postings(buffer), twins.Postings(buffer), lengths


@pytest.mark.parametrize("allowed_share", [1, 0.5, 0.002])
def test_searches_of_long_lists_give_the_results_of_the_twin(allowed_share):
    """More than 200 rows have a score. All rows, half of them or few of them are allowed."""
    postings, twin, lengths = long_lists()
    random = np.random.default_rng(1)
    allowed = (random.random(len(lengths)) < allowed_share).astype(np.uint8)
    terms = query(dict.fromkeys([0, 2, 40, 250], 0.2) | {299: 0.1}, lengths)
    rows, scores = postings.best(*terms, allowed, 200)
    expected_rows, expected_scores = twin.best(*terms, allowed, 200)
    assert rows.tolist() == expected_rows.tolist()
    assert scores.tobytes() == expected_scores.tobytes()
    requested = np.flatnonzero(allowed)[::3].astype(np.uint32)
    answers = postings.best_and_scores(*terms, allowed, 200, requested)
    expected = twin.best_and_scores(*terms, allowed, 200, requested)
    assert [a.tobytes() for a in answers] == [e.tobytes() for e in expected]
    ids = ids_of(0, 1, 2)
    assert postings.rows_with_all(ids).tolist() == twin.rows_with_all(ids).tolist()
    live_counts = postings.document_frequencies(ids, allowed)
    assert live_counts.tolist() == twin.document_frequencies(ids, allowed).tolist()


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ([2, 1], r"requested\[1\] is 1; it must be above requested\[0\], 2"),
        ([1, 1], r"requested\[1\] is 1; it must be above requested\[0\], 1"),
        ([0, 2], r"requested\[0\] is 0, which is not allowed"),
    ],
)
def test_requested_rows_must_ascend_and_be_allowed(kernels, requested, message):
    postings = postings_of(kernels, ROWS, 3)
    allowed = np.array([0, 1, 1], np.uint8)
    with pytest.raises(ValueError, match=message):
        postings.best_and_scores(
            *query({10: 0.5}, rows=3), allowed, 1, np.array(requested, np.uint32)
        )


def test_several_threads_search_the_same_postings(tmp_path):
    """The file is mapped into memory, read-only, and several threads search it at the same time."""
    count = WINDOW_ROWS + 100
    starts, entries, lengths = zipf_rows(count, vocabulary=300, shortest=5, longest=40)
    path = tmp_path / "postings"
    path.write_bytes(hrag_fast.postings_of(starts, entries, count))
    with path.open("rb") as file:
        postings = hrag_fast.Postings(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    terms = query(dict.fromkeys(range(20), 0.05), lengths)
    expected = postings.best(*terms, None, 50)[0].tolist()
    with ThreadPoolExecutor(4) as threads:
        results = threads.map(lambda _: postings.best(*terms, None, 50)[0].tolist(), range(20))
        assert all(rows == expected for rows in results)


def test_matches_of_the_forward_form_are_relative_to_the_first_row(kernels):
    starts, entries, _ = forward(ROWS, 3)
    matches = kernels.forward_matches(starts, entries, 1, 3, ids_of(10, 15, 20))
    assert [array.tolist() for array in matches] == [[0, 1], [0, 2], [2, 40]]
    assert {array.dtype for array in matches} == {np.dtype(np.uint32)}
    no_matches = kernels.forward_matches(starts, entries, 3, 3, ids_of(10))
    assert [len(array) for array in no_matches] == [0, 0, 0]


def test_matches_give_the_scores_of_rows_without_postings():
    starts, entries, count = forward(ROWS, 3)
    ids, weights, *norm, lengths = query({10: 0.75, 20: 0.25}, [2, 3, 40])
    matches = hrag_fast.forward_matches(starts, entries, 0, count, ids)
    postings = postings_of(hrag_fast, ROWS, 3)
    expected = all_scores(postings, (ids, weights, *norm, lengths))
    scores = leaf_scores(weights, LengthNorm(*norm), *matches, lengths)
    assert scores.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ids", [20, 10], r"ids\[1\] is 10; it must be above ids\[0\], 20"),
        ("ids", [10, 10], r"ids\[1\] is 10; it must be above ids\[0\], 10"),
        ("weights", [0.5], "weights has 1 entries; it must have 2"),
        ("weights", [0.5, 1.5], r"weights\[1\] is 1.5; it must be from 0 to 1"),
        ("weights", [-0.5, 0.5], r"weights\[0\] is -0.5; it must be from 0 to 1"),
        ("weights", [0.5, np.nan], r"weights\[1\] is nan; it must be from 0 to 1"),
        ("norm_base", -1.0, "norm_base is -1.0; it must be finite and not negative"),
        ("norm_per_term", np.inf, "norm_per_term is inf; it must be finite and not negative"),
        ("lengths", [1, 2], "lengths has 2 entries; it must have 3"),
    ],
)
def test_invalid_queries_are_refused(kernels, name, value, message):
    postings = postings_of(kernels, ROWS, 3)
    names = ("ids", "weights", "norm_base", "norm_per_term", "lengths")
    arguments = dict(zip(names, query({10: 0.5, 20: 0.5}, rows=3), strict=True))
    if isinstance(value, list):
        value = np.array(value, arguments[name].dtype)
    arguments[name] = value
    with pytest.raises(ValueError, match=message):
        postings.best(**arguments, allowed=None, count=5)
    requested = np.array([0], np.uint32)
    with pytest.raises(ValueError, match=message):
        postings.best_and_scores(**arguments, allowed=None, count=0, requested=requested)


def test_rows_that_do_not_exist_are_refused(kernels):
    postings = postings_of(kernels, ROWS, 3)
    terms = query({10: 0.5}, rows=3)
    with pytest.raises(IndexError, match=r"requested\[1\] is 3; it must be below 3"):
        postings.best_and_scores(*terms, None, 1, np.array([0, 3], np.uint32))
    two_flags = np.ones(2, np.uint8)
    with pytest.raises(ValueError, match="allowed has 2 entries; it must have 3"):
        postings.best(*terms, two_flags, 5)
    with pytest.raises(ValueError, match="alive has 2 entries; it must have 3"):
        postings.document_frequencies(terms[0], two_flags)
    with pytest.raises(ValueError, match="ids"):
        postings.rows_with_all(ids_of(2, 1))


@pytest.mark.parametrize(
    ("starts", "entries"),
    [
        ([0, 2], [1 << 8]),  # The row ends after the entries.
        ([0, 2, 1], [1 << 8 | 1, 2 << 8 | 1]),
        ([-1, 1], [1 << 8 | 1]),
        ([0, 1], [1 << 8]),  # The frequency is 0.
        ([0, 2], [2 << 8 | 1, 1 << 8 | 1]),
        ([0, 2], [1 << 8 | 1, 1 << 8 | 2]),
    ],
)
def test_a_damaged_forward_form_is_refused(kernels, starts, entries):
    arrays = np.array(starts, np.int64), np.array(entries, np.uint64)
    with pytest.raises(ValueError, match=r"row \d is damaged|does not lie in entries"):
        kernels.postings_of(*arrays, len(starts) - 1)


def test_arguments_that_disagree_with_the_forward_form_are_refused(kernels):
    starts, entries, _ = forward(ROWS, 3)
    with pytest.raises(ValueError, match="starts has 4 entries; it must have 5"):
        kernels.postings_of(starts, entries, 4)
    with pytest.raises(ValueError, match="rows is 536870913; it must be at most 536870912"):
        kernels.postings_of(starts, entries, 2**29 + 1)
    for first, last in ((2, 1), (0, 4), (4, 4)):
        with pytest.raises(ValueError, match="first and last"):
            kernels.forward_matches(starts, entries, first, last, ids_of(10))
    with pytest.raises(ValueError, match="ids"):
        kernels.forward_matches(starts, entries, 0, 3, ids_of(20, 10))
    with pytest.raises(ValueError, match=r"entries|starts"):
        kernels.forward_matches(starts, entries[:1], 0, 3, ids_of(10))


@pytest.mark.parametrize("remap", [[0, 1], [0, 0, 1], [0, 1, 3], [1, 2, DROPPED]])
def test_remaps_that_lose_or_repeat_a_row_are_refused(kernels, tmp_path, remap):
    """The error is raised before the file is created."""
    source = (postings_of(kernels, ROWS, 3), np.array(remap, np.uint32))
    with pytest.raises(ValueError, match="remap"):
        kernels.write_postings(tmp_path / "merged", [source])
    assert list(tmp_path.iterdir()) == []


def test_sources_without_postings_or_remap_are_refused(tmp_path):
    postings, remap = postings_of(hrag_fast, ROWS, 3), np.arange(3, dtype=np.uint32)
    for source in ((postings, None), (None, remap)):
        with pytest.raises(TypeError, match="source 1 must have postings and a remap, not None"):
            hrag_fast.write_postings(tmp_path / "merged", [(postings, remap), source])
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_written_are_an_error(kernels, tmp_path):
    source = (postings_of(kernels, ROWS, 3), np.arange(3, dtype=np.uint32))
    with pytest.raises(FileNotFoundError):
        kernels.write_postings(tmp_path / "nowhere" / "merged", [source])
    with pytest.raises(OSError, match="No space left"):
        kernels.write_postings("/dev/full", [source])


def test_every_changed_byte_is_refused_or_harmless():
    """A buffer with a changed byte is refused, or the kernel and the twin read the same from it."""
    rows = {0: {1: 1, 2: 9}, 31: {1: 7}, 40: {2: 1}, WINDOW_ROWS: {1: 255}, WINDOW_ROWS + 3: {1: 2}}
    rows |= {row: {3: 1} for row in range(100, 140)}
    buffer = hrag_fast.postings_of(*forward(rows, WINDOW_ROWS + 4))
    everything = np.arange(256, dtype=np.uint64)
    refused = 0
    for at in range(len(buffer)):
        for change in (1, 8, 128, 255):
            damaged = bytearray(buffer)
            damaged[at] ^= change
            try:
                postings = hrag_fast.Postings(damaged)
            except ValueError:
                refused += 1
                continue
            twin = twins.Postings(damaged)
            counts = postings.document_frequencies(everything, None)
            assert counts.tolist() == twin.document_frequencies(everything, None).tolist()
    assert refused > len(buffer)


def test_buffers_without_valid_postings_are_refused(kernels):
    buffer = kernels.postings_of(*forward(ROWS, 3))
    for damaged in (b"", buffer[:20], buffer[:-1], buffer + b"\0", b"x" + buffer[1:]):
        with pytest.raises(ValueError, match="postings"):
            kernels.Postings(damaged)


def test_postings_cannot_be_created_without_a_buffer():
    with pytest.raises(TypeError, match="exactly 1 positional argument"):
        hrag_fast.Postings.__new__(hrag_fast.Postings)
    with pytest.raises(TypeError, match="buffer"):
        hrag_fast.Postings.__new__(hrag_fast.Postings, None)


def test_postings_must_be_aligned_in_memory():
    buffer = bytearray(b"\0" * 4) + hrag_fast.postings_of(*forward(ROWS, 3))
    with pytest.raises(ValueError, match="multiple of 8 bytes"):
        hrag_fast.Postings(memoryview(buffer)[4:])


@pytest.mark.slow
@pytest.mark.parametrize("deleted_share", [0.0, 0.2])
def test_scores_equal_those_of_bm25s(deleted_share):
    """bm25s indexes only the rows that are alive. The postings contain deleted rows too."""
    import bm25s

    count = 10_000
    starts, entries, lengths = zipf_rows(count, vocabulary=20_000)
    alive = np.random.default_rng(2).random(count) >= deleted_share
    terms = [(entries[s:e] >> np.uint64(8)).tolist() for s, e in pairwise(starts)]
    term_frequencies = [(entries[s:e] & np.uint64(255)).tolist() for s, e in pairwise(starts)]
    oracle = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    oracle.index(
        [
            [
                str(t)
                for t, f in zip(terms[row], term_frequencies[row], strict=True)
                for _ in range(f)
            ]
            for row in np.flatnonzero(alive).tolist()
        ],
        show_progress=False,
    )
    postings = hrag_fast.Postings(hrag_fast.postings_of(starts, entries, count))
    living, flags = int(alive.sum()), alive.astype(np.uint8)
    for words in ([70, 500, 19_000], [0, 1, 5, 80, 300, 2000, 7777, 15_000], [12]):
        ids = ids_of(*words)
        frequencies = postings.document_frequencies(ids, flags).astype(np.float64)
        idf = np.log(1 + (living - frequencies + 0.5) / (frequencies + 0.5))
        weights = (idf / idf.sum()).astype(np.float32)
        norm = length_norm(living, int(lengths[alive].sum()))
        rows, scores = postings.best(ids, weights, *norm, lengths, flags, living)
        expected = np.zeros(count)
        expected[alive] = oracle.get_scores([str(word) for word in words])
        actual = np.zeros(count)
        actual[rows] = scores * idf.sum()
        assert np.allclose(actual, expected, atol=1e-4)
