"""Reclaims the space of deleted collections.

Deleting a collection removes its name immediately. The documents of the collection are erased
later, a few in each transaction, so that other writes do not wait long. If the process stops before
all documents are erased, the next process continues. Damaged records of the collection are erased,
too.
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

# One transaction erases at most this many documents of a deleted collection, so that other writers
# do not wait long.
_DOCUMENTS = 200
# A transaction erases no further document once it has erased more than this many filter terms. LMDB
# may copy a page for each term that it erases. On a full disk, all these copies must fit into the
# disk space that is reserved for deletions.
_TERMS = 1024


def reclaim_part(store: Store, number: int, max_documents: int = _DOCUMENTS) -> None:
    """Erases a part of one deleted collection. `number` is the id of the collection.

    If the collection still has documents, erases at most `max_documents` of them. If it has none,
    erases everything else that is stored of the collection, and then the collection is gone. Raises
    DataLoss, StoreUnavailable or StorageFull.
    """
    with store.write() as txn:
        has_erased = _erase_documents(txn, number, max_documents)
        unlisted = [] if has_erased else _erase_rest(txn, number)
        reach("reclaim.written")
    reach("reclaim.committed")
    for segment_id in unlisted:
        segment_files.remove(store.segments, segment_id)


def reclaim_some(store: Store, reclaim_part: Callable[[Store, int], None] = reclaim_part) -> bool:
    """Erases a part of one deleted collection. Returns False if no deleted collection is left.

    If erasing a collection fails with DataLoss or StoreUnavailable, tries the next deleted
    collection. If erasing fails for all deleted collections, raises the first of these errors.
    StorageFull is raised immediately, without trying other collections. Tests may replace
    `reclaim_part`.
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
    """Returns the lowest id of a deleted collection that is above `after`.

    Returns None if there is no such collection.
    """
    with store.read() as txn:
        numbers = txn.deleted_collections.keys(start=after)
        return next((number for number in numbers if number > after), None)


def _erase_documents(txn: Txn, number: int, max_documents: int) -> bool:
    """Erases at most `max_documents` documents of a deleted collection.

    Returns False if the collection has no documents. `number` is the id of the collection.
    """
    ordinals = [ordinal for _, ordinal in islice(txn.ordinals.keys(number), max_documents)]
    terms = 0
    for ordinal in ordinals:
        try:
            document = txn.documents.require(address_of(txn, number, ordinal))
            txn.document_ids.delete((number, document.document_id))
            terms += erase_document(txn, ordinal, document)
        except DataLoss:
            # The document is damaged. Its entries in other LMDB databases are erased later,
            # together with everything else that is stored of the collection.
            address = damaged_at(txn, number, ordinal).address
            erase_entries(txn, number, ordinal, address)
        if terms > _TERMS:
            break
    return bool(ordinals)


def _erase_rest(txn: Txn, number: int) -> list[int]:
    """Erases all entries of a deleted collection whose documents are erased already.

    Returns the ids of the collection's segments, whose files the caller removes. The ids of
    segments with damaged records are not returned; orphan GC removes the files of these segments.
    """
    segment_ids = [record.segment_id for _, record in txn.segments.sound_entries(number)]
    for table in txn.tables_by_collection():
        table.clear(number)
    txn.deleted_collections.delete(number)
    return segment_ids
