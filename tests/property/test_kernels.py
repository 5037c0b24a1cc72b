"""The compiled kernels return the same bits as their twins in Python, for any arguments."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hrag_fast
from hrag_fast import COUNT, CUT_FORBIDDEN, CUT_PARAGRAPH, MAX, MEAN, SUM
from tests import twins

AGGREGATIONS = (MAX, SUM, MEAN, COUNT)
# With these few scores, there are many ties, and zeros of both signs.
FEW_SCORES = st.sampled_from([-0.5, -0.0, 0.0, 0.25, 0.5])
ANY_SCORE = st.floats(-1000, 1000, width=32)


@st.composite
def climbs(draw):
    """Draws arguments of `climb`.

    They have few documents and few ancestors, so that groups have several leaves.
    """
    leaf = st.tuples(st.integers(0, 4), st.integers(0, 30))
    leaves = draw(st.lists(leaf, unique=True, max_size=60))
    n = len(leaves)
    rows = draw(st.permutations(range(n)))[: draw(st.integers(0, n))]
    k = len(rows)
    scores = draw(st.lists(draw(st.sampled_from([FEW_SCORES, ANY_SCORE])), min_size=k, max_size=k))
    ancestors = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    alive = draw(st.lists(st.sampled_from([0, 1, 1, 1]), min_size=n, max_size=n))
    return (
        np.array(rows, dtype=np.uint32),
        np.array(scores, dtype=np.float32),
        np.array([document << 20 | leaf for document, leaf in leaves], dtype=np.uint64),
        np.array(ancestors, dtype=np.uint32),
        np.array(alive, dtype=np.uint8),
        draw(st.sampled_from(AGGREGATIONS)),
    )


def assert_same(groups, expected):
    for name, array, other in zip(groups._fields, groups, expected, strict=True):
        assert array.dtype == other.dtype, name
        assert array.tobytes() == other.tobytes(), (name, array, other)


@given(climbs())
def test_climb_equals_its_twin(arguments):
    assert_same(hrag_fast.climb(*arguments), twins.climb(*arguments))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("candidate_count", [8, 9, 100, 1000, 1001, 5000])
def test_climb_equals_its_twin_on_long_lists(candidate_count, aggregation):
    """Some lengths are near the shortest run of the sort. Others are near the shortest list for
    which the kernel releases the GIL.
    """
    random = np.random.default_rng(candidate_count + aggregation)
    n = 2 * candidate_count
    arguments = (
        random.permutation(n)[:candidate_count].astype(np.uint32),
        (random.integers(-50, 50, candidate_count) / 64).astype(np.float32),
        random.permutation(n).astype(np.uint64) % 97 << 20 | np.arange(n, dtype=np.uint64),
        random.integers(0, 9, n).astype(np.uint32),
        (random.random(n) < 0.9).astype(np.uint8),
        aggregation,
    )
    assert_same(hrag_fast.climb(*arguments), twins.climb(*arguments))


@given(climbs())
def test_climb_returns_each_live_candidate_once_below_its_ancestor(arguments):
    rows, scores, labels, ancestors, alive, _ = arguments
    groups = hrag_fast.climb(*arguments)
    scores_by_row = dict(zip(rows.tolist(), scores.tolist(), strict=True))
    live = [row for row in rows.tolist() if alive[row]]
    assert sorted(groups.children.tolist()) == sorted(live)
    assert groups.child_scores.tolist() == [scores_by_row[c] for c in groups.children.tolist()]
    assert len(set(groups.keys.tolist())) == len(groups.keys)
    assert (np.diff(groups.scores) <= 0).all()
    for j, key in enumerate(groups.keys.tolist()):
        children = groups.children[groups.starts[j] : groups.starts[j + 1]]
        assert len(children) > 0
        assert {int(labels[c]) >> 20 << 20 | int(ancestors[c]) for c in children} == {key}


@st.composite
def selections(draw):
    """Draws arguments of `rows_of_documents`: labels in any order, and ordinals of documents."""
    size = draw(st.sampled_from([8, 64, 1 << 44]))
    documents = st.integers(0, size - 1)
    leaves = st.tuples(documents, st.integers(0, (1 << 20) - 1))
    labels = [document << 20 | leaf for document, leaf in draw(st.lists(leaves, max_size=20))]
    chosen = draw(st.sets(documents | st.sampled_from([label >> 20 for label in labels] or [0])))
    return np.array(labels, np.uint64), np.array(sorted(chosen), np.uint64)


@given(st.sets(st.integers(0, 2**32 - 1), max_size=40), st.data())
def test_indexes_of_rows_equal_their_twin(numbers, data):
    rows = np.array(sorted(numbers), np.uint32)
    drawn = data.draw(st.lists(st.sampled_from(sorted(numbers)), max_size=60)) if numbers else []
    arguments = rows, np.array(drawn, np.uint32)
    indexes, expected = hrag_fast.indexes_of(*arguments), twins.indexes_of(*arguments)
    assert indexes.dtype == expected.dtype == np.int64
    assert indexes.tolist() == expected.tolist() == rows.searchsorted(arguments[1]).tolist()


@given(selections())
def test_rows_of_documents_equal_their_twin(arguments):
    rows = hrag_fast.rows_of_documents(*arguments)
    expected = twins.rows_of_documents(*arguments)
    assert rows.dtype == expected.dtype == np.uint32
    assert rows.tolist() == expected.tolist()


PIECES = st.sampled_from(
    [
        "One word", "end.", "Really?!", "3.14", "e.g.", "中文", "完。", "好！」", "「是…」", "かな",
        "한국", "😀", "👩‍👩‍👧", "é", "ﬁ", "𠀀", "\u3000", " ", "  ", "\t", "\n", "\r\n", "\r", "\v",
        "\f", "\n\n", "\r\n\r\n", ".", "!", '"', "'", ")", "]", "}", "”", "’", "』", "）", "》",
        "】", "．", "｡", "；", " " * 61, "\u3000" * 20, ")" * 13, "」" * 5,
    ]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=30).map("".join), st.text(max_size=60))


def every_end(text):
    return np.arange(1, len(text) + 1, dtype=np.uint32)


@given(TEXTS)
@example("x" + "\n" * 200 + "y")
@example("完。" + "\u3000" * 40 + "」" * 9 + "x")
def test_boundary_ranks_equal_their_twin_at_every_byte(text):
    data = text.encode()
    ends = every_end(data)
    ranks = hrag_fast.boundary_ranks(data, ends)
    assert ranks.tolist() == twins.boundary_ranks(data, ends).tolist()


@given(TEXTS, st.data())
def test_a_boundary_rank_does_not_depend_on_the_other_ends(text, data):
    encoded = text.encode()
    everywhere = hrag_fast.boundary_ranks(encoded, every_end(encoded))
    offsets = st.lists(st.integers(1, len(encoded))) if encoded else st.just([])
    chosen = np.array(data.draw(offsets), dtype=np.uint32)
    ranks = hrag_fast.boundary_ranks(encoded, chosen)
    assert ranks.tolist() == [everywhere[end - 1] for end in chosen.tolist()]


@given(TEXTS)
def test_allowed_cuts_divide_a_text_into_whole_code_points(text):
    encoded = text.encode()
    ends = every_end(encoded)
    ranks = hrag_fast.boundary_ranks(encoded, ends)
    start = 0
    pieces = []
    for end in ends[ranks != CUT_FORBIDDEN].tolist():
        pieces.append(encoded[start:end].decode())
        start = end
    assert "".join(pieces) == text
    assert all(len(piece) == 1 or piece == "\r\n" for piece in pieces)
    assert not len(ranks) or ranks[-1] == CUT_PARAGRAPH
