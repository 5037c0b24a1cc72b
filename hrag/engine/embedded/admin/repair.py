"""Repair: makes again what can be derived, and lists the documents that cannot.

The truth is each document's record, text, tree and vectors, and each collection's record. Filter
terms, counters and tenants' usage follow from them, tombstones from them and the segments. Logs are
emptied up to a damaged entry, and a damaged record of a segment takes the collection's segments off
the list: maintenance builds them again. No process may have the store open at first: it may hold
what is mended. Everything is repaired in one transaction: who opens the store meanwhile reads the
state before or after, and if it is interrupted, the store is as before.
"""

from contextlib import closing
from pathlib import Path

from hrag.engine.common.records import Usage
from hrag.engine.embedded.admin.check_process import check_apart
from hrag.engine.embedded.segments import manifest
from hrag.engine.embedded.store import change_log, location, schema, store_locks
from hrag.engine.embedded.store.damaged_documents import (
    readable_documents,
    recounted,
    rewrite_terms,
)
from hrag.engine.embedded.store.environment import Store, Txn, open_for_writing
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.owners import collection_record
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.reports import CheckReport
from hrag.values.errors import DataLoss


def repair(directory: Path) -> CheckReport:
    """Returns what is still wrong.

    Raises StoreMissing, StorageFull or StoreUnavailable, and DataLoss if what it repairs from
    is damaged; then the store is as before.
    """
    location.require_data(directory)
    with store_locks.exclusive(directory):
        pass  # Raises StoreUnavailable while a service runs.
    try:
        _repair(directory)
    except DataLoss as error:
        raise DataLoss(
            f"nothing was repaired, because repair needs what is damaged: {error.message}. "
            "`hrag check` lists the documents; restore a backup with `hrag restore`, or ingest all "
            "documents into a new store"
        ) from error
    return check_apart(directory)


def _repair(directory: Path) -> None:
    with closing(open_for_writing(directory)) as store, store.write() as txn:
        change_log.repair_commits(store, txn)
        usage: dict[str, Usage] = {}
        numbers = [schema.read_u32(key) for key, _ in txn.entries(store.db["collections"])]
        for number in numbers:
            _repair_collection(store, txn, number, usage)
        for tenant_id, found in usage.items():
            _repair_usage(store, txn, tenant_id, found)


def _repair_collection(store: Store, txn: Txn, number: int, usage: dict[str, Usage]) -> None:
    record = collection_record(txn, store.db, number)
    if record is None:
        return  # Its documents cannot be understood without it; `check` names it.
    rewrite_terms(store, txn, number)
    has_segments = manifest.repair(store, txn, number)
    key, counters = schema.u32(number), store.db["counters"]
    value = txn.get_sound(key, counters)
    if value is None:
        stored = _counters_of_entries(store, txn, number)
    else:
        stored = Counters.from_bytes(value)
    if not has_segments:
        stored = stored._replace(sealed_ordinal=0, sealed_sequence=0)
    stored = change_log.repaired(store, txn, number, stored)
    counted = recounted(store, txn, number, stored)
    txn.put(key, counted.to_bytes(), db=counters)
    own = Usage(1, counted.documents) if not record.summarises else Usage()
    own = own._replace(stored_bytes=counted.stored_bytes)
    usage[record.tenant_id] = usage.get(record.tenant_id, Usage()).plus(own)


def _counters_of_entries(store: Store, txn: Txn, number: int) -> Counters:
    """Counters made again from what they are about; spent tokens of summaries are lost."""
    prefix = schema.u32(number)
    changes = [
        schema.read_in_collection(key)[1] for key, _ in txn.entries(store.db["changes"], prefix)
    ]
    covered, sealed = 0, 0
    for record in listed_segments(store, txn, number):
        covered, sealed = max(covered, record.covered_sequence), max(sealed, record.last_ordinal)
    documents = (document.sequence for _, document in readable_documents(store, txn, number))
    last = max((covered, *changes[-1:], *documents))
    waiting = sum(1 for _ in txn.entries(store.db["unsummarised"], prefix))
    return Counters(
        sequence=last,
        sealed_sequence=covered,
        sealed_ordinal=sealed,
        log_entries=len(changes),
        log_start=changes[0] - 1 if changes else last,
        unsummarised=waiting,
    )


def _repair_usage(store: Store, txn: Txn, tenant_id: str, found: Usage) -> None:
    """Writes a tenant's usage; a lost sequence becomes one that no change can have had."""
    key, tenants = schema.tenant(tenant_id), store.db["tenants"]
    value = txn.get_sound(key, tenants)
    if value is not None:
        sequence = Usage.from_bytes(value).sequence
    else:  # Every change took an ordinal, deleted one, or made a commit of its own.
        ordinals = store.number(txn, schema.LAST_ORDINAL)
        sequence = 2 * ordinals + store.number(txn, schema.COMMIT_CURSOR)
    txn.put(key, found._replace(sequence=sequence).to_bytes(), db=tenants)
