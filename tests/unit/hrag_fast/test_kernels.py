"""The kernels `climb`, `rows_of_documents` and others of arrays agree with their twins."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hrag_fast
from hrag_fast import (
    COUNT,
    CUT_CODE_POINT,
    CUT_FORBIDDEN,
    CUT_PARAGRAPH,
    CUT_SENTENCE,
    CUT_WORD,
    MAX,
    MEAN,
    SUM,
)
from tests import twins


@pytest.fixture(params=[hrag_fast, twins], ids=["kernel", "twin"])
def kernels(request):
    return request.param


def label(document, leaf):
    return document << 20 | leaf


class Index:
    """The arrays of an index. Each row is a leaf, given as (document, leaf, ancestor).

    All rows are alive, except the rows in `deleted`.
    """

    def __init__(self, *leaves, deleted=()):
        self.labels = np.array([label(d, leaf) for d, leaf, _ in leaves], dtype=np.uint64)
        self.ancestors = np.array([ancestor for _, _, ancestor in leaves], dtype=np.uint32)
        self.alive = np.ones(len(leaves), dtype=np.uint8)
        self.alive[list(deleted)] = 0

    def climb(self, kernels, candidates, aggregation=MAX):
        """Returns the groups of the candidates, which are (row, score) pairs."""
        rows = np.array([row for row, _ in candidates], dtype=np.uint32)
        scores = np.array([score for _, score in candidates], dtype=np.float32)
        return kernels.climb(rows, scores, self.labels, self.ancestors, self.alive, aggregation)


# Document 1 has leaves 0 and 1 below ancestor 0, and leaf 2 below ancestor 1. Document 2 has one
# leaf.
INDEX = Index((1, 0, 0), (1, 1, 0), (1, 2, 1), (2, 0, 0))
CANDIDATES = [(3, 0.75), (0, 0.25), (1, 0.5), (2, 0.5)]


def test_leaves_of_one_ancestor_form_one_group(kernels):
    groups = INDEX.climb(kernels, CANDIDATES)
    assert groups.keys.tolist() == [label(2, 0), label(1, 0), label(1, 1)]
    assert groups.scores.tolist() == [0.75, 0.5, 0.5]
    assert groups.starts.tolist() == [0, 1, 3, 4]
    assert groups.children.tolist() == [3, 1, 0, 2]
    assert groups.child_scores.tolist() == [0.75, 0.5, 0.25, 0.5]


def test_results_have_the_documented_dtypes(kernels):
    dtypes = [array.dtype for array in INDEX.climb(kernels, CANDIDATES)]
    assert dtypes == [np.uint64, np.float32, np.uint32, np.uint32, np.float32]


@pytest.mark.parametrize(
    ("aggregation", "scores"),
    [
        (MAX, {label(2, 0): 0.75, label(1, 0): 0.5, label(1, 1): 0.5}),
        (SUM, {label(2, 0): 0.75, label(1, 0): 0.75, label(1, 1): 0.5}),
        (MEAN, {label(2, 0): 0.75, label(1, 0): 0.375, label(1, 1): 0.5}),
        (COUNT, {label(2, 0): 1.0, label(1, 0): 2.0, label(1, 1): 1.0}),
    ],
)
def test_the_score_of_a_group_follows_the_aggregation(kernels, aggregation, scores):
    groups = INDEX.climb(kernels, CANDIDATES, aggregation)
    assert dict(zip(groups.keys.tolist(), groups.scores.tolist(), strict=True)) == scores


def test_equal_scores_are_ordered_by_best_child(kernels):
    """Document 2's sum equals document 1's, but its best child is better."""
    groups = INDEX.climb(kernels, CANDIDATES, SUM)
    assert groups.keys.tolist() == [label(2, 0), label(1, 0), label(1, 1)]
    counted = INDEX.climb(kernels, [(2, 0.25), (3, 0.5)], COUNT)
    assert counted.keys.tolist() == [label(2, 0), label(1, 1)]


def test_equal_groups_are_ordered_by_key_and_equal_children_by_label(kernels):
    groups = INDEX.climb(kernels, [(3, 0.5), (2, 0.5), (1, 0.5), (0, 0.5)])
    assert groups.keys.tolist() == [label(1, 0), label(1, 1), label(2, 0)]
    assert groups.children.tolist() == [0, 1, 2, 3]


def test_deleted_rows_are_dropped(kernels):
    index = Index((1, 0, 0), (1, 1, 0), (2, 0, 0), deleted=(0, 2))
    groups = index.climb(kernels, [(0, 0.9), (1, 0.5), (2, 0.8)], COUNT)
    assert groups.keys.tolist() == [label(1, 0)]
    assert groups.scores.tolist() == [1.0]
    assert groups.children.tolist() == [1]


@pytest.mark.parametrize(
    "candidates", [[], [(0, 0.5), (1, 0.25)]], ids=["no candidates", "all deleted"]
)
def test_candidates_that_are_all_deleted_give_no_groups(kernels, candidates):
    groups = Index((1, 0, 0), (1, 1, 0), deleted=(0, 1)).climb(kernels, candidates)
    assert groups.starts.tolist() == [0]
    assert [len(array) for array in groups] == [0, 0, 1, 0, 0]


def test_an_empty_index_gives_no_groups(kernels):
    assert Index().climb(kernels, []).starts.tolist() == [0]


def test_all_candidates_of_a_long_list_may_have_the_same_ancestor(kernels):
    """The list is so long that the sort divides it into runs and merges these."""
    index = Index(*((7, leaf, 3) for leaf in range(1000)))
    groups = index.climb(kernels, [(row, row * 37 % 1000 / 1000) for row in range(1000)])
    assert groups.keys.tolist() == [label(7, 3)]
    assert groups.starts.tolist() == [0, 1000]
    assert groups.child_scores.tolist() == sorted(groups.child_scores.tolist(), reverse=True)


def test_candidates_with_equal_scores_are_in_the_order_of_labels(kernels):
    index = Index(*((leaf, 0, 0) for leaf in range(1000)))
    groups = index.climb(kernels, [(row, 0.5) for row in reversed(range(1000))])
    assert groups.children.tolist() == list(range(1000))
    assert groups.starts.tolist() == list(range(1001))


def test_the_largest_label_and_ancestor_fit(kernels):
    top = (1 << 44) - 1
    index = Index((top, (1 << 20) - 1, (1 << 20) - 1), (top, 0, 0))
    groups = index.climb(kernels, [(0, 0.5), (1, 0.25)])
    assert groups.keys.tolist() == [(1 << 64) - 1, label(top, 0)]


def test_sums_are_computed_in_double_precision(kernels):
    """The sum 2**24 + 1 is 2**24 in single precision."""
    index = Index((1, 0, 0), (1, 1, 0), (1, 2, 0))
    candidates = [(0, 16777216.0), (1, 1.0), (2, -16777216.0)]
    assert index.climb(kernels, candidates, SUM).scores.tolist() == [1.0]


def test_arrays_may_be_read_only(kernels):
    rows = np.frombuffer(np.array([3, 0], dtype=np.uint32).tobytes(), dtype=np.uint32)
    scores = np.frombuffer(np.array([0.5, 1.0], dtype=np.float32).tobytes(), dtype=np.float32)
    labels = np.frombuffer(INDEX.labels.tobytes(), dtype=np.uint64)
    groups = kernels.climb(rows, scores, labels, INDEX.ancestors, INDEX.alive, MAX)
    assert groups.children.tolist() == [0, 3]


@pytest.mark.parametrize("row", [4, 2**32 - 1])
def test_a_row_that_the_index_does_not_have_is_refused(kernels, row):
    with pytest.raises(IndexError, match=rf"rows\[1\] is {row}; it must be below 4"):
        INDEX.climb(kernels, [(0, 0.5), (row, 0.5)])


@pytest.mark.parametrize("aggregation", [-1, 4])
def test_an_unknown_aggregation_is_refused(kernels, aggregation):
    with pytest.raises(ValueError, match=f"aggregation is {aggregation}; it must be 0"):
        INDEX.climb(kernels, [], aggregation)


@pytest.mark.parametrize("name", ["scores", "ancestors", "alive"])
def test_arrays_of_different_lengths_are_refused(kernels, name):
    arguments = {
        "rows": np.zeros(1, dtype=np.uint32),
        "scores": np.zeros(1, dtype=np.float32),
        "labels": INDEX.labels,
        "ancestors": INDEX.ancestors,
        "alive": INDEX.alive,
    }
    arguments[name] = np.zeros(9, dtype=arguments[name].dtype)
    with pytest.raises(ValueError, match=f"{name} has 9 entries"):
        kernels.climb(**arguments, aggregation=MAX)


def test_the_kernel_refuses_a_wrong_dtype_or_layout():
    rows = np.zeros(2, dtype=np.uint32)
    scores = np.zeros(2, dtype=np.float64)
    rest = (INDEX.labels, INDEX.ancestors, INDEX.alive, MAX)
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        hrag_fast.climb(rows, scores, *rest)
    with pytest.raises(ValueError, match="not C-contiguous"):
        hrag_fast.climb(rows, np.zeros(4, dtype=np.float32)[::2], *rest)
    with pytest.raises(TypeError):
        hrag_fast.climb(None, np.zeros(2, dtype=np.float32), *rest)


def test_rows_of_documents_are_the_rows_of_their_leaves(kernels):
    leaves = ((5, 0), (7, 0), (7, 1), (2**43, 0), (6, 9))
    labels = np.array([label(*leaf) for leaf in leaves], "u8")
    for documents, expected in (
        ([], []),
        ([7], [1, 2]),
        ([1, 6, 8], [4]),
        ([5, 6, 7], [0, 1, 2, 4]),
        ([5, 2**43], [0, 3]),
        ([0, 2**44 - 1], []),
    ):
        rows = kernels.rows_of_documents(labels, np.array(documents, "u8"))
        assert (rows.dtype, rows.tolist()) == (np.uint32, expected)
    assert not len(kernels.rows_of_documents(labels[:0], np.array([5], "u8")))


def test_documents_in_a_wrong_order_give_only_rows_that_exist():
    labels = np.array([label(document, 0) for document in range(10)], "u8")
    for documents in ([9, 3], [4, 3], [3, 9, 5], [2, 2**60, 7], [2**64 - 1, 0], [0, 2**64 - 1]):
        rows = hrag_fast.rows_of_documents(labels, np.array(documents, "u8"))
        assert set(rows.tolist()) <= set(range(10))


def test_labels_and_documents_of_another_type_are_refused():
    labels = np.zeros(3, np.uint64)
    for wrong, error in (
        (labels.astype(np.int64), ValueError),
        (labels[::2], ValueError),
        (labels.reshape(3, 1), ValueError),
        (None, TypeError),
    ):
        with pytest.raises(error):
            hrag_fast.rows_of_documents(wrong, labels)
        with pytest.raises(error):
            hrag_fast.rows_of_documents(labels, wrong)


def test_a_row_that_is_not_among_the_rows_has_no_index():
    rows = np.array([2, 5, 9], np.uint32)
    for wanted in (0, 3, 10, 2**32 - 1):
        with pytest.raises(IndexError, match=rf"wanted\[1\] is {wanted}, which is not among"):
            hrag_fast.indexes_of(rows, np.array([5, wanted], np.uint32))
    with pytest.raises(IndexError):
        hrag_fast.indexes_of(rows[:0], rows)
    for wrong, error in (
        (rows.astype(np.int32), ValueError),
        (rows[::2], ValueError),
        (None, TypeError),
    ):
        with pytest.raises(error):
            hrag_fast.indexes_of(wrong, rows)
        with pytest.raises(error):
            hrag_fast.indexes_of(rows, wrong)


def test_threads_that_climb_at_the_same_time_get_the_right_groups():
    """`climb` releases the GIL, because there are more than 1,000 candidates."""
    index = Index(*((row // 5, row % 5, 0) for row in range(2000)))
    candidate_lists = [[(row, (row * step) % 2000) for row in range(2000)] for step in (1, 3, 7, 9)]
    expected_children = [
        index.climb(hrag_fast, candidates).children.tolist() for candidates in candidate_lists
    ]
    with ThreadPoolExecutor(4) as pool:
        climbs = pool.map(
            lambda candidates: index.climb(hrag_fast, candidates), candidate_lists * 25
        )
        assert [groups.children.tolist() for groups in climbs] == expected_children * 25


def rank(kernels, before, after):
    """Returns the rank of the cut between two texts."""
    head = before.encode()
    ends = np.array([len(head)], dtype=np.uint32)
    return int(kernels.boundary_ranks(head + after.encode(), ends)[0])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param("one wo", "rd", CUT_CODE_POINT, id="inside a word"),
        pytest.param("caf", "é", CUT_CODE_POINT, id="before an accent"),
        pytest.param("😀", "😀", CUT_CODE_POINT, id="between emoji"),
        pytest.param("line\r", "\nline", CUT_FORBIDDEN, id="inside a CRLF"),
        pytest.param("one ", "two", CUT_WORD, id="after a space"),
        pytest.param("one", " two", CUT_WORD, id="before a space"),
        pytest.param("one", "\u3000two", CUT_WORD, id="before an ideographic space"),
        pytest.param("one\u3000", "two", CUT_WORD, id="after an ideographic space"),
        pytest.param("one\v", "two", CUT_WORD, id="after a vertical tab"),
        pytest.param("one\u00a0", "two", CUT_CODE_POINT, id="after a no-break space"),
        pytest.param("中", "文", CUT_WORD, id="between ideographs"),
        pytest.param("a", "文", CUT_WORD, id="before an ideograph"),
        pytest.param("文", "a", CUT_WORD, id="after an ideograph"),
        pytest.param("か", "x", CUT_WORD, id="after kana"),
        pytest.param("한", "x", CUT_WORD, id="after hangul"),
        pytest.param("x", "\U00020000", CUT_WORD, id="before a rare ideograph"),
        pytest.param("x", "\U00010000", CUT_CODE_POINT, id="before another plane's letter"),
        pytest.param("，", "x", CUT_WORD, id="after a full-width comma"),
        pytest.param("One.", " Two", CUT_SENTENCE, id="after a full stop"),
        pytest.param("One. ", "Two", CUT_SENTENCE, id="after a full stop and a space"),
        pytest.param("One?!", " Two", CUT_SENTENCE, id="after two marks"),
        pytest.param('He said "No." ', "I", CUT_SENTENCE, id="after a closing quote"),
        pytest.param("(One.)", " Two", CUT_SENTENCE, id="before the space after a bracket"),
        pytest.param("He said “No.”  ", "I", CUT_SENTENCE, id="after a curly quote"),
        pytest.param("3.", "14", CUT_CODE_POINT, id="in a number"),
        pytest.param(".", "5", CUT_CODE_POINT, id="after a dot that begins the text"),
        pytest.param("One.)", "Two", CUT_CODE_POINT, id="after a bracket without a space"),
        pytest.param("don't) ", "Two", CUT_WORD, id="after a closer that ends no sentence"),
        pytest.param('") ', "Two", CUT_WORD, id="after closers that begin the text"),
        pytest.param("完。", "下", CUT_SENTENCE, id="after a Chinese full stop"),
        pytest.param("「完。」", "下", CUT_SENTENCE, id="after a Chinese quotation"),
        pytest.param("好！", "x", CUT_SENTENCE, id="after a full-width exclamation mark"),
        pytest.param("好", "！", CUT_WORD, id="before a full-width exclamation mark"),
        pytest.param("wait…", "x", CUT_SENTENCE, id="after an ellipsis"),
        pytest.param("line\n", "line", CUT_SENTENCE, id="after a line feed"),
        pytest.param("line\r\n", "line", CUT_SENTENCE, id="after a CRLF"),
        pytest.param("line\r", "line", CUT_SENTENCE, id="after a carriage return"),
        pytest.param("line\n", "\nline", CUT_SENTENCE, id="between two line feeds"),
        pytest.param("line\n    ", "line", CUT_SENTENCE, id="after an indent"),
        pytest.param("line", "\nline", CUT_WORD, id="before a line feed"),
        pytest.param("line\n\n", "line", CUT_PARAGRAPH, id="after an empty line"),
        pytest.param("line\n \t\n  ", "line", CUT_PARAGRAPH, id="after a blank line"),
        pytest.param("line\r\n\r\n", "line", CUT_PARAGRAPH, id="after an empty CRLF line"),
        pytest.param("line\r\r", "line", CUT_PARAGRAPH, id="after two carriage returns"),
        pytest.param("page\f", "page", CUT_PARAGRAPH, id="after a form feed"),
        pytest.param("the en", "", CUT_PARAGRAPH, id="at the end"),
        pytest.param("One." + " " * 63, " Two", CUT_SENTENCE, id="63 blanks back"),
        pytest.param("One." + " " * 65, "Two", CUT_WORD, id="past the look-back over blanks"),
        pytest.param("\n" + "\u3000" * 21, "x", CUT_SENTENCE, id="64 bytes of wide blanks"),
        pytest.param("\n" + "\u3000" * 22, "x", CUT_WORD, id="66 bytes of wide blanks"),
        pytest.param("完。" + ")" * 16, "x", CUT_SENTENCE, id="16 closers back"),
        pytest.param("完。" + ")" * 17, "x", CUT_CODE_POINT, id="past the look-back over closers"),
        pytest.param("完。" + "」" * 6, "x", CUT_WORD, id="18 bytes of wide closers"),
    ],
)
def test_a_cut_has_the_documented_rank(kernels, before, after, expected):
    assert rank(kernels, before, after) == expected


@pytest.mark.parametrize("closer", "\"')]}”’」』）》】")
@pytest.mark.parametrize("mark", ".!?。！？；…．｡")
def test_each_closing_quote_or_bracket_may_follow_each_sentence_end(kernels, mark, closer):
    assert rank(kernels, f"end{mark}{closer} ", "next") == CUT_SENTENCE


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (0x3000, 0x30FF),
        (0x3400, 0x4DBF),
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7AF),
        (0xF900, 0xFAFF),
        (0xFF00, 0xFFEF),
        (0x20000, 0x3FFFF),
    ],
)
def test_each_range_of_cjk_characters_has_the_documented_first_and_last_character(
    kernels, first, last
):
    ranks = [rank(kernels, "x", chr(c) + "x") for c in (first - 1, first, last, last + 1)]
    assert ranks == [CUT_CODE_POINT, CUT_WORD, CUT_WORD, CUT_CODE_POINT]


def test_cuts_inside_a_code_point_are_forbidden(kernels):
    text = "aé文😀".encode()
    ends = np.arange(1, len(text) + 1, dtype=np.uint32)
    ranks = kernels.boundary_ranks(text, ends)
    starts = {1, 3, 6, 10}
    assert ranks.dtype == np.uint8
    assert {int(end) for end, r in zip(ends, ranks, strict=True) if r != CUT_FORBIDDEN} == starts


def test_no_ends_give_no_ranks(kernels):
    assert kernels.boundary_ranks(b"", np.array([], dtype=np.uint32)).tolist() == []


@pytest.mark.parametrize("end", [0, 6])
def test_an_end_outside_the_text_is_refused(kernels, end):
    with pytest.raises(IndexError, match=rf"ends\[1\] is {end}; it must be from 1 to 5"):
        kernels.boundary_ranks(b"hello", np.array([5, end], dtype=np.uint32))


def test_the_kernel_ranks_cuts_of_bytes_only():
    with pytest.raises(TypeError):
        hrag_fast.boundary_ranks("hello", np.array([1], dtype=np.uint32))


def test_bytes_that_are_not_utf8_stay_inside_the_text():
    """The ranks have no meaning, but nothing outside of the text is read."""
    text = b"\x80" * 40 + b"\xf4\xff\xe3"
    ranks = hrag_fast.boundary_ranks(text, np.arange(1, len(text) + 1, dtype=np.uint32))
    assert ranks.max() <= CUT_PARAGRAPH


def test_a_missing_extension_is_an_error_that_says_what_to_do(tmp_path):
    """The package is installed without a compiler, so it has no compiled modules."""
    package = Path(hrag_fast.__file__).parent
    shutil.copytree(package, tmp_path / "hrag_fast", ignore=shutil.ignore_patterns("*.so"))
    command = [sys.executable, "-c", "import hrag_fast"]
    ran = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "ImportError: hrag_fast._analysis is not compiled; install g++ " in ran.stderr


@pytest.mark.parametrize(
    "kind",
    [
        hrag_fast.CitedDocument,
        hrag_fast.Graph,
        hrag_fast.PassageDocument,
        hrag_fast.PassageEncoder,
        hrag_fast.Postings,
    ],
)
def test_no_kernel_is_created_without_its_data(kind):
    with pytest.raises(TypeError, match="argument"):
        kind.__new__(kind)
