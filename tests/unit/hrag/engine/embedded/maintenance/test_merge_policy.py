"""Which segment to build next: few segments, little work."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.embedded.maintenance.merge_policy import (
    FACTOR,
    MAX_DELETED_SHARE,
    MergePlan,
    SegmentStats,
    plan_merge,
    plan_seal,
)

THRESHOLD = 100

segments = st.builds(
    lambda rows, deleted, damaged: SegmentStats(rows, min(rows, deleted), damaged),
    st.integers(1, 100_000),
    st.integers(0, 100_000) | st.just(0),
    st.booleans(),
)


def done(
    parts: list[SegmentStats], tail: int, plan: MergePlan
) -> tuple[list[SegmentStats], int, int]:
    """The segments and the tail after a build, and how many leaves it had to insert."""
    replaced = parts[plan.first : plan.last]
    whole = sum(each.living for each in replaced) + (tail if plan.tail else 0)
    kept = max((each.living for each in replaced if not each.damaged), default=0)
    made = [SegmentStats(whole)] if whole else []
    after = [*parts[: plan.first], *made, *parts[plan.last :]]
    return after, 0 if plan.tail else tail, whole - kept


def settled(parts: list[SegmentStats], tail: int) -> tuple[list[SegmentStats], int]:
    inserted = 0
    while plan := plan_seal(parts, tail, THRESHOLD) or plan_merge(parts):
        parts, tail, more = done(parts, tail, plan)
        inserted += more
    return parts, inserted


def test_a_collection_in_order_needs_nothing():
    assert plan_merge([]) is None
    assert plan_merge([SegmentStats(800), SegmentStats(100)]) is None
    assert plan_seal([], 0, THRESHOLD) is None
    assert plan_seal([SegmentStats(800), SegmentStats(100)], 99, THRESHOLD) is None


def test_a_full_tail_becomes_the_first_segment():
    assert plan_seal([], THRESHOLD, THRESHOLD) == MergePlan(0, 0, tail=True)


def test_a_full_tail_goes_into_the_newest_segment_unless_that_is_much_larger():
    assert plan_seal([SegmentStats(799)], 100, THRESHOLD) == MergePlan(0, 1, tail=True)
    assert plan_seal([SegmentStats(800)], 100, THRESHOLD) == MergePlan(1, 1, tail=True)
    assert plan_seal([SegmentStats(900, deleted=101)], 100, THRESHOLD) == MergePlan(0, 1, tail=True)


def test_a_damaged_segment_takes_no_tail_and_is_made_anew():
    parts = [SegmentStats(500, damaged=True)]
    assert plan_seal(parts, 100, THRESHOLD) == MergePlan(1, 1, tail=True)
    assert plan_merge(parts) == MergePlan(0, 1, tail=False)


def test_segments_of_like_size_are_merged_from_the_oldest_that_is_too_small():
    assert plan_merge([SegmentStats(9000), SegmentStats(700), SegmentStats(100)]) == MergePlan(
        1, 3, tail=False
    )
    assert plan_merge([SegmentStats(6000), SegmentStats(700), SegmentStats(100)]) == MergePlan(
        0, 3, tail=False
    )


def test_a_segment_with_too_many_deleted_leaves_is_rewritten():
    assert plan_merge([SegmentStats(1000, deleted=200)]) is None
    assert plan_merge([SegmentStats(1000, deleted=201)]) == MergePlan(0, 1, tail=False)
    assert plan_merge([SegmentStats(1000, deleted=1000)]) == MergePlan(0, 1, tail=False)


def test_what_is_being_built_from_is_left_alone():
    parts = [SegmentStats(100), SegmentStats(100)]
    assert plan_seal(parts, 100, THRESHOLD, busy=2) == MergePlan(2, 2, tail=True)
    assert plan_seal(parts, 100, THRESHOLD, busy=1) == MergePlan(1, 2, tail=True)
    assert plan_seal(parts, 99, THRESHOLD, busy=1) is None


@given(st.lists(segments, max_size=8), st.integers(0, 100_000))
def test_it_comes_to_an_end_and_leaves_few_sound_segments(parts, tail):
    after, _ = settled(parts, tail)
    for place, each in enumerate(after):
        assert not each.damaged
        assert each.deleted <= MAX_DELETED_SHARE * each.rows
        assert each.living >= FACTOR * sum(newer.living for newer in after[place + 1 :])


@given(st.lists(st.integers(THRESHOLD, 4 * THRESHOLD), min_size=1, max_size=400))
def test_a_growing_collection_keeps_to_the_bound_and_indexes_each_leaf_a_few_times(tails):
    parts: list[SegmentStats] = []
    leaves = inserted = 0
    for tail in tails:
        leaves += tail
        parts, more = settled(parts, tail)
        inserted += more
        scale = max(0.0, math.log(leaves / THRESHOLD, FACTOR))
        assert len(parts) <= scale + 2
        assert sum(part.living for part in parts) == leaves
        assert inserted <= leaves * (scale + 2)
