"""The change log of each collection, and the list of commits, which names changed collections.

The engine's `Reader` may have a hundred of ten thousand collections in memory. To learn which
collections have changed, it reads the entries that were added to the list of commits since its last
reading. Then it reads only the change logs of the changed collections. The oldest entries of the
list and of the logs are deleted from time to time. If an entry is deleted that a Reader has not
read, the Reader loads the affected collections again. For this reason, a repair may also delete a
damaged entry and all older entries.
"""

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import TypeVar

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.lmdb_records import Change, Counters
from hrag.engine.embedded.store.tables import Table
from hrag.engine.embedded.store.transactions import Txn

K = TypeVar("K")
V = TypeVar("V")
G = TypeVar("G")

MAX_LOG_ENTRIES = 100_000
"""The maximum count of entries in the list of commits, and by default in each change log."""


def append_change(
    txn: Txn, collection: int, counters: Counters, change: Change, sequence: int
) -> Counters:
    """Adds an entry for `change` to a collection's change log.

    The key of the entry is `sequence`, the sequence number of the change. Returns the collection's
    new counters, which the caller must store.
    """
    txn.changes.put((collection, sequence), change)
    return counters._replace(sequence=sequence, log_entries=counters.log_entries + 1)


def trimmed(
    txn: Txn,
    collection: int,
    counters: Counters,
    max_entries: int = MAX_LOG_ENTRIES,
) -> Counters:
    """Deletes a collection's oldest log entries until at most `max_entries` remain.

    An entry is deleted even if it is damaged. Returns the collection's new counters, which the
    caller must store.
    """
    surplus = max(counters.log_entries - max_entries, 0)
    oldest = list(islice(txn.changes.keys(collection), surplus))
    for key in oldest:
        txn.changes.delete(key)
    if oldest:
        _, log_start = oldest[-1]
        counters = counters._replace(log_entries=max_entries, log_start=log_start)
    return counters


def repaired(txn: Txn, collection: int, counters: Counters) -> Counters:
    """Deletes a collection's log entries up to and including the last damaged entry.

    If no entry is damaged, deletes nothing. Returns the collection's new counters, which the caller
    must store.
    """
    removed, remaining = _remove_damaged(txn.changes, collection)
    if removed:
        _, log_start = removed[-1]
        counters = counters._replace(log_entries=remaining, log_start=log_start)
    return counters


def changes_after(txn: Txn, collection: int, sequence: int) -> Iterator[Change]:
    """Yields the collection's changes whose sequence numbers are above `sequence`, in order.

    The log must still contain all these changes, so `sequence` must be at least `log_start` of the
    collection's counters.
    """
    entries = txn.changes.entries(collection, start=(collection, sequence + 1))
    return (change for _, change in entries)


# The following functions read and write the list of commits. For each commit, the list contains the
# id of the collection that the commit has changed.


def note_commit(txn: Txn, collection: int) -> None:
    """Adds an entry with the collection's id to the list of commits.

    If the list then has more than MAX_LOG_ENTRIES entries, deletes the oldest entries. Call this
    function in each transaction that creates a collection, or changes a collection, its names or
    its segments.

    A repair relies on these calls. If a tenant's sequence number (the count of its changes) is
    lost, the repair needs an upper bound for this number. Each change adds an ordinal, deletes an
    ordinal, or adds an entry to the list of commits. So the upper bound is the count of all these
    additions and deletions.
    """
    cursor = txn.next_number(schema.COMMIT_CURSOR)
    txn.commits.put(cursor, collection)
    last_trimmed = max(cursor - MAX_LOG_ENTRIES, 0)
    for number in list(takewhile(lambda number: number <= last_trimmed, txn.commits.keys())):
        txn.commits.delete(number)


def repair_commits(txn: Txn) -> None:
    """Deletes the entries of the list of commits up to and including the last damaged entry.

    If no entry is damaged, deletes nothing.
    """
    _remove_damaged(txn.commits)


def commit_cursor(txn: Txn) -> int:
    """Returns the key of the last entry in the list of commits. All tenants share this list."""
    return txn.number(schema.COMMIT_CURSOR)


def changed_after(txn: Txn, cursor: int) -> set[int] | None:
    """Returns the collection ids in the entries after `cursor` of the list of commits.

    `cursor` is the key of an entry of this list. Returns None if an entry after `cursor` was
    deleted, is missing or is damaged.
    """
    count = commit_cursor(txn) - cursor
    if count > MAX_LOG_ENTRIES:
        return None
    entries = txn.commits.sound_entries(start=cursor + 1)
    changed = [collection for _, collection in entries]
    return set(changed) if len(changed) == max(count, 0) else None


def _remove_damaged(table: Table[K, V, G], group: G | None = None) -> tuple[list[K], int]:
    """Deletes the table's entries up to and including the last damaged entry.

    If no entry is damaged, deletes nothing. With `group`, a collection id, reads and deletes only
    entries of this collection. Returns the deleted keys, and the count of entries that remain.
    """
    keys = list(table.keys(group))
    damaged = [index for index, key in enumerate(keys) if table.get_sound(key) is None]
    surplus = damaged[-1] + 1 if damaged else 0
    for key in keys[:surplus]:
        table.delete(key)
    return keys[:surplus], len(keys) - surplus
