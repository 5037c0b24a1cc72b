"""Tests of the list of commits, from which a reader learns which collections have changed."""

from hrag.engine.embedded.store import change_log
from tests.unit.hrag.engine.embedded.store.bits import flip


def test_a_list_with_a_gap_means_that_every_collection_may_have_changed(store):
    with store.write() as txn:
        for collection in (7, 8, 7, 9):
            change_log.note_commit(txn, collection)
    with store.read() as txn:
        found = [change_log.changed_after(txn, cursor) for cursor in range(6)]
    assert found == [{7, 8, 9}, {7, 8, 9}, {7, 9}, {9}, set(), set()]
    with store.write() as txn:
        txn.commits.delete(2)
        assert change_log.changed_after(txn, 1) is None
        assert change_log.changed_after(txn, 2) == {7, 9}
        txn.commits.put(2, 8)


def test_a_damaged_list_means_that_every_collection_may_have_changed(store, monkeypatch):
    monkeypatch.setattr(change_log, "MAX_LOG_ENTRIES", 3)
    with store.write() as txn:
        for collection in (7, 8, 9):
            change_log.note_commit(txn, collection)
    flip(store, "commits")
    with store.read() as txn:
        found = [change_log.changed_after(txn, cursor) for cursor in (0, 1)]
    assert found == [None, {8, 9}]
    with store.write() as txn:  # This commit trims the damaged entry.
        change_log.note_commit(txn, 7)
