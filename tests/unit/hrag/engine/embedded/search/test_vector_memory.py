"""Tests of the memory in which vectors of segments are kept."""

from hrag.engine.embedded.search.vector_memory import VectorMemory


def test_vectors_are_admitted_as_long_as_they_fit():
    memory = VectorMemory(100)
    assert memory.admit(1, 10, 60)
    assert not memory.admit(1, 11, 41)
    assert memory.admit(2, 12, 40)
    assert not memory.admit(2, 13, 1)
    assert memory.admit(2, 14, 0)


def test_segments_that_are_not_retained_make_room():
    memory = VectorMemory(100)
    for segment_id in (1, 2):
        assert memory.admit(7, segment_id, 50)
    memory.retain(7, {2, 3})
    assert not memory.admit(8, 4, 51)
    assert memory.admit(8, 4, 50)
    memory.retain(7, ())
    memory.retain(9, ())
    assert memory.admit(9, 5, 50)
    assert not memory.admit(9, 6, 1)


def test_without_memory_no_vectors_are_admitted():
    assert not VectorMemory(0).admit(1, 1, 4)


def test_a_segment_that_is_admitted_again_is_counted_once():
    memory = VectorMemory(100)
    for _ in range(3):
        assert memory.admit(1, 10, 60)
    assert not memory.admit(1, 11, 41)
    memory.retain(1, ())
    assert memory.admit(2, 12, 100)
