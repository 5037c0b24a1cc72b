"""Checks that entries refer only to existing collections and documents.

Also checks the numbers that a store assigns: ordinals, slots (the keys under which documents are
stored) and the keys of commits. For each kind, the store assigns the numbers 1, 2, 3 and so on,
across all collections.
"""

from collections.abc import Iterator
from itertools import groupby

from hrag.engine.embedded.admin.checks.store_walk import Walk
from hrag.engine.embedded.store import schema


def name_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each name or alias that refers to a missing collection.

    Also yields a problem for each alias that refers to a collection of another tenant or to a
    summary collection.
    """
    for (tenant_id, name), (collection, is_alias) in walk.txn.collection_names.entries():
        key = schema.collection_name(tenant_id, name)
        kind = "alias" if is_alias else "collection name"
        if not walk.txn.collections.has(collection):
            yield f"{kind} {key!r} refers to a collection that does not exist"
        elif is_alias and not _is_alias_of_its_tenant(walk, tenant_id, collection):
            yield f"{kind} {key!r} refers to a collection that is not one of the tenant's"


def _is_alias_of_its_tenant(walk: Walk, tenant_id: str, collection: int) -> bool:
    record = walk.txn.collections.get_sound(collection)
    if record is None:
        return True  # The record is damaged, which the check of the collections reports.
    return not record.summarises and record.tenant_id == tenant_id


def stray_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each entry of a collection that does not exist.

    Entries of a deleted collection that maintenance has not reclaimed yet are no problem.
    """
    known = {*walk.txn.collections.keys(), *walk.txn.deleted_collections.keys()}
    for table in walk.txn.tables_by_collection():
        for key, _ in table.stored():
            collection = schema.read_u32(key[: schema.COLLECTION_BYTES])
            if collection not in known:
                yield f"{table.name} has an entry of collection {collection}, which does not exist"


def counting_problems(walk: Walk) -> Iterator[str]:
    """Checks the ordinals and the keys of the list of commits. Yields the problems.

    The database `meta` contains the ordinal that was assigned last, and the key in the list of
    commits that was assigned last. No ordinal and no key may be greater than these. The list of
    commits must end with the key that was assigned last, and must have no gaps.
    """
    commits = list(walk.txn.commits.keys())
    cursor = walk.txn.number(schema.COMMIT_CURSOR)
    if commits and commits[-1] > cursor:
        yield f"the list of commits ends with {commits[-1]}, but the last assigned key is {cursor}"
    elif commits != list(range(cursor - len(commits) + 1, cursor + 1)):
        yield f"the list of commits has gaps: {len(commits)} entries up to the last, {cursor}"
    keys = walk.txn.ordinals.keys()
    last = max((ordinal for _, ordinal in keys), default=0)
    if last > walk.txn.number(schema.LAST_ORDINAL):
        yield f"ordinal {last} is greater than the last assigned ordinal; it would be used twice"


def slot_problems(walk: Walk) -> Iterator[str]:
    """Checks the slots, the keys under which documents are stored. Yields the problems.

    Each slot must be either listed as free or used by exactly one document.
    """
    slots = [entry.slot for _, entry in walk.txn.ordinals.sound_entries()]
    used, free = set(slots), set(walk.txn.free_slots.keys())
    if len(used) != len(slots):
        yield "two documents have the same slot"
    for slot in sorted(used & free):
        yield f"slot {schema.read_u64(slot)} is listed as free, but a document uses it"
    for name, entries in (
        ("documents", walk.txn.documents.stored()),
        (schema.CONTENTS, walk.txn.contents.stored()),
    ):
        for slot, _ in groupby(bytes(key[: schema.SLOT_BYTES]) for key, _ in entries):
            if slot not in used:
                yield f"{name} has slot {schema.read_u64(slot)}, which no document has"
    last = walk.txn.number(schema.LAST_SLOT)
    if used | free != {schema.u64(slot) for slot in range(1, last + 1)}:
        yield f"{len(used | free)} slots are used or free; they must be the slots 1 to {last}"
