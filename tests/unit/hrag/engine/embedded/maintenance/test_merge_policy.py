"""Which segment to build next: few segments, little work."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.embedded.maintenance.merge_policy import (
    DEAD_SHARE,
    FACTOR,
    Part,
    Step,
    next_step,
    tail_step,
)

THRESHOLD = 100

part = st.builds(
    lambda rows, dead, damaged: Part(rows, min(rows, dead), damaged),
    st.integers(1, 100_000),
    st.integers(0, 100_000) | st.just(0),
    st.booleans(),
)


def done(parts: list[Part], tail: int, step: Step) -> tuple[list[Part], int, int]:
    """The parts and the tail after a step, and how many leaves it had to insert."""
    replaced = parts[step.first : step.last]
    whole = sum(each.living for each in replaced) + (tail if step.tail else 0)
    kept = max((each.living for each in replaced if not each.damaged), default=0)
    made = [Part(whole)] if whole else []
    after = [*parts[: step.first], *made, *parts[step.last :]]
    return after, 0 if step.tail else tail, whole - kept


def settled(parts: list[Part], tail: int) -> tuple[list[Part], int]:
    inserted = 0
    while step := tail_step(parts, tail, THRESHOLD) or next_step(parts):
        parts, tail, more = done(parts, tail, step)
        inserted += more
    return parts, inserted


def test_a_collection_in_order_needs_nothing():
    assert next_step([]) is None
    assert next_step([Part(800), Part(100)]) is None
    assert tail_step([], 0, THRESHOLD) is None
    assert tail_step([Part(800), Part(100)], 99, THRESHOLD) is None


def test_a_full_tail_becomes_the_first_segment():
    assert tail_step([], THRESHOLD, THRESHOLD) == Step(0, 0, tail=True)


def test_a_full_tail_goes_into_the_newest_segment_unless_that_is_much_larger():
    assert tail_step([Part(799)], 100, THRESHOLD) == Step(0, 1, tail=True)
    assert tail_step([Part(800)], 100, THRESHOLD) == Step(1, 1, tail=True)
    assert tail_step([Part(900, dead=101)], 100, THRESHOLD) == Step(0, 1, tail=True)


def test_a_damaged_segment_takes_no_tail_and_is_made_anew():
    parts = [Part(500, damaged=True)]
    assert tail_step(parts, 100, THRESHOLD) == Step(1, 1, tail=True)
    assert next_step(parts) == Step(0, 1, tail=False)


def test_segments_of_like_size_are_merged_from_the_oldest_that_is_too_small():
    assert next_step([Part(9000), Part(700), Part(100)]) == Step(1, 3, tail=False)
    assert next_step([Part(6000), Part(700), Part(100)]) == Step(0, 3, tail=False)


def test_a_segment_with_too_much_dead_is_written_anew():
    assert next_step([Part(1000, dead=200)]) is None
    assert next_step([Part(1000, dead=201)]) == Step(0, 1, tail=False)
    assert next_step([Part(1000, dead=1000)]) == Step(0, 1, tail=False)


def test_what_is_being_built_from_is_left_alone():
    parts = [Part(100), Part(100)]
    assert tail_step(parts, 100, THRESHOLD, busy=2) == Step(2, 2, tail=True)
    assert tail_step(parts, 100, THRESHOLD, busy=1) == Step(1, 2, tail=True)
    assert tail_step(parts, 99, THRESHOLD, busy=1) is None


@given(st.lists(part, max_size=8), st.integers(0, 100_000))
def test_it_comes_to_an_end_and_leaves_few_sound_segments(parts, tail):
    after, _ = settled(parts, tail)
    for place, each in enumerate(after):
        assert not each.damaged
        assert each.dead <= DEAD_SHARE * each.rows
        assert each.living >= FACTOR * sum(newer.living for newer in after[place + 1 :])


@given(st.lists(st.integers(THRESHOLD, 4 * THRESHOLD), min_size=1, max_size=400))
def test_a_growing_collection_keeps_to_the_bound_and_indexes_each_leaf_a_few_times(tails):
    parts: list[Part] = []
    leaves = inserted = 0
    for tail in tails:
        leaves += tail
        parts, more = settled(parts, tail)
        inserted += more
        scale = max(0.0, math.log(leaves / THRESHOLD, FACTOR))
        assert len(parts) <= scale + 2
        assert sum(part.living for part in parts) == leaves
        assert inserted <= leaves * (scale + 2)
