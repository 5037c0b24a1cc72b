"""What changed, in order: one log per collection, and one list of which collection when.

A reader that has a hundred of ten thousand collections in memory reads the list to learn
which of them changed, and then the logs of those alone. Both are trimmed; a reader that
has fallen behind their beginning loads what it needs anew.
"""

from collections.abc import Iterator
from itertools import islice, takewhile

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.records import Change, Counters

MAX_LOG_ENTRIES = 100_000


def append_change(
    store: Store, txn: Txn, collection: int, counters: Counters, change: Change, sequence: int
) -> Counters:
    """Adds to a collection's log; the counters returned have still to be stored."""
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
    """Removes the oldest entries past `max_entries`; the counters have still to be stored."""
    surplus = max(counters.log_entries - max_entries, 0)
    entries = store.scan(txn, "changes", schema.u32(collection))
    oldest = [bytes(key) for key, _ in islice(entries, surplus)]
    for key in oldest:
        txn.delete(key, db=store.db["changes"])
    if oldest:
        log_start = schema.read_in_collection(oldest[-1])[1]
        counters = counters._replace(log_entries=max_entries, log_start=log_start)
    return counters


def note_commit(store: Store, txn: Txn, collection: int, sequence: int) -> None:
    """Adds to the list of which collection changed when, and forgets what is long past."""
    txn.put(schema.u64(sequence), schema.u32(collection), db=store.db["commits"])
    past = schema.u64(max(sequence - MAX_LOG_ENTRIES, 0))
    entries = store.scan(txn, "commits", b"")
    for key in [bytes(key) for key, _ in takewhile(lambda entry: bytes(entry[0]) <= past, entries)]:
        txn.delete(key, db=store.db["commits"])


def changes_after(store: Store, txn: Txn, collection: int, sequence: int) -> Iterator[Change]:
    """The collection's changes after `sequence`, which its log must still hold."""
    start = schema.in_collection(collection, sequence + 1)
    for _, value in store.scan(txn, "changes", schema.u32(collection), start):
        yield Change.from_bytes(value)


def changed_after(store: Store, txn: Txn, sequence: int) -> set[int] | None:
    """Collections that changed after `sequence`; None where the list begins later."""
    if store.number(txn, schema.SEQUENCE) - sequence > MAX_LOG_ENTRIES:
        return None
    entries = store.scan(txn, "commits", b"", schema.u64(sequence + 1))
    return {schema.read_u32(value) for _, value in entries}
