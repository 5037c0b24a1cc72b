"""A change log for each collection, and a list of commits that names the changed collections.

A reader may have a hundred of ten thousand collections in memory. It reads the list of commits
from its cursor on to learn which collections changed, and then reads only the logs of these.
Both are trimmed at their beginning. A reader that has not read entries before they were trimmed
loads its collections again. So a repair may remove all entries up to a damaged one.
"""

from collections.abc import Iterator
from itertools import islice, takewhile

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import Change, Counters

MAX_LOG_ENTRIES = 100_000


def append_change(
    store: Store, txn: Txn, collection: int, counters: Counters, change: Change, sequence: int
) -> Counters:
    """Adds a change with the tenant's `sequence` to a collection's log.

    Returns the new counters, which the caller must store.
    """
    key = schema.in_collection(collection, sequence)
    txn.put(key, change.to_bytes(), db=store.db["changes"])
    return counters._replace(sequence=sequence, log_entries=counters.log_entries + 1)


def trimmed(
    store: Store,
    txn: Txn,
    collection: int,
    counters: Counters,
    max_entries: int = MAX_LOG_ENTRIES,
) -> Counters:
    """Removes the oldest log entries, even damaged ones, until `max_entries` remain.

    Returns the new counters, which the caller must store.
    """
    surplus = max(counters.log_entries - max_entries, 0)
    entries = txn.entries(store.db["changes"], schema.u32(collection))
    oldest = [bytes(key) for key, _ in islice(entries, surplus)]
    for key in oldest:
        txn.delete(key, db=store.db["changes"])
    if oldest:
        log_start = schema.read_in_collection(oldest[-1])[1]
        counters = counters._replace(log_entries=max_entries, log_start=log_start)
    return counters


def repaired(store: Store, txn: Txn, collection: int, counters: Counters) -> Counters:
    """Removes a collection's log entries up to the last damaged one, if there is any.

    Returns the new counters, which the caller must store.
    """
    removed, remaining = _remove_damaged(store, txn, "changes", schema.u32(collection))
    if removed:
        log_start = schema.read_in_collection(removed[-1])[1]
        counters = counters._replace(log_entries=remaining, log_start=log_start)
    return counters


def changes_after(store: Store, txn: Txn, collection: int, sequence: int) -> Iterator[Change]:
    """Yields the collection's changes after the tenant's `sequence`, in order.

    The log must still contain them: `sequence` must be at least the counters' `log_start`.
    """
    start = schema.in_collection(collection, sequence + 1)
    for _, value in store.scan(txn, "changes", schema.u32(collection), start):
        yield Change.from_bytes(value)


# The list of commits.


def note_commit(store: Store, txn: Txn, collection: int) -> None:
    """Adds a collection to the list of commits and trims the list.

    Call it in each transaction that creates or changes a collection, or changes its names or its
    segments. Because every change adds an entry, a repair knows the highest possible number of
    changes.
    """
    cursor = store.next_number(txn, schema.COMMIT_CURSOR)
    txn.put(schema.u64(cursor), schema.u32(collection), db=store.db["commits"])
    last_trimmed = schema.u64(max(cursor - MAX_LOG_ENTRIES, 0))
    keys = (bytes(key) for key, _ in txn.entries(store.db["commits"]))
    for key in list(takewhile(lambda key: key <= last_trimmed, keys)):
        txn.delete(key, db=store.db["commits"])


def repair_commits(store: Store, txn: Txn) -> None:
    """Removes the entries of the list of commits up to the last damaged one, if there is any."""
    _remove_damaged(store, txn, "commits")


def commit_cursor(store: Store, txn: Txn) -> int:
    """Returns the number of the last entry in the list of commits, over all tenants."""
    return store.number(txn, schema.COMMIT_CURSOR)


def changed_after(store: Store, txn: Txn, cursor: int) -> set[int] | None:
    """Returns the numbers of the collections with a commit after `cursor`.

    Returns None if the list begins after `cursor`, has gaps or is damaged.
    """
    count = commit_cursor(store, txn) - cursor
    if count > MAX_LOG_ENTRIES:
        return None
    entries = txn.sound_entries(store.db["commits"], start=schema.u64(cursor + 1))
    changed = [schema.read_u32(value) for _, value in entries]
    return set(changed) if len(changed) == max(count, 0) else None


def _remove_damaged(
    store: Store, txn: Txn, database: str, prefix: bytes = b""
) -> tuple[list[bytes], int]:
    """Removes the entries up to and including the last damaged one.

    Returns the removed keys, and the number of entries that remain.
    """
    db = store.db[database]
    keys: list[bytes] = []
    removed: list[bytes] = []
    for key, value in txn.entries(db, prefix):
        keys.append(bytes(key))
        if not txn.is_sound(key, value, db):
            removed += keys
            keys = []
    for removed_key in removed:
        txn.delete(removed_key, db=db)
    return removed, len(keys)
