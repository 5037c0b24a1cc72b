"""The list of commits: what a reader learns from it, also where entries are hidden by damage."""

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


def test_so_does_a_list_that_is_damaged_and_commits_go_on(store, monkeypatch):
    monkeypatch.setattr(change_log, "MAX_LOG_ENTRIES", 3)
    with store.write() as txn:
        for collection in (7, 8, 9):
            change_log.note_commit(txn, collection)
    flip(store, "commits")
    with store.read() as txn:
        found = [change_log.changed_after(txn, cursor) for cursor in (0, 1)]
    assert found == [None, {8, 9}]
    with store.write() as txn:  # It takes the place of the damaged one.
        change_log.note_commit(txn, 7)
