"""Reclaims the space of deleted collections.

Deleting a collection removes its name immediately. Its documents are erased later, a few in each
transaction, so that writes do not wait long. If the process stops before that is complete, the next
process continues. Damaged records of the collection are erased, too.
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

# A transaction erases at most this many documents.
_DOCUMENTS = 200
# A transaction erases no further document after this many filter terms. Erasing a term may copy one
# of LMDB's pages first, and on a full disk all copies must fit into the reserve.
_TERMS = 1024


def reclaim_some(store: Store) -> bool:
    """Erases a part of one deleted collection. Returns False if there is none.

    If a collection's entries cannot be read or erased, the next deleted collection is tried. If no
    collection can be erased, raises the first error: DataLoss or StoreUnavailable. Raises
    StorageFull immediately.
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
    """Returns the packed number of the first deleted collection after `after`, or None."""
    with store.read() as txn:
        entries = store.scan(txn, "deleted_collections", b"", after)
        return next((bytes(key) for key, _ in entries if bytes(key) > after), None)


def _reclaim_part(store: Store, deleted: bytes) -> None:
    with store.write() as txn:
        unlisted = [] if _erase_documents(store, txn, deleted) else _erase_rest(store, txn, deleted)
        reach("reclaim.written")
    reach("reclaim.committed")
    for segment_id in unlisted:
        segment_files.remove(store.segments, segment_id)


def _erase_documents(store: Store, txn: Txn, deleted: bytes) -> bool:
    """Erases some documents of a deleted collection. Returns False if it has none."""
    number = schema.read_u32(deleted)
    entries = txn.entries(store.db["ordinals"], deleted)
    ordinals = [schema.read_in_collection(key)[1] for key, _ in islice(entries, _DOCUMENTS)]
    terms = 0
    for ordinal in ordinals:
        try:
            document = read_document(store, txn, address_of(store, txn, number, ordinal))
            name = schema.document_id(number, document.document_id)
            txn.delete(name, db=store.db["document_ids"])
            terms += erase_document(store, txn, ordinal, document)
        except DataLoss:
            # The document's entries in other databases are erased with the collection.
            address = damaged_at(store, txn, number, ordinal).address
            erase_entries(store, txn, number, ordinal, address)
        if terms > _TERMS:
            break
    return bool(ordinals)


def _erase_rest(store: Store, txn: Txn, deleted: bytes) -> list[int]:
    """Erases what remains of a collection without documents. Returns the ids of its segments.

    Segments with damaged records are not returned: orphan GC removes their files.
    """
    entries = txn.sound_entries(store.db["segments"], deleted)
    segment_ids = [SegmentRecord.from_bytes(value).segment_id for _, value in entries]
    for database in schema.BY_COLLECTION:
        for key in {bytes(key) for key, _ in txn.entries(store.db[database], deleted)}:
            txn.delete(key, db=store.db[database])
    txn.delete(deleted, db=store.db["deleted_collections"])
    return segment_ids
