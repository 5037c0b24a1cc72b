"""Reclaims the space of deleted collections.

Deleting a collection removes its name at once; its documents are erased afterwards, a few
per transaction, so that no write waits long. What a stop leaves is erased after the next
start. Damaged records go with their collection.
"""

from itertools import islice

from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.damaged_documents import damaged_at
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import (
    address_of,
    erase_document,
    erase_entries,
    read_document,
)
from hrag.values.errors import DataLoss, StoreUnavailable

_DOCUMENTS = 200  # Per transaction.
# Each may copy a page of LMDB first; so many fit into the reserve of a full disk.
_TERMS = 1024


def reclaim_some(store: Store) -> bool:
    """Erases a part of one deleted collection; returns False if there is none.

    One whose entries cannot be read or erased keeps no other waiting: the error, DataLoss or
    StoreUnavailable, is raised once no other is left. Raises StorageFull at once.
    """
    failure: DataLoss | StoreUnavailable | None = None
    deleted = _next_deleted(store)
    while deleted is not None:
        try:
            _reclaim_part(store, deleted)
            return True
        except (DataLoss, StoreUnavailable) as error:
            failure = failure or error
        deleted = _next_deleted(store, deleted)
    if failure is not None:
        raise failure
    return False


def _next_deleted(store: Store, after: bytes = b"") -> bytes | None:
    """Returns the packed number of the first deleted collection past `after`."""
    with store.read() as txn:
        entries = store.scan(txn, "deleted_collections", b"", after)
        return next((bytes(key) for key, _ in entries if bytes(key) > after), None)


def _reclaim_part(store: Store, deleted: bytes) -> None:
    with store.write() as txn:
        unlisted = [] if _erase_documents(store, txn, deleted) else _forget(store, txn, deleted)
        reach("reclaim.written")
    reach("reclaim.committed")
    for segment_id in unlisted:
        segment_files.remove(store.segments, segment_id)


def _erase_documents(store: Store, txn: Txn, deleted: bytes) -> bool:
    """Returns whether there was a document to erase."""
    number = schema.read_u32(deleted)
    entries = txn.entries(store.db["ordinals"], deleted)
    found = [schema.read_in_collection(key)[1] for key, _ in islice(entries, _DOCUMENTS)]
    terms = 0
    for ordinal in found:
        try:
            document = read_document(store, txn, address_of(store, txn, number, ordinal))
            name = schema.document_id(number, document.document_id)
            txn.delete(name, db=store.db["document_ids"])
            terms += erase_document(store, txn, ordinal, document)
        except DataLoss:  # Whatever it leaves in other databases goes with the collection.
            address = damaged_at(store, txn, number, ordinal).address
            erase_entries(store, txn, number, ordinal, address)
        if terms > _TERMS:
            break
    return bool(found)


def _forget(store: Store, txn: Txn, deleted: bytes) -> list[int]:
    """Erases the empty collection itself; returns the ids of its segments.

    The files of those whose records are damaged are left to orphan GC.
    """
    entries = txn.sound_entries(store.db["segments"], deleted)
    segment_ids = [SegmentRecord.from_bytes(value).segment_id for _, value in entries]
    for database in schema.BY_COLLECTION:
        for key in {bytes(key) for key, _ in txn.entries(store.db[database], deleted)}:
            txn.delete(key, db=store.db[database])
    txn.delete(deleted, db=store.db["deleted_collections"])
    return segment_ids
