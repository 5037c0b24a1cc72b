"""Reads a whole store and checks its invariants.

Reads everything in one transaction, and compares values that can be derived from each other.
Reports problems and never repairs them. Each module of `checks` checks one kind of invariant.
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
    part_entries: int = posting_checks.PART_ENTRIES,
) -> CheckReport:
    """Checks a store and returns a report. Its `problems` are empty if the store is intact.

    Postings are compared with the texts in parts of about `part_entries` entries. Each problem
    is passed to `on_problem` as soon as it is found, because reading a damaged page
    may end the process.
    """
    with store.read() as txn:
        walk = Walk(store, txn, part_entries)
        problems: dict[str, None] = {}
        for part in (
            value_checks.value_problems(walk),
            value_checks.term_problems(walk),
            _all_collections(walk),
            _tenants(walk),
            stray_checks.name_problems(walk),
            stray_checks.stray_problems(walk),
            stray_checks.slot_problems(walk),
            stray_checks.number_problems(walk),
        ):
            for problem in guarded(part):
                if problem not in problems:
                    problems[problem] = None
                    on_problem(problem)
        return CheckReport(
            walk.collections, walk.documents, walk.leaves, walk.segments, tuple(problems)
        )


def _all_collections(walk: Walk) -> Iterator[str]:
    numbers = walk.txn.collections.keys()
    for number in numbers:
        walk.collections += 1
        try:
            record = walk.txn.collections.get_sound(number)
        except UNREADABLE as error:
            yield f"collection {number}: its record is damaged: {error!r}"
            continue
        if record is None:
            continue  # `value_problems` has reported it.
        for problem in _collection(walk, number, record):
            yield f"collection {record.tenant_id}/{record.name}: {problem}"


def _collection(walk: Walk, number: int, record: CollectionRecord) -> Iterator[str]:
    yield from guarded(_owner_problems(walk, number, record))
    counters = Counters()
    try:
        stored = walk.txn.counters.get(number)
        if stored is None:
            yield "it has no counters"
            return
        counters = stored
    except DataLoss:  # `value_problems` has reported it.
        walk.uncounted.add(record.tenant_id)
    yield from guarded(document_checks.document_problems(walk, number, record, counters))
    yield from guarded(summary_checks.waiting_problems(walk, number, counters))
    if record.summarises:
        yield from guarded(summary_checks.summary_problems(walk, number, record.summarises))
    yield from guarded(index_checks.sequence_problems(walk, number, record.tenant_id, counters))
    yield from guarded(index_checks.log_problems(walk, number, counters))
    yield from guarded(index_checks.manifest_problems(walk, number, record.settings, counters))


def _owner_problems(walk: Walk, number: int, record: CollectionRecord) -> Iterator[str]:
    """Yields a problem unless the collection's name refers to it.

    A summary collection has no name. The record of the collection that it summarises must refer
    to it.
    """
    if record.summarises:
        exists = walk.txn.collections.has(record.summarises)
        owner = walk.txn.collections.require(record.summarises) if exists else None
        if owner is None or owner.summaries != number:
            yield (
                f"it contains the summaries of collection {record.summarises}, which has another "
                "summary collection or does not exist"
            )
        return
    named = walk.txn.collection_names.get((record.tenant_id, record.name))
    if named != CollectionName(number):
        yield "its name does not refer to it"


def _tenants(walk: Walk) -> Iterator[str]:
    """Yields the differences between each tenant's record and the sums over its collections."""
    stored = {
        schema.printable(tenant_id): usage for tenant_id, usage in walk.txn.tenants.sound_entries()
    }
    for tenant_id in sorted((stored.keys() | walk.usage.keys()) - walk.uncounted):
        usage = stored.get(tenant_id, Usage())
        expected = walk.usage.get(tenant_id, Usage())._replace(sequence=usage.sequence)
        for problem in differences(usage, expected):
            yield f"tenant {tenant_id}: {problem}"
