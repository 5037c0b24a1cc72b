"""Tests of the cache of values that transactions of the same commit have read."""

from contextlib import suppress

import lmdb
import pytest

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.commit_cache import CommitCache, NoCache
from hrag.engine.embedded.store.environment import open_for_writing


@pytest.fixture
def store(tmp_path):
    opened = open_for_writing(tmp_path / "store")
    yield opened
    opened.close()


def test_transactions_of_the_same_commit_share_cached_values(store):
    with store.read() as txn:
        txn.cache.keep("key", "value")
    with store.read() as txn:
        assert txn.cache.get("key") == "value"


def test_a_commit_empties_the_cache(store):
    with store.read() as txn:
        txn.cache.keep("key", "value")
    with store.write() as txn:
        txn.put_number(b"name", 1)
    with store.read() as txn:
        assert txn.cache.get("key") is None


def test_a_write_that_changes_nothing_does_not_empty_the_cache(store):
    with store.read() as txn:
        txn.cache.keep("key", "value")
    with pytest.raises(KeyError), store.write():
        raise KeyError
    with store.read() as txn:
        assert txn.cache.get("key") == "value"


def test_a_transaction_that_began_before_a_commit_keeps_its_own_cache(store):
    with store.read() as old:
        old.cache.keep("key", "old")
        with store.write() as txn:
            txn.put_number(b"name", 1)
        with store.read() as new:
            assert new.cache.get("key") is None
            new.cache.keep("key", "new")
        assert old.cache.get("key") == "old"
    with store.read() as new:
        assert new.cache.get("key") == "new"


def fail_to_write(store):
    """Begins a write that fails. It writes to new pages, and to no page of the last commit."""
    with suppress(lmdb.BadValsizeError), store.write() as txn:
        for number in range(100):
            txn.meta.put(schema.u64(number), bytes(2_000))
        txn.meta.put(bytes(1_000), b"")  # LMDB refuses keys over 511 bytes.


def test_a_cached_value_stays_readable_after_its_transaction(store):
    """The value points into a page of the last commit, which no failed write overwrites."""
    with store.write() as txn:
        txn.put_number(b"name", 7)
    with store.read() as txn:
        txn.cache.keep("key", txn.meta.get_data(b"name"))
    for _ in range(3):
        fail_to_write(store)
    with store.read() as txn:
        assert schema.read_u64(txn.cache.get("key")) == 7


def test_write_transactions_cache_nothing(store):
    with store.write() as txn:
        txn.cache.keep("key", "value")
        assert txn.cache.get("key") is None
        assert txn.cache.once("key", lambda: 1) == 1
        assert txn.cache.once("key", lambda: 2) == 2


def test_once_reads_a_value_only_once():
    cache = CommitCache(1)
    assert [cache.once("key", iter([value]).__next__) for value in (1, 2)] == [1, 1]


def test_a_full_cache_is_emptied():
    cache = CommitCache(1, max_bytes=100)
    cache.keep("a", 1, 60)
    cache.keep("b", 2, 60)
    assert cache.get("a") is None
    assert cache.get("b") == 2


def test_a_value_larger_than_the_cache_is_kept_until_the_next_value():
    cache = CommitCache(1, max_bytes=100)
    cache.keep("a", 1, 200)
    cache.keep("b", 2, 10)
    assert (cache.get("a"), cache.get("b")) == (None, 2)


def test_the_cache_of_a_write_transaction_is_always_empty():
    assert NoCache().once("key", lambda: 3) == 3
    assert NoCache().get("key") is None
