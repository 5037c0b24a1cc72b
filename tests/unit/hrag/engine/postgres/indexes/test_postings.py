"""Packed postings and term vectors are what was packed, however wide their values are."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.common.labels import LEAF_BITS, MAX_LEAVES, ordinals_of
from hrag.engine.postgres.indexes.lexical_index import Part, due_merge, inverted
from hrag.engine.postgres.indexes.postings import Postings, StoredPostings, fits_a_part
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


def postings_of(first: int, given_terms: list[dict]) -> Postings:
    """Terms 0, 10, 20 and so on, with the postings that `postings` draws."""
    ordered = [item for each in given_terms for item in sorted(each.items())]
    return Postings(
        np.arange(len(given_terms), dtype=np.uint64) * np.uint64(10),
        np.cumsum([0, *map(len, given_terms)]),
        np.array([first + offset << LEAF_BITS | leaf for (offset, leaf), _ in ordered], np.uint64),
        np.array([frequency for _, (frequency, _) in ordered], np.uint32),
        np.array([length for _, (_, length) in ordered], np.uint32),
    )


def equal(found: Postings, expected: Postings) -> bool:
    return all(map(np.array_equal, found, expected))


@given(ordinals, st.lists(postings, max_size=5))
def test_postings_are_unpacked_as_they_were_packed(first, given_terms):
    given_postings = postings_of(first, given_terms)
    rows = given_postings.packed(first)
    stored = [(10 * number, first, row) for number, row in enumerate(rows)]
    assert equal(Postings.unpacked(stored), given_postings)


def test_slices_have_whole_documents_in_their_order_and_all_postings_once():
    """Of two parts, in which some documents have more postings than others."""
    draw = np.random.default_rng(3)
    stored = []
    for first, span in ((1, 300), (1 << 33, 100_000)):
        for term in range(40):
            places = draw.integers(0, span, draw.integers(1, 2000)) // draw.integers(1, 9)
            own = {(int(place), term % 3): (1, 9) for place in places}
            (row,) = postings_of(first, [own]).packed(first)
            stored.append((term, first, row))
    stored.sort()
    whole = Postings.unpacked(stored)
    slices = list(StoredPostings(stored).slices(2048))
    assert len(slices) > 8
    assert max(len(each.labels) for each in slices) < 2 * 2048
    owners = [ordinals_of(each.labels) for each in slices]
    for before, after in pairwise(each for each in owners if len(each)):
        assert before.max() < after.min()
    found = [
        (term, label)
        for each in slices
        for term, start, end in zip(each.terms, each.starts, each.starts[1:], strict=False)
        for label in each.labels[start:end]
    ]
    every = zip(np.repeat(whole.terms, np.diff(whole.starts)), whole.labels, strict=True)
    assert sorted(found) == sorted(every)
    (alone,) = StoredPostings(stored).slices(len(whole.labels))
    assert equal(alone, whole)


@given(ordinals, st.lists(postings, min_size=1, max_size=5))
def test_terms_packed_together_are_packed_as_each_alone(first, given_terms):
    alone = [row for each in given_terms for row in postings_of(first, [each]).packed(first)]
    assert postings_of(first, given_terms).packed(first) == alone


def test_a_row_has_a_header_and_narrow_columns():
    """The bytes that are stored: they stay as they are, or old parts could not be read."""
    found = postings_of(5, [{(0, 2): (3, 4), (258, 1): (255, 70_000)}])
    header = "02000000 02000000 02000000 04000000"
    offsets, leaves, lengths = "0000 0201", "0302 ff01", "04000000 70110100"
    expected = bytes.fromhex(header + offsets + leaves + lengths)
    assert found.packed(5) == [expected]


def test_narrow_values_take_few_bytes():
    """Four bytes each for first leaves of ten thousand neighbouring documents."""
    (row,) = postings_of(1, [{(offset, 0): (1, 200) for offset in range(10_000)}]).packed(1)
    assert len(row) == 16 + 4 * 10_000


def test_a_row_that_was_cut_off_is_damage():
    (row,) = postings_of(1, [{(0, 0): (1, 2), (1, 0): (1, 2)}]).packed(1)
    for size in range(len(row)):
        with pytest.raises(DataLoss, match=f"term 7 from ordinal 1 .* {size} bytes"):
            Postings.unpacked([(3, 1, row), (7, 1, row[:size])])


@given(ordinals, st.lists(postings, max_size=5), st.data())
def test_chosen_postings_keep_their_terms(first, given_terms, data):
    whole = postings_of(first, given_terms)
    chosen = data.draw(
        st.lists(st.booleans(), min_size=len(whole.labels), max_size=len(whole.labels))
    )
    found = whole.only(np.array(chosen, np.bool_))
    expected = [kept for kept, is_chosen in zip(entries(whole), chosen, strict=True) if is_chosen]
    assert entries(found) == expected
    assert (np.diff(found.starts) > 0).all()


@given(ordinals, st.lists(postings, min_size=3, max_size=3))
def test_neighbours_of_one_term_become_one(first, given_terms):
    apart = postings_of(first, given_terms)._replace(terms=np.array([4, 4, 9], np.uint64))
    found = apart.merged()
    assert found.terms.tolist() == [4, 9]
    assert entries(found) == entries(apart)


def entries(found: Postings) -> list[tuple[int, ...]]:
    """Term, label, frequency and length of each posting."""
    terms = np.repeat(found.terms, np.diff(found.starts))
    columns = (terms, found.labels, found.frequencies, found.lengths)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_part_holds_documents_as_far_apart_as_its_offsets_reach():
    assert fits_a_part(7, 7 + 0xFFFF_FFFF)
    assert not fits_a_part(7, 8 + 0xFFFF_FFFF)


terms_of_leaf = st.dictionaries(st.integers(0, 9), st.integers(1, 255), max_size=6)
documents = st.lists(st.lists(terms_of_leaf, min_size=1, max_size=4), max_size=5)


def leaf_terms(document: list[dict[int, int]]) -> LeafTerms:
    entries = [[term << 8 | count for term, count in sorted(leaf.items())] for leaf in document]
    starts = np.cumsum([0, *map(len, entries)])
    lengths = [sum(leaf.values()) for leaf in document]
    return LeafTerms(
        starts.astype(np.int64),
        np.array([entry for leaf in entries for entry in leaf], np.uint64),
        np.array(lengths, np.uint32),
    )


@given(documents)
def test_term_vectors_of_documents_are_unpacked_one_after_the_other(given_documents):
    found = unpacked([packed(leaf_terms(document)) for document in given_documents])
    expected = leaf_terms([leaf for document in given_documents for leaf in document])
    for column, wanted in zip(found, expected, strict=True):
        assert column.tolist() == wanted.tolist()


@given(documents)
def test_inverting_keeps_every_entry(given_documents):
    every = [leaf for document in given_documents for leaf in document]
    labels = np.arange(len(every), dtype=np.uint64)
    found = {
        (term, label): (frequency, length)
        for term, label, frequency, length in entries(inverted(labels, leaf_terms(every)))
    }
    assert found == {
        (term, number): (count, sum(leaf.values()))
        for number, leaf in enumerate(every)
        for term, count in leaf.items()
    }


def parts(*sizes: int, deleted: int = 0) -> list[Part]:
    return [Part(n, n, n, size, deleted) for n, size in enumerate(sizes, 1)]


def test_neighbours_become_one_that_have_the_leaves_for_a_part_of_the_next_size():
    small, large = 1000, 10_000
    assert due_merge(parts(*[small] * 4)) == []
    assert due_merge(parts(large, *[small] * 5)) == parts(large, *[small] * 5)[1:]
    assert due_merge(parts(*[small] * 4, large, *[small] * 4)) == []
    assert due_merge(parts(*[1 << 18] * 8)) == []


def test_a_part_with_many_deleted_leaves_is_rewritten():
    assert due_merge(parts(1000, deleted=200)) == []
    assert due_merge(parts(1000, deleted=201)) == parts(1000, deleted=201)
