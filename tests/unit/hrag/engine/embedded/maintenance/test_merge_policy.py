"""Tests of the merge policy: it keeps a collection at few segments with little work."""

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


def after_build(
    stats: list[SegmentStats], tail: int, plan: MergePlan
) -> tuple[list[SegmentStats], int, int]:
    """Returns the segments and the tail after a build, and the count of leaves it inserted."""
    replaced = stats[plan.first : plan.last]
    whole = sum(each.living for each in replaced) + (tail if plan.tail else 0)
    kept = max((each.living for each in replaced if not each.damaged), default=0)
    made = [SegmentStats(whole)] if whole else []
    after = [*stats[: plan.first], *made, *stats[plan.last :]]
    return after, 0 if plan.tail else tail, whole - kept


def settled(stats: list[SegmentStats], tail: int) -> tuple[list[SegmentStats], int]:
    """Builds until nothing is due. Returns the segments and the count of inserted leaves."""
    inserted = 0
    while plan := plan_seal(stats, tail, THRESHOLD) or plan_merge(stats):
        stats, tail, more = after_build(stats, tail, plan)
        inserted += more
    return stats, inserted


def test_nothing_is_due_if_each_segment_is_much_larger_than_all_newer_ones():
    assert plan_merge([]) is None
    assert plan_merge([SegmentStats(800), SegmentStats(100)]) is None
    assert plan_seal([], 0, THRESHOLD) is None
    assert plan_seal([SegmentStats(800), SegmentStats(100)], 99, THRESHOLD) is None


def test_a_full_tail_becomes_the_first_segment():
    assert plan_seal([], THRESHOLD, THRESHOLD) == MergePlan(0, 0, tail=True)


def test_a_full_tail_is_merged_into_the_newest_segment_if_that_is_not_much_larger():
    assert plan_seal([SegmentStats(799)], 100, THRESHOLD) == MergePlan(0, 1, tail=True)
    assert plan_seal([SegmentStats(800)], 100, THRESHOLD) == MergePlan(1, 1, tail=True)
    assert plan_seal([SegmentStats(900, deleted=101)], 100, THRESHOLD) == MergePlan(0, 1, tail=True)


def test_a_damaged_segment_is_rebuilt_and_no_tail_is_merged_into_it():
    stats = [SegmentStats(500, damaged=True)]
    assert plan_seal(stats, 100, THRESHOLD) == MergePlan(1, 1, tail=True)
    assert plan_merge(stats) == MergePlan(0, 1, tail=False)


def test_segments_of_similar_size_are_merged_from_the_oldest_that_is_too_small():
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


def test_segments_that_another_build_uses_are_not_merged():
    stats = [SegmentStats(100), SegmentStats(100)]
    assert plan_seal(stats, 100, THRESHOLD, busy=2) == MergePlan(2, 2, tail=True)
    assert plan_seal(stats, 100, THRESHOLD, busy=1) == MergePlan(1, 2, tail=True)
    assert plan_seal(stats, 99, THRESHOLD, busy=1) is None


@given(st.lists(segments, max_size=8), st.integers(0, 100_000))
def test_builds_come_to_an_end_and_leave_few_sound_segments(stats, tail):
    after, _ = settled(stats, tail)
    for index, each in enumerate(after):
        assert not each.damaged
        assert each.deleted <= MAX_DELETED_SHARE * each.rows
        assert each.living >= FACTOR * sum(newer.living for newer in after[index + 1 :])


@given(st.lists(st.integers(THRESHOLD, 4 * THRESHOLD), min_size=1, max_size=400))
def test_a_growing_collection_has_few_segments_and_indexes_each_leaf_a_few_times(tails):
    stats: list[SegmentStats] = []
    leaves = inserted = 0
    for tail in tails:
        leaves += tail
        stats, more = settled(stats, tail)
        inserted += more
        scale = max(0.0, math.log(leaves / THRESHOLD, FACTOR))
        assert len(stats) <= scale + 2
        assert sum(part.living for part in stats) == leaves
        assert inserted <= leaves * (scale + 2)
