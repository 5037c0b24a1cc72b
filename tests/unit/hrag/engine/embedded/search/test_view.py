"""Tests of views: a view never changes, even when newer views are made from it."""

from collections.abc import Iterator

import numpy as np
import pytest

from hrag.engine import PreparedDocument
from hrag.engine.common.labels import labels_of
from hrag.engine.embedded.search.view import View, load_view
from hrag.engine.embedded.segments.segment_files import LoadedSegment, load
from hrag.engine.embedded.store.change_log import changes_after
from hrag.engine.embedded.store.lmdb_records import Change
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, sentences

SETTINGS = collection_settings()


@pytest.fixture
def filled(engine: Engine) -> Engine:
    """An engine with the documents `d0` to `d4`, ordinals 1 to 5, which have 180 leaves."""
    engine.writer.create_collection("t", "c", SETTINGS)
    for number in range(5):
        engine.writer.put(engine.open(), document(number))
    return engine


def document(number: int) -> PreparedDocument:
    return prepared(f"d{number}", sentences(80 + 5 * number, number), seed=number)


def loaded(engine: Engine, *segments: LoadedSegment) -> View:
    """Loads a view with these segments. The leaves of all other segments are in its tail."""
    with engine.store.read() as txn:
        by_id = {segment.record.segment_id: segment for segment in segments}
        return load_view(txn, SETTINGS, 1, by_id)


def advanced(engine: Engine, view: View, *changes: Change) -> View:
    """Returns a newer view, made from `view` by applying changes."""
    with engine.store.read() as txn:
        sequence = txn.counters.require(1).sequence
        return view.advanced(txn, changes, sequence)


def living_leaves(view: View) -> dict[int, int]:
    """Returns the count of living leaves for each ordinal that has some in the view."""
    labels = view.labels[: view.count][view.alive[: view.count] != 0]
    ordinals, counts = np.unique(labels >> np.uint64(20), return_counts=True)
    return dict(zip(ordinals.tolist(), counts.tolist(), strict=True))


def state(view: View) -> tuple[bytes, ...]:
    """Returns the bytes of all arrays that a search reads."""
    used = view.count
    return (
        view.labels[:used].tobytes(),
        view.ancestors[:, :used].tobytes(),
        view.alive[:used].tobytes(),
        view.tail.vectors[: used - view.tail_base].tobytes(),
    )


def test_a_view_has_each_leaf_with_its_ancestors_and_vector(filled):
    view = loaded(filled)
    wanted = [document(number) for number in range(5)]
    assert view.living == view.count == sum(len(d.vectors) for d in wanted)
    assert (view.tail_base, view.segments, view.bases) == (0, (), ())
    used = view.count
    assert (view.tail.vectors[:used] == np.concatenate([d.vectors for d in wanted])).all()
    ancestors = np.concatenate([d.tree.ancestors(0) for d in wanted], axis=1)
    assert (view.ancestors[:, :used] == ancestors).all()
    labels = [labels_of(n + 1, len(d.vectors)) for n, d in enumerate(wanted)]
    assert (view.labels[:used] == np.concatenate(labels)).all()


@pytest.mark.parametrize("sealed", [False, True])
def test_an_older_view_does_not_change(filled, sealed):
    segment = load(filled.store.segments, filled.seal()) if sealed else None
    segments = (segment,) if segment else ()
    views = [loaded(filled, *segments)]
    states = [state(views[0])]
    for number in range(20):
        name = f"d{number % 7}"
        filled.writer.put(filled.open(), prepared(name, sentences(10), seed=100 + number))
        if number % 3 == 2:
            filled.writer.delete(filled.open(), name)
        views.append(advanced(filled, views[-1], *_log_after(filled, views[-1].sequence)))
        states.append(state(views[-1]))
    assert [state(view) for view in views] == states
    fresh = loaded(filled, *segments)
    assert living_leaves(views[-1]) == living_leaves(fresh)
    assert views[-1].living == fresh.living


def _log_after(engine: Engine, sequence: int) -> Iterator[Change]:
    with engine.store.read() as txn:
        yield from changes_after(txn, 1, sequence)


def test_a_version_that_is_added_and_replaced_between_two_views_is_in_neither(filled):
    view = loaded(filled)
    filled.writer.put(filled.open(), document(9))
    filled.writer.put(filled.open(), prepared("d9", sentences(4), seed=99))
    filled.writer.delete(filled.open(), "d0")
    after = advanced(filled, view, *_log_after(filled, view.sequence))
    assert set(living_leaves(after)) == {2, 3, 4, 5, 7}
    assert set(living_leaves(view)) == {1, 2, 3, 4, 5}


def test_a_view_separates_the_leaves_of_its_segments_from_those_of_its_tail(filled):
    first = load(filled.store.segments, filled.seal())
    filled.writer.put(filled.open(), document(6))
    second = load(filled.store.segments, filled.seal())
    filled.writer.put(filled.open(), document(7))
    filled.writer.delete(filled.open(), "d1")
    view = loaded(filled, first, second)
    assert view.bases == (0, first.record.rows)
    assert view.tail_base == first.record.rows + second.record.rows
    assert view.count - view.tail_base == len(document(7).vectors)
    assert set(living_leaves(view)) == {1, 3, 4, 5, 6, 7}
    assert view.living == view.count - len(document(1).vectors)


def test_new_leaves_take_only_their_own_memory_and_no_array_is_copied(filled):
    view = loaded(filled, load(filled.store.segments, filled.seal()))
    filled.writer.put(filled.open(), prepared("d9", sentences(9), seed=9))
    after = advanced(filled, view, *_log_after(filled, view.sequence))
    leaves = after.count - view.count
    assert 0 < leaves < view.tail_base // 8
    assert after.labels is view.labels
    assert after.ancestors is view.ancestors
    entries = after.tail.entry_count(leaves)
    heights = len(view.ancestors)
    row_bytes = 8 + 4 * heights + 1 + 4  # The label, ancestors, liveness and length.
    tail_bytes = 4 * SETTINGS.dimension + 8  # The vector, and the offset of its terms.
    assert after.size_bytes - view.size_bytes == leaves * (row_bytes + tail_bytes) + 8 * entries


@pytest.mark.parametrize("segments_loaded", [0, 1, 2])
def test_leaves_without_a_loaded_segment_are_in_the_tail(filled, segments_loaded):
    records = [filled.seal()]
    filled.writer.put(filled.open(), document(6))
    records.append(filled.seal())
    segments = [load(filled.store.segments, record) for record in records[:segments_loaded]]
    view = loaded(filled, *segments)
    assert living_leaves(view) == living_leaves(loaded(filled))
    assert view.count - view.tail_base == sum(r.rows for r in records[segments_loaded:])


@pytest.mark.parametrize("cost", [0, 1000])
def test_rows_of_documents_are_found_by_bisection_and_by_a_scan(filled, cost):
    """The documents are in a segment, in the tail, or not in the view."""
    segment = load(filled.store.segments, filled.seal())
    filled.writer.put(filled.open(), document(5))
    view = loaded(filled, segment)
    assert 0 < view.tail_base < view.count
    row_ordinals = (view.labels[: view.count] >> np.uint64(20)).tolist()
    for chosen in ([], [1], [3, 6], [2, 4, 5, 9], [1, 2, 3, 4, 5, 6], [7]):
        expected = [row for row, ordinal in enumerate(row_ordinals) if ordinal in chosen]
        assert view.rows_of(np.array(chosen, np.uint64), cost).tolist() == expected
