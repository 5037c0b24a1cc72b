"""Reclaims the space of deleted collections.

A deletion takes the name away at once; its documents are erased afterwards, a few per
transaction, so that no write waits long. Whatever is left at a stop goes on at the next
start.
"""

from itertools import islice

from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.queries import (
    erase_document,
    listed_segments,
    read_document,
    slot_of,
)

_DOCUMENTS = 200  # Per transaction.


def reclaim_some(store: Store) -> bool:
    """Erases a part of one deleted collection; False when none is left."""
    with store.read() as txn:
        dropped = next((bytes(key) for key, _ in store.scan(txn, "deleted_collections", b"")), None)
    if dropped is None:
        return False
    with store.write() as txn:
        unlisted = [] if _erase_documents(store, txn, dropped) else _forget(store, txn, dropped)
        reach("reclaim.written")
    reach("reclaim.committed")
    for segment_id in unlisted:
        segment_files.remove(store.segments, segment_id)
    return True


def _erase_documents(store: Store, txn: Txn, dropped: bytes) -> int:
    """Returns how many documents there were to erase."""
    number = schema.read_u32(dropped)
    entries = store.scan(txn, "ordinals", dropped)
    found = [schema.read_in_collection(key)[1] for key, _ in islice(entries, _DOCUMENTS)]
    for ordinal in found:
        head = read_document(store, txn, slot_of(store, txn, number, ordinal))
        name = schema.document_id(number, head.document_id)
        txn.delete(name, db=store.db["document_ids"])
        erase_document(store, txn, ordinal, head)
    return len(found)


def _forget(store: Store, txn: Txn, dropped: bytes) -> list[int]:
    """Erases the empty collection itself; returns the segments it had."""
    records = listed_segments(store, txn, schema.read_u32(dropped))
    for database in ("changes", "segments", "deleted_leaves", "tombstones"):
        for key in [bytes(key) for key, _ in store.scan(txn, database, dropped)]:
            txn.delete(key, db=store.db[database])
    txn.delete(dropped, db=store.db["deleted_collections"])
    return [record.segment_id for record in records]
