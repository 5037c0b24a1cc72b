"""The schedule of maintenance: what is due, and when failed work is retried."""

from hrag.engine.embedded.maintenance.schedule import (
    Build,
    MaintenanceLimits,
    MaintenanceState,
    Task,
)

LIMITS = MaintenanceLimits(retry_s=10.0, retry_durations=3, max_tail_bytes=1000, max_tails=2)


def test_a_changed_collection_is_due_once():
    state = MaintenanceState(LIMITS)
    state.add({1, 2})
    state.add({2})
    assert state.take_due(0.0) == {1, 2}
    assert state.take_due(0.0) == set()


def test_a_failed_build_is_due_again_after_its_pause():
    state = MaintenanceState(LIMITS)
    assert state.failed(Build.SEAL, 1, began_s=100.0, ended_s=101.0) == 10.0
    assert state.take_due(110.9) == set()
    assert state.take_due(111.0) == {1}
    assert not state.may_build(Build.SEAL, 1, 110.9)
    assert state.may_build(Build.SEAL, 1, 111.0)


def test_a_long_attempt_is_retried_after_a_multiple_of_its_duration():
    state = MaintenanceState(LIMITS)
    assert state.failed(Build.MERGE, 1, began_s=0.0, ended_s=7.0) == 21.0
    assert not state.may_build(Build.MERGE, 1, 27.9)
    assert state.may_build(Build.MERGE, 1, 28.0)


def test_a_failure_pauses_only_its_build_and_collection():
    state = MaintenanceState(LIMITS)
    state.failed(Build.MERGE, 1, 0.0, 0.0)
    assert state.may_build(Build.SEAL, 1, 0.0)
    assert state.may_build(Build.MERGE, 2, 0.0)


def test_a_successful_build_ends_the_pause():
    state = MaintenanceState(LIMITS)
    state.failed(Build.SEAL, 1, 0.0, 0.0)
    state.built(Build.SEAL, 1)
    assert state.retries_s == {}
    assert state.may_build(Build.SEAL, 1, 0.0)


def test_a_task_of_the_store_is_due_at_first_and_again_after_its_pause():
    state = MaintenanceState(LIMITS)
    assert state.is_due(Task.FILES, 0.0)
    state.postpone(Task.FILES, 5.0)
    assert not state.is_due(Task.FILES, 4.9)
    assert state.is_due(Task.FILES, 5.0)
    assert state.is_due(Task.RECLAIM, 0.0)


def test_no_writer_waits_for_a_tail_that_cannot_be_sealed():
    state = MaintenanceState(LIMITS)
    assert state.lets_wait(1)
    state.failed(Build.MERGE, 1, 0.0, 0.0)
    assert state.lets_wait(1)
    state.failed(Build.SEAL, 1, 0.0, 0.0)
    assert not state.lets_wait(1)
    assert state.lets_wait(2)


def test_no_writer_waits_while_rounds_fail():
    state = MaintenanceState(LIMITS)
    state.is_failing = True
    assert not state.lets_wait(1)


def test_a_tail_is_too_long_if_it_has_many_leaves_and_many_bytes():
    assert LIMITS.is_too_long(tail_leaves=20, tail_bytes=1000, threshold=10)
    assert not LIMITS.is_too_long(tail_leaves=19, tail_bytes=1000, threshold=10)
    assert not LIMITS.is_too_long(tail_leaves=20, tail_bytes=999, threshold=10)
