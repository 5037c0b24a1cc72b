"""A change log for each collection, and a list of commits that names the changed collections.

A reader may have a hundred of ten thousand collections in memory. It reads the list of commits
from its cursor on to learn which collections changed, and then reads only the logs of these.
Both are trimmed at their beginning. A reader that has not read entries before they were trimmed
loads its collections again. So a repair may remove all entries up to a damaged one.
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


def append_change(
    txn: Txn, collection: int, counters: Counters, change: Change, sequence: int
) -> Counters:
    """Adds a change with the tenant's `sequence` to a collection's log.

    Returns the new counters, which the caller must store.
    """
    txn.changes.put((collection, sequence), change)
    return counters._replace(sequence=sequence, log_entries=counters.log_entries + 1)


def trimmed(
    txn: Txn,
    collection: int,
    counters: Counters,
    max_entries: int = MAX_LOG_ENTRIES,
) -> Counters:
    """Removes the oldest log entries, even damaged ones, until `max_entries` remain.

    Returns the new counters, which the caller must store.
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
    """Removes a collection's log entries up to the last damaged one, if there is any.

    Returns the new counters, which the caller must store.
    """
    removed, remaining = _remove_damaged(txn.changes, collection)
    if removed:
        _, log_start = removed[-1]
        counters = counters._replace(log_entries=remaining, log_start=log_start)
    return counters


def changes_after(txn: Txn, collection: int, sequence: int) -> Iterator[Change]:
    """Returns the collection's changes after the tenant's `sequence`, in order.

    The log must still contain them: `sequence` must be at least the counters' `log_start`.
    """
    entries = txn.changes.entries(collection, start=(collection, sequence + 1))
    return (change for _, change in entries)


# The list of commits.


def note_commit(txn: Txn, collection: int) -> None:
    """Adds a collection to the list of commits and trims the list.

    Call it in each transaction that creates or changes a collection, or changes its names or its
    segments. Because every change adds an entry, a repair knows the highest possible number of
    changes.
    """
    cursor = txn.next_number(schema.COMMIT_CURSOR)
    txn.commits.put(cursor, collection)
    last_trimmed = max(cursor - MAX_LOG_ENTRIES, 0)
    for number in list(takewhile(lambda number: number <= last_trimmed, txn.commits.keys())):
        txn.commits.delete(number)


def repair_commits(txn: Txn) -> None:
    """Removes the entries of the list of commits up to the last damaged one, if there is any."""
    _remove_damaged(txn.commits)


def commit_cursor(txn: Txn) -> int:
    """Returns the number of the last entry in the list of commits, over all tenants."""
    return txn.number(schema.COMMIT_CURSOR)


def changed_after(txn: Txn, cursor: int) -> set[int] | None:
    """Returns the numbers of the collections with a commit after `cursor`.

    Returns None if the list begins after `cursor`, has gaps or is damaged.
    """
    count = commit_cursor(txn) - cursor
    if count > MAX_LOG_ENTRIES:
        return None
    entries = txn.commits.sound_entries(start=cursor + 1)
    changed = [collection for _, collection in entries]
    return set(changed) if len(changed) == max(count, 0) else None


def _remove_damaged(table: Table[K, V, G], group: G | None = None) -> tuple[list[K], int]:
    """Removes the entries of a group up to and including the last damaged one.

    Returns the removed keys, and the number of entries that remain.
    """
    keys = list(table.keys(group))
    damaged = [index for index, key in enumerate(keys) if table.get_sound(key) is None]
    surplus = damaged[-1] + 1 if damaged else 0
    for key in keys[:surplus]:
        table.delete(key)
    return keys[:surplus], len(keys) - surplus
