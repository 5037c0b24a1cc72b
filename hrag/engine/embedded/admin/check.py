"""Reads a whole store and checks its invariants.

The check reads everything in one transaction, and compares values that can be derived from each
other. It reports problems and never repairs them. Each module of `checks` checks one kind of
invariant.
"""

from collections.abc import Callable, Iterator

from hrag.engine.common.records import CollectionRecord, Usage
from hrag.engine.embedded.admin.checks import (
    document_checks,
    index_checks,
    posting_checks,
    stray_checks,
    summary_checks,
    value_checks,
)
from hrag.engine.embedded.admin.checks.store_walk import UNREADABLE, Walk, differences, guarded
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.codecs import CollectionName
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.reports import CheckReport
from hrag.values.errors import DataLoss


def check(
    store: Store,
    on_problem: Callable[[str], object] = str,
    batch_entries: int = posting_checks.BATCH_ENTRIES,
) -> CheckReport:
    """Checks a store and returns a report. The report has no problems if the store is intact.

    Postings are compared with the texts in batches of about `batch_entries` entries (pairs of a
    leaf and a term). Each problem is passed to `on_problem` as soon as it is found, because a
    damaged page that is read later may kill the process.
    """
    with store.read() as txn:
        walk = Walk(store, txn, batch_entries)
        problems: dict[str, None] = {}
        for part_problems in (
            value_checks.value_problems(walk),
            value_checks.term_problems(walk),
            _all_collection_problems(walk),
            _tenant_problems(walk),
            stray_checks.name_problems(walk),
            stray_checks.stray_problems(walk),
            stray_checks.slot_problems(walk),
            stray_checks.counting_problems(walk),
        ):
            for problem in guarded(part_problems):
                if problem not in problems:
                    problems[problem] = None
                    on_problem(problem)
        return CheckReport(
            walk.collections, walk.documents, walk.leaves, walk.segments, tuple(problems)
        )


def _all_collection_problems(walk: Walk) -> Iterator[str]:
    collections = walk.txn.collections.keys()
    for collection in collections:
        walk.collections += 1
        try:
            record = walk.txn.collections.get_sound(collection)
        except UNREADABLE as error:
            yield f"collection {collection}: its record is damaged: {error!r}"
            continue
        if record is None:
            continue  # `value_problems` has reported the damaged record.
        for problem in _collection_problems(walk, collection, record):
            yield f"collection {record.tenant_id}/{record.name}: {problem}"


def _collection_problems(walk: Walk, collection: int, record: CollectionRecord) -> Iterator[str]:
    yield from guarded(_owner_problems(walk, collection, record))
    counters = Counters()
    try:
        stored = walk.txn.counters.get(collection)
        if stored is None:
            yield "it has no counters"
            return
        counters = stored
    except DataLoss:  # `value_problems` has reported the damaged counters.
        walk.uncounted.add(record.tenant_id)
    yield from guarded(document_checks.document_problems(walk, collection, record, counters))
    yield from guarded(summary_checks.waiting_problems(walk, collection, counters))
    if record.summarises:
        yield from guarded(summary_checks.summary_problems(walk, collection, record.summarises))
    yield from guarded(index_checks.sequence_problems(walk, collection, record.tenant_id, counters))
    yield from guarded(index_checks.log_problems(walk, collection, counters))
    yield from guarded(index_checks.manifest_problems(walk, collection, record.settings, counters))


def _owner_problems(walk: Walk, collection: int, record: CollectionRecord) -> Iterator[str]:
    """Yields a problem if the collection's name does not refer to the collection.

    A summary collection has no name. For a summary collection, yields a problem if the record of
    the summarised collection does not refer to the summary collection.
    """
    if record.summarises:
        exists = walk.txn.collections.has(record.summarises)
        owner = walk.txn.collections.require(record.summarises) if exists else None
        if owner is None or owner.summaries != collection:
            yield (
                f"it contains the summaries of collection {record.summarises}, but that collection "
                "has another summary collection or does not exist"
            )
        return
    named = walk.txn.collection_names.get((record.tenant_id, record.name))
    if named != CollectionName(collection):
        yield "its name does not refer to it"
    yield from _copy_problems(walk, collection, record)


def _copy_problems(walk: Walk, collection: int, record: CollectionRecord) -> Iterator[str]:
    """Yields a problem if a collection and its copy, which is being filled, do not belong together.

    Also yields a problem for each document that only the copy has.
    """
    for other, field in ((record.copied_to, "copy_of"), (record.copy_of, "copied_to")):
        found = walk.txn.collections.get_sound(other) if other else None
        if other and (found is None or getattr(found, field) != collection):
            yield f"its copy or the collection that it is a copy of, {other}, does not refer to it"
            return
    if record.copy_of:
        for _, document_id in walk.txn.document_ids.keys(collection):
            if not walk.txn.document_ids.has((record.copy_of, document_id)):
                yield f"document {schema.printable(document_id)!r} is only in the copy"


def _tenant_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each field of a tenant's usage record that differs from a recount.

    Skips tenants with damaged entries, because the recount does not include damaged entries.
    """
    stored = {
        schema.printable(tenant_id): usage for tenant_id, usage in walk.txn.tenants.sound_entries()
    }
    for tenant_id in sorted((stored.keys() | walk.usage.keys()) - walk.uncounted):
        usage = stored.get(tenant_id, Usage())
        expected = walk.usage.get(tenant_id, Usage())._replace(sequence=usage.sequence)
        for problem in differences(usage, expected):
            yield f"tenant {tenant_id}: {problem}"
