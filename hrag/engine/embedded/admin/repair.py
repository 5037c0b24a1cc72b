"""Repairs a store: computes derived data again, and reports the damage that remains.

The record, text, tree and vectors of each document and the record of each collection cannot be
derived from other data, so they are not repaired. All other data is repaired:

* Filter terms, counters and tenants' usage are computed from the records of the documents.
* If a tombstone is damaged, all tombstones of its collection are computed from the segments and the
  existing documents.
* If an entry of a change log or of the list of commits is damaged, all entries up to the last
  damaged entry are deleted.
* If the record of a segment is damaged, all segments of its collection are deleted from the
  manifest. Maintenance builds them again.

When the repair begins, no process may have the store open, because the process may have data in
memory that the repair replaces. Everything is repaired in one transaction. So a process that opens
the store for reading during the repair reads either the state before the repair or the state after
it, and if the repair is interrupted, the store is unchanged.
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
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.reports import CheckReport
from hrag.values.errors import DataLoss


def repair(directory: Path) -> CheckReport:
    """Repairs the store in `directory`. Returns a report on the problems that remain.

    Raises StoreMissing, StorageFull or StoreUnavailable. Raises DataLoss if data that the repair
    needs is damaged. After an error, the store is unchanged.
    """
    location.require_data(directory)
    with store_locks.exclusive(directory):
        pass  # If a service is running, acquiring the lock raises StoreUnavailable.
    try:
        _repair(directory)
    except DataLoss as error:
        raise DataLoss(
            f"nothing was repaired, because the repair needs damaged data: {error.message}. "
            "`hrag check` lists the damage; restore a backup with `hrag restore`, or ingest all "
            "documents into a new store"
        ) from error
    return check_apart(directory)


def _repair(directory: Path) -> None:
    with closing(open_for_writing(directory)) as store, store.write() as txn:
        change_log.repair_commits(txn)
        usage: dict[str, Usage] = {}
        for collection in list(txn.collections.keys()):
            _repair_collection(txn, store.segments, collection, usage)
        for tenant_id, counted in usage.items():
            _repair_usage(txn, tenant_id, counted)


def _repair_collection(txn: Txn, segments: Path, collection: int, usage: dict[str, Usage]) -> None:
    record = txn.collections.get_sound(collection)
    if record is None:
        return  # Without its record, a collection cannot be read. `check` reports the damage.
    rewrite_terms(txn, collection)
    has_segments = manifest.repair(txn, segments, collection)
    stored = txn.counters.get_sound(collection)
    if stored is None:
        stored = _recompute_counters(txn, collection)
    if not has_segments:
        stored = stored._replace(sealed_ordinal=0, sealed_sequence=0)
    stored = change_log.repaired(txn, collection, stored)
    counted = recounted(txn, collection, stored)
    txn.counters.put(collection, counted)
    # The usage of a tenant counts the bytes of a summary collection, but not its documents.
    counts = Usage(1, counted.documents) if not record.summarises else Usage()
    counts = counts._replace(stored_bytes=counted.stored_bytes)
    usage[record.tenant_id] = usage.get(record.tenant_id, Usage()).plus(counts)


def _recompute_counters(txn: Txn, collection: int) -> Counters:
    """Computes the counters of a collection from its change log, segments and documents.

    In the result, the counters that `OF_DOCUMENTS` names are 0; the caller computes them with
    `recounted`. The count of tokens that a chat model has read and written for summaries is 0,
    because it is stored only in the damaged counters.
    """
    changes = [sequence for _, sequence in txn.changes.keys(collection)]
    covered, sealed = 0, 0
    for record in listed_segments(txn, collection):
        covered, sealed = max(covered, record.covered_sequence), max(sealed, record.last_ordinal)
    documents = (document.sequence for _, document in readable_documents(txn, collection))
    last = max((covered, *changes[-1:], *documents))
    return Counters(
        sequence=last,
        sealed_sequence=covered,
        sealed_ordinal=sealed,
        log_entries=len(changes),
        log_start=changes[0] - 1 if changes else last,
        unsummarised=txn.unsummarised.count(collection),
    )


def _repair_usage(txn: Txn, tenant_id: str, counted: Usage) -> None:
    """Replaces a tenant's usage record.

    `counted` is the usage of the tenant without its last sequence number. The sequence number is
    copied from the old usage record. If the old record is damaged, the last sequence number is
    lost. Then the new record gets a number that is at least as large as the lost one.
    """
    usage = txn.tenants.get_sound(tenant_id)
    if usage is not None:
        sequence = usage.sequence
    else:
        # Every change has added an ordinal, deleted an ordinal, or added an entry to the list of
        # commits. So the tenant cannot have had more changes than the sum of these three counts.
        ordinals = txn.number(schema.LAST_ORDINAL)
        sequence = 2 * ordinals + txn.number(schema.COMMIT_CURSOR)
    txn.tenants.put(tenant_id, counted._replace(sequence=sequence))
