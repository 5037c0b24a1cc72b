"""The merge policy of the lexical index keeps few parts and rewrites each posting rarely."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.postgres.indexes.lexical_index import IndexPart, due_merge

# A merged part has at most this many leaves.
LARGEST = 1 << 19
# Two parts of at least this many leaves may have too many leaves for one part.
LARGE = 8**6
# A part that is built from term vectors has at most about this many leaves.
BUILT = 8192


@dataclass
class SimulatedIndex:
    """The parts of a simulated lexical index, which are built and merged as in maintenance.

    `writes` counts how often the leaves of a part were written, by `IndexPart.number`. `max_small`
    is the highest count so far of parts with fewer than LARGE leaves.
    """

    parts: list[IndexPart] = field(default_factory=list)
    writes: dict[int, int] = field(default_factory=dict)
    max_small: int = 0

    def load(self, sizes: Iterable[int]) -> "SimulatedIndex":
        """Adds a part of each size, in leaves. After each, merges the parts that are due."""
        last = 0
        for leaves in sizes:
            self.parts.append(IndexPart(last + 1, last + 1, last + leaves, leaves))
            self.writes[last + 1] = 1
            last += leaves
            while due := due_merge(self.parts):
                self.merge(due)
            small = sum(part.leaves < LARGE for part in self.parts)
            self.max_small = max(self.max_small, small)
        return self

    def merge(self, due: list[IndexPart]) -> None:
        """Replaces these adjacent parts by one part."""
        assert len(due) > 1
        at = self.parts.index(due[0])
        assert self.parts[at : at + len(due)] == due
        leaves = sum(part.leaves for part in due)
        assert leaves <= LARGEST
        number = -due[0].number
        merged = IndexPart(number, due[0].first_ordinal, due[-1].last_ordinal, leaves)
        self.parts[at : at + len(due)] = [merged]
        self.writes[number] = 1 + max(self.writes[part.number] for part in due)

    @property
    def leaves(self) -> int:
        return sum(part.leaves for part in self.parts)

    @property
    def max_writes(self) -> int:
        return max(self.writes[part.number] for part in self.parts)


def _steady() -> list[int]:
    draw = random.Random(2)
    return [draw.randint(3000, 6000) for _ in range(3600)]


# The sizes, in leaves, of the parts that are built one after the other.
LOADS = {
    "nightly, a large part and a small one": [BUILT, 808] * 365,
    "a large part and a smaller one": [4200, 600] * 1000,
    "steady": _steady(),
    "steady, of one size": [3000] * 3600,
    "in bulk, of documents of 10 leaves": [8200] * 2000,
    "in bulk, of documents of one leaf": [BUILT] * 2000,
    "trickling": [512] * 20_000,
}


@pytest.mark.parametrize("load", LOADS)
def test_few_parts_remain_after_any_load_and_no_posting_is_written_often(load):
    index = SimulatedIndex().load(LOADS[load])
    assert index.max_small <= 3 * 8
    assert len(index.parts) <= index.leaves / LARGE + index.max_small
    assert index.max_writes <= 4


@given(st.lists(st.integers(1, BUILT + 1000), max_size=300))
def test_a_posting_is_written_at_most_once_per_tier_and_small_parts_stay_few(sizes):
    index = SimulatedIndex().load(sizes)
    assert all(writes <= 7 for writes in index.writes.values())
    for tier in range(1, 7):
        waiting = 0
        for part in index.parts:
            waiting = waiting + part.leaves if part.leaves < 8**tier else 0
            assert waiting < 8**tier


def test_hundreds_of_alternating_parts_are_merged_into_the_largest_possible_ones():
    """An index that an earlier version of hrag wrote may have hundreds of parts."""
    sizes = [BUILT, 808] * 365
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    index = SimulatedIndex()
    for leaves, end in zip(sizes, ends, strict=True):
        first = end - leaves + 1
        index.parts.append(IndexPart(first, first, end, leaves))
        index.writes[first] = 1
    while due := due_merge(index.parts):
        index.merge(due)
    assert len(index.parts) <= index.leaves / LARGE + 1
    assert index.max_writes <= 4


def test_ordinals_too_far_apart_for_one_part_do_not_prevent_other_merges():
    far = 1 << 33
    parts = [IndexPart(1, 1, 6, 6), *(IndexPart(far + n, far + n, far + n, 5) for n in (0, 6))]
    assert due_merge(parts) == parts[1:]


def test_deleted_leaves_do_not_count_for_the_size_of_a_part():
    parts = [IndexPart(1, 1, 6, 6, deleted=1), IndexPart(7, 7, 8, 2)]
    assert due_merge(parts) == []
    assert due_merge([*parts, IndexPart(9, 9, 9, 1)]) == [*parts, IndexPart(9, 9, 9, 1)]
