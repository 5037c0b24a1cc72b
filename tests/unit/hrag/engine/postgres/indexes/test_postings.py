"""Packed postings and term vectors are what was packed, however wide their values are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hrag.analysis import LeafTerms
from hrag.engine.postgres.indexes.lexical_index import Part, due_merge, inverted
from hrag.engine.postgres.indexes.postings import PostingList, fits_a_part
from hrag.engine.postgres.indexes.term_vectors import packed, unpacked
from hrag.engine.stored.labels import LEAF_BITS, MAX_LEAVES

ordinals = st.integers(1, 1 << 40)
offsets = st.integers(0, 300) | st.integers(0, 0xFFFF_FFFF)
leaves = st.integers(0, 300) | st.integers(0, MAX_LEAVES - 1)
postings = st.dictionaries(
    st.tuples(offsets, leaves),
    st.tuples(st.integers(1, 255), st.integers(1, 300) | st.integers(1, 0xFFFF_FFFF)),
    min_size=1,
    max_size=20,
)


@given(ordinals, postings)
def test_postings_are_unpacked_as_they_were_packed(first, given_postings):
    ordered = sorted(given_postings.items())
    labels = [first + offset << LEAF_BITS | leaf for (offset, leaf), _ in ordered]
    frequencies, lengths = zip(*(values for _, values in ordered), strict=True)
    found = PostingList(
        np.array(labels, np.uint64), np.array(frequencies, np.uint32), np.array(lengths, np.uint32)
    )
    again = PostingList.unpacked(found.packed(first), first)
    for column, expected in zip(again, found, strict=True):
        assert column.tolist() == expected.tolist()


def test_narrow_values_take_few_bytes():
    """Four bytes each for first leaves of ten thousand neighbouring documents."""
    count = 10_000
    labels = np.arange(count, dtype=np.uint64) << np.uint64(LEAF_BITS)
    ones = np.ones(count, np.uint32)
    assert len(PostingList(labels, ones, 200 * ones).packed(0)) == 16 + 4 * count


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
        (term, int(label)): (int(frequency), int(length))
        for term, each in inverted(labels, leaf_terms(every))
        for label, frequency, length in zip(*each, strict=True)
    }
    assert found == {
        (term, number): (count, sum(leaf.values()))
        for number, leaf in enumerate(every)
        for term, count in leaf.items()
    }


def parts(*sizes: int, deleted: int = 0) -> list[Part]:
    return [Part(n, n, n, size, deleted) for n, size in enumerate(sizes, 1)]


def test_eight_neighbours_of_one_size_become_one():
    small, large = 1000, 10_000
    assert due_merge(parts(*[small] * 7)) == []
    assert due_merge(parts(large, *[small] * 8)) == parts(large, *[small] * 8)[1:]
    assert due_merge(parts(*[small] * 4, large, *[small] * 4)) == []
    assert due_merge(parts(*[1 << 18] * 8)) == []


def test_a_part_with_many_deleted_leaves_is_rewritten():
    assert due_merge(parts(1000, deleted=200)) == []
    assert due_merge(parts(1000, deleted=201)) == parts(1000, deleted=201)
