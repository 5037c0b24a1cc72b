"""Reclaims the space of deleted collections.

Deleting a collection removes its name immediately. Its documents are erased later, a few in each
transaction, so that writes do not wait long. If the process stops before that is complete, the next
process continues. Damaged records of the collection are erased, too.
"""

from collections.abc import Callable
from itertools import islice

from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store.damaged_documents import damaged_at
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.queries import (
    address_of,
    erase_document,
    erase_entries,
)
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.errors import DataLoss, StoreUnavailable

# A transaction erases at most this many documents.
_DOCUMENTS = 200
# A transaction erases no further document after this many filter terms. Erasing a term may copy one
# of LMDB's pages first, and on a full disk all copies must fit into the reserve.
_TERMS = 1024


def reclaim_part(store: Store, number: int, max_documents: int = _DOCUMENTS) -> None:
    """Erases a part of one deleted collection: at most `max_documents`, or what remains after them.

    Raises DataLoss, StoreUnavailable or StorageFull.
    """
    with store.write() as txn:
        has_erased = _erase_documents(txn, number, max_documents)
        unlisted = [] if has_erased else _erase_rest(txn, number)
        reach("reclaim.written")
    reach("reclaim.committed")
    for segment_id in unlisted:
        segment_files.remove(store.segments, segment_id)


def reclaim_some(store: Store, reclaim_part: Callable[[Store, int], None] = reclaim_part) -> bool:
    """Calls `reclaim_part` for one deleted collection. Returns False if there is none.

    If a collection's entries cannot be read or erased, the next deleted collection is tried. If no
    collection can be erased, raises the first error: DataLoss or StoreUnavailable. Raises
    StorageFull immediately.
    """
    failure: DataLoss | StoreUnavailable | None = None
    deleted = _next_deleted(store)
    while deleted is not None:
        try:
            reclaim_part(store, deleted)
            return True
        except (DataLoss, StoreUnavailable) as error:
            failure = failure or error
        deleted = _next_deleted(store, deleted)
    if failure is not None:
        raise failure
    return False


def _next_deleted(store: Store, after: int = 0) -> int | None:
    """Returns the number of the first deleted collection after `after`, or None."""
    with store.read() as txn:
        numbers = txn.deleted_collections.keys(start=after)
        return next((number for number in numbers if number > after), None)


def _erase_documents(txn: Txn, number: int, max_documents: int) -> bool:
    """Erases some documents of a deleted collection. Returns False if it has none."""
    ordinals = [ordinal for _, ordinal in islice(txn.ordinals.keys(number), max_documents)]
    terms = 0
    for ordinal in ordinals:
        try:
            document = txn.documents.require(address_of(txn, number, ordinal))
            txn.document_ids.delete((number, document.document_id))
            terms += erase_document(txn, ordinal, document)
        except DataLoss:
            # The document's entries in other databases are erased with the collection.
            address = damaged_at(txn, number, ordinal).address
            erase_entries(txn, number, ordinal, address)
        if terms > _TERMS:
            break
    return bool(ordinals)


def _erase_rest(txn: Txn, number: int) -> list[int]:
    """Erases what remains of a collection without documents. Returns the ids of its segments.

    Segments with damaged records are not returned: orphan GC removes their files.
    """
    segment_ids = [record.segment_id for _, record in txn.segments.sound_entries(number)]
    for table in txn.tables_by_collection():
        table.clear(number)
    txn.deleted_collections.delete(number)
    return segment_ids
