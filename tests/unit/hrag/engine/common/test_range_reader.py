"""Ranges of one filter share what is read from the store."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.common.range_reader import RangeReader
from hrag.engine.common.sorted_sets import Ordinals

TERMS = 40
Range = tuple[bytes, bytes]


class Terms:
    """Term n is the byte n, and the documents n and 99 - n have it. Counts how often it is read."""

    def __init__(self) -> None:
        self.reads: Counter[int] = Counter()

    def __call__(self, start: bytes, end: bytes) -> Ordinals:
        terms = range(start[0], min(end[0], TERMS))
        self.reads.update(terms)
        return documents_of(terms)


def documents_of(terms: range) -> Ordinals:
    return np.array(sorted({d for term in terms for d in (term, 99 - term)}), np.uint64)


def between(start: int, end: int) -> Range:
    return bytes([start]), bytes([end])


bounds = st.integers(0, TERMS + 5)
ranges = st.lists(st.tuples(bounds, bounds), max_size=8)


@given(ranges, st.sampled_from([0, 5, 1000]))
def test_every_range_has_the_documents_of_its_terms(
    pairs: list[tuple[int, int]], kept: int
) -> None:
    """The ranges may be empty, reversed and equal, and all of them may be read at once."""
    asked = [between(*pair) for pair in pairs]
    reader = RangeReader(asked, Terms(), kept)
    for pair in [*pairs, *pairs[:2]]:
        expected = documents_of(range(pair[0], min(pair[1], TERMS)))
        assert reader.ordinals(between(*pair)).tolist() == expected.tolist()
    if pairs:
        whole = min(start for start, _ in pairs), max(end for _, end in pairs)
        if whole[0] in {start for start, _ in pairs} and whole[0] < whole[1]:
            expected = documents_of(range(whole[0], min(whole[1], TERMS)))
            assert reader.ordinals(between(*whole)).tolist() == expected.tolist()


def test_a_term_is_read_once_for_many_ranges_that_overlap() -> None:
    pairs = [(n, TERMS - n) for n in range(16)] + [(0, n) for n in range(1, 17)]
    terms = Terms()
    reader = RangeReader([between(*pair) for pair in pairs], terms)
    for pair in pairs:
        reader.ordinals(between(*pair))
    assert terms.reads == Counter(range(TERMS))


def test_what_no_later_range_needs_is_not_kept() -> None:
    """After all ranges have been read, reading one of them again reads its terms again."""
    terms = Terms()
    pairs = [between(0, 9), between(3, 12)]
    reader = RangeReader(pairs, terms)
    for pair in pairs:
        reader.ordinals(pair)
    assert max(terms.reads.values()) == 1
    reader.ordinals(pairs[0])
    assert terms.reads[4] == 2


@pytest.mark.parametrize(("kept", "reads"), [(11, 2), (12, 1)])
def test_pieces_that_are_too_large_are_read_for_each_range(kept: int, reads: int) -> None:
    """The piece that both ranges contain has six terms and twelve documents."""
    terms = Terms()
    pairs = [between(0, 9), between(3, 12)]
    reader = RangeReader(pairs, terms, kept)
    for pair in pairs:
        reader.ordinals(pair)
    assert terms.reads[4] == reads
    assert terms.reads[0] == terms.reads[11] == 1
