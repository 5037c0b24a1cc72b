"""Postings and term vectors are equal after packing and unpacking, for values of any width."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.common.labels import LEAF_BITS, MAX_LEAVES, ordinals_of
from hrag.engine.postgres.indexes.lexical_index import IndexPart, due_merge, inverted
from hrag.engine.postgres.indexes.postings import PostingArrays, StoredPostings, fits_a_part
from hrag.engine.postgres.indexes.term_vectors import packed, unpacked
from hrag.errors import DataLoss
from hrag.text.analysis import LeafTerms

ordinals = st.integers(1, 1 << 40)
offsets = st.integers(0, 300) | st.integers(0, 0xFFFF_FFFF)
leaves = st.integers(0, 300) | st.integers(0, MAX_LEAVES - 1)
postings = st.dictionaries(
    st.tuples(offsets, leaves),
    st.tuples(st.integers(1, 255), st.integers(1, 300) | st.integers(1, 0xFFFF_FFFF)),
    min_size=1,
    max_size=20,
)


def postings_of(first: int, terms: list[dict]) -> PostingArrays:
    """Returns the postings of the terms with the ids 0, 10, 20 and so on.

    Each element of `terms` has the postings of one term, as the strategy `postings` draws them. It
    maps (ordinal of the document minus `first`, index of the leaf) to (frequency, leaf length).
    """
    ordered = [item for term in terms for item in sorted(term.items())]
    return PostingArrays(
        np.arange(len(terms), dtype=np.uint64) * np.uint64(10),
        np.cumsum([0, *map(len, terms)]),
        np.array([first + offset << LEAF_BITS | leaf for (offset, leaf), _ in ordered], np.uint64),
        np.array([frequency for _, (frequency, _) in ordered], np.uint32),
        np.array([length for _, (_, length) in ordered], np.uint32),
    )


def equal(actual: PostingArrays, expected: PostingArrays) -> bool:
    return all(map(np.array_equal, actual, expected))


@given(ordinals, st.lists(postings, max_size=5))
def test_postings_are_unpacked_as_they_were_packed(first, terms):
    original = postings_of(first, terms)
    rows = original.packed(first)
    stored = [(10 * number, first, row) for number, row in enumerate(rows)]
    assert equal(PostingArrays.unpacked(stored), original)


def test_slices_contain_whole_documents_in_order_and_each_posting_once():
    """The postings are in two parts. Some documents have more postings than others."""
    draw = np.random.default_rng(3)
    stored = []
    for first, span in ((1, 300), (1 << 33, 100_000)):
        for term in range(40):
            drawn_offsets = draw.integers(0, span, draw.integers(1, 2000)) // draw.integers(1, 9)
            term_postings = {
                (int(drawn_offset), term % 3): (1, 9) for drawn_offset in drawn_offsets
            }
            (row,) = postings_of(first, [term_postings]).packed(first)
            stored.append((term, first, row))
    stored.sort()
    whole = PostingArrays.unpacked(stored)
    slices = list(StoredPostings(stored).slices(2048))
    assert len(slices) > 8
    assert max(len(part.labels) for part in slices) < 2 * 2048
    owners = [ordinals_of(part.labels) for part in slices]
    for before, after in pairwise(ordinals for ordinals in owners if len(ordinals)):
        assert before.max() < after.min()
    matches = [
        (term, label)
        for part in slices
        for term, start, end in zip(part.terms, part.starts, part.starts[1:], strict=False)
        for label in part.labels[start:end]
    ]
    all_matches = zip(np.repeat(whole.terms, np.diff(whole.starts)), whole.labels, strict=True)
    assert sorted(matches) == sorted(all_matches)
    (single,) = StoredPostings(stored).slices(len(whole.labels))
    assert equal(single, whole)


@given(ordinals, st.lists(postings, min_size=1, max_size=5))
def test_terms_are_packed_together_as_they_are_packed_one_by_one(first, terms):
    one_by_one = [row for term in terms for row in postings_of(first, [term]).packed(first)]
    assert postings_of(first, terms).packed(first) == one_by_one


def test_a_row_has_a_header_and_narrow_columns():
    """The stored bytes must not change. Otherwise, stored parts could no longer be read."""
    row_postings = postings_of(5, [{(0, 2): (3, 4), (258, 1): (255, 70_000)}])
    header = "02000000 02000000 02000000 04000000"
    offsets, leaves, lengths = "0000 0201", "0302 ff01", "04000000 70110100"
    expected = bytes.fromhex(header + offsets + leaves + lengths)
    assert row_postings.packed(5) == [expected]


def test_small_values_are_stored_in_few_bytes():
    """The postings of one term in ten thousand consecutive documents take four bytes each."""
    (row,) = postings_of(1, [{(offset, 0): (1, 200) for offset in range(10_000)}]).packed(1)
    assert len(row) == 16 + 4 * 10_000


def test_a_truncated_row_is_reported_as_damaged():
    (row,) = postings_of(1, [{(0, 0): (1, 2), (1, 0): (1, 2)}]).packed(1)
    for size in range(len(row)):
        with pytest.raises(DataLoss, match=f"term 7 from ordinal 1 .* {size} bytes"):
            PostingArrays.unpacked([(3, 1, row), (7, 1, row[:size])])


@given(ordinals, st.lists(postings, max_size=5), st.data())
def test_selected_postings_keep_their_terms(first, terms, data):
    whole = postings_of(first, terms)
    chosen = data.draw(
        st.lists(st.booleans(), min_size=len(whole.labels), max_size=len(whole.labels))
    )
    remaining = whole.only(np.array(chosen, np.bool_))
    expected = [entry for entry, is_chosen in zip(entries(whole), chosen, strict=True) if is_chosen]
    assert entries(remaining) == expected
    assert (np.diff(remaining.starts) > 0).all()


@given(ordinals, st.lists(postings, min_size=3, max_size=3))
def test_adjacent_lists_of_the_same_term_are_merged(first, terms):
    separate = postings_of(first, terms)._replace(terms=np.array([4, 4, 9], np.uint64))
    merged = separate.merged()
    assert merged.terms.tolist() == [4, 9]
    assert entries(merged) == entries(separate)


def entries(postings: PostingArrays) -> list[tuple[int, ...]]:
    """Returns the term, the label, the frequency and the leaf length of each posting."""
    terms = np.repeat(postings.terms, np.diff(postings.starts))
    columns = (terms, postings.labels, postings.frequencies, postings.lengths)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_offsets_of_ordinals_in_a_part_fit_into_four_bytes():
    assert fits_a_part(7, 7 + 0xFFFF_FFFF)
    assert not fits_a_part(7, 8 + 0xFFFF_FFFF)


terms_of_leaf = st.dictionaries(st.integers(0, 9), st.integers(1, 255), max_size=6)
documents = st.lists(st.lists(terms_of_leaf, min_size=1, max_size=4), max_size=5)


def leaf_terms(document: list[dict[int, int]]) -> LeafTerms:
    """Returns the term vector of a document; its leaves map terms to their counts."""
    entries = [[term << 8 | count for term, count in sorted(leaf.items())] for leaf in document]
    starts = np.cumsum([0, *map(len, entries)])
    lengths = [sum(leaf.values()) for leaf in document]
    return LeafTerms(
        starts.astype(np.int64),
        np.array([entry for leaf in entries for entry in leaf], np.uint64),
        np.array(lengths, np.uint32),
    )


@given(documents)
def test_term_vectors_of_several_documents_are_unpacked_into_one_in_order(documents):
    actual = unpacked([packed(leaf_terms(document)) for document in documents])
    expected = leaf_terms([leaf for document in documents for leaf in document])
    for column, expected_column in zip(actual, expected, strict=True):
        assert column.tolist() == expected_column.tolist()


@given(documents)
def test_inverting_keeps_every_entry(documents):
    all_leaves = [leaf for document in documents for leaf in document]
    labels = np.arange(len(all_leaves), dtype=np.uint64)
    actual = {
        (term, label): (frequency, length)
        for term, label, frequency, length in entries(inverted(labels, leaf_terms(all_leaves)))
    }
    assert actual == {
        (term, number): (count, sum(leaf.values()))
        for number, leaf in enumerate(all_leaves)
        for term, count in leaf.items()
    }


def parts(*sizes: int, deleted: int = 0) -> list[IndexPart]:
    return [IndexPart(n, n, n, size, deleted) for n, size in enumerate(sizes, 1)]


def test_adjacent_parts_with_enough_leaves_for_the_next_tier_are_merged():
    small, large = 1000, 10_000
    assert due_merge(parts(*[small] * 4)) == []
    assert due_merge(parts(large, *[small] * 5)) == parts(large, *[small] * 5)[1:]
    assert due_merge(parts(*[small] * 4, large, *[small] * 4)) == []
    assert due_merge(parts(*[1 << 18] * 8)) == []


def test_a_part_with_many_deleted_leaves_is_rewritten():
    assert due_merge(parts(1000, deleted=200)) == []
    assert due_merge(parts(1000, deleted=201)) == parts(1000, deleted=201)
