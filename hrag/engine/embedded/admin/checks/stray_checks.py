"""Checks that every entry belongs to something that exists, and that numbers are in range."""

from collections.abc import Iterator
from itertools import groupby

from hrag.engine.embedded.admin.checks.store_walk import Walk
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.owners import collection_record
from hrag.engine.embedded.store.queries import collection_exists


def name_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each name or alias of a collection that does not exist.

    Also yields a problem for each alias of a collection that belongs to another tenant or is a
    summary collection.
    """
    for key, value in walk.entries("collection_names"):
        number, is_alias = schema.read_name(value)
        kind = "alias" if is_alias else "collection name"
        if not collection_exists(walk.store, walk.txn, number):
            yield f"{kind} {bytes(key)!r} names no collection"
        elif is_alias and not _is_alias_of_its_tenant(walk, bytes(key), number):
            yield f"{kind} {bytes(key)!r} names a collection that is not the tenant's"


def _is_alias_of_its_tenant(walk: Walk, key: bytes, number: int) -> bool:
    record = collection_record(walk.txn, walk.store.db, number)
    if record is None:
        return True  # The check of the collections reports the damaged record.
    tenant = schema.collection_name(record.tenant_id, "")
    return not record.summarises and key.startswith(tenant)


def stray_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each entry of a collection that does not exist.

    Entries of a deleted collection that is still to be reclaimed are no problem.
    """
    databases = ("collections", "deleted_collections")
    known = {bytes(key) for name in databases for key in walk.keys(name)}
    for name in schema.BY_COLLECTION:
        for key in walk.keys(name):
            if bytes(key[: schema.COLLECTION_BYTES]) not in known:
                number = schema.read_u32(key[: schema.COLLECTION_BYTES])
                yield f"{name} has an entry of collection {number}, which does not exist"


def number_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each ordinal or commit that is larger than the store's last one.

    Also yields a problem if the list of commits has gaps.
    """
    commits = [schema.read_u64(key) for key in walk.keys("commits")]
    cursor = walk.store.number(walk.txn, schema.COMMIT_CURSOR)
    if commits and commits[-1] > cursor:
        yield f"commit {commits[-1]} is past the store's last"
    elif commits != list(range(cursor - len(commits) + 1, cursor + 1)):
        yield f"the list of commits has gaps: {len(commits)} entries before the last, {cursor}"
    ordinals = (schema.read_in_collection(key)[1] for key in walk.keys("ordinals"))
    last = max(ordinals, default=0)
    if last > walk.store.number(walk.txn, schema.LAST_ORDINAL):
        yield f"ordinal {last} is past the store's last; it would be used twice"


def slot_problems(walk: Walk) -> Iterator[str]:
    """Yields a problem for each slot that is not either free or used by exactly one document."""
    ordinals = walk.store.db["ordinals"]
    slots = [schema.read_document_entry(value)[1] for _, value in walk.txn.sound_entries(ordinals)]
    used, free = set(slots), {bytes(key) for key in walk.keys("free_slots")}
    if len(used) != len(slots):
        yield "two documents have the same slot"
    for slot in sorted(used & free):
        yield f"slot {schema.read_u64(slot)} is listed as free, but a document uses it"
    for name in ("documents", schema.CONTENTS):
        for slot, _ in groupby(bytes(key[: schema.SLOT_BYTES]) for key in walk.keys(name)):
            if slot not in used:
                yield f"{name} has slot {schema.read_u64(slot)}, which no document has"
    last = walk.store.number(walk.txn, schema.LAST_SLOT)
    if used | free != {schema.u64(slot) for slot in range(1, last + 1)}:
        yield f"{len(used | free)} slots are used or free; they should be 1 to {last}"
