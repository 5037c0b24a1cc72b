"""Look-ups that writer, reader and maintenance share, inside a transaction of the caller."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from hrag.engine.common.records import CollectionRecord, DocumentRecord, Usage
from hrag.engine.common.validation import no_collection, no_document
from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.store.connection import Connection
from hrag.values.collections import Collection

_NUL = "\0"  # No name and no id has it, and no text of PostgreSQL.

_FIND = """
SELECT c.collection_id, c.record::text
FROM hrag.names n JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE n.tenant_id = %s AND n.name = %s
"""
_STATE = """
SELECT sequence, home, documents, chunks, leaves, tokens, text_bytes, vector_bytes,
  unsummarised, summary_tokens, record::text
FROM hrag.collections WHERE tenant_id = %s AND collection_id = %s
"""
_USAGE = """
SELECT collections, documents, stored_bytes, sequence FROM hrag.tenants WHERE tenant_id = %s
"""
_DOCUMENT = """
SELECT d.ordinal, d.record
FROM hrag.documents d JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE d.tenant_id = %s AND d.collection_id = %s AND d.document_id = %s
"""
_RECORD = """
SELECT record FROM hrag.documents
WHERE tenant_id = %s AND collection_id = %s AND ordinal = %s
"""
_ALIASES = """
SELECT n.name, n.collection_id, c.record->>'name'
FROM hrag.names n JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE n.tenant_id = %s AND n.is_alias ORDER BY n.name
"""
_ALL_COLLECTIONS = """
SELECT n.name, c.documents, c.record::text
FROM hrag.names n JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE NOT n.is_alias ORDER BY n.tenant_id, n.name
"""
_COLLECTIONS = """
SELECT c.documents, c.record::text
FROM hrag.names n JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE n.tenant_id = %s AND NOT n.is_alias AND n.name > %s ORDER BY n.name LIMIT %s
"""


class CollectionState(NamedTuple):
    """A collection's running totals, see the table `collections`."""

    sequence: int
    home: int | None
    documents: int
    chunks: int
    leaves: int
    tokens: int
    text_bytes: int
    vector_bytes: int
    unsummarised: int
    summary_tokens: int
    record: CollectionRecord


def as_text(value: str) -> str:
    """What PostgreSQL compares a client's text with: up to the first NUL.

    Only for comparisons of order with names and ids, which have none: what sorts after a text
    with NUL sorts after its beginning.
    """
    return value.partition(_NUL)[0]


def is_storable(*values: str) -> bool:
    """Whether a name or an id can exist at all."""
    return not any(_NUL in each for each in values)


@lru_cache(maxsize=1024)
def collection_record(record: str) -> CollectionRecord:
    """Decodes a collection's record: every call needs it, and it hardly ever changes."""
    return CollectionRecord.from_bytes(record.encode())


def find_collection(connection: Connection, tenant_id: str, name: str) -> CollectionHandle:
    """Returns a handle of the collection with this name or alias, or raises CollectionNotFound."""
    found = None
    if is_storable(tenant_id, name):
        found = connection.execute(_FIND, (tenant_id, name)).fetchone()
    if found is None:
        raise no_collection(tenant_id, name)
    return handle_of(*found)


def handle_of(collection_id: int, record: str) -> CollectionHandle:
    """A handle from a collection's number and record."""
    decoded = collection_record(record)
    return CollectionHandle(decoded.tenant_id, decoded.name, collection_id, decoded.settings)


def collection_state(connection: Connection, handle: CollectionHandle) -> CollectionState:
    """Returns the collection's totals, or raises CollectionNotFound if it was deleted."""
    found = state_of(connection, handle.tenant_id, handle.collection_id)
    if found is None:
        raise no_collection(handle.tenant_id, handle.name)
    return found


def state_of(connection: Connection, tenant_id: str, collection_id: int) -> CollectionState | None:
    """Returns a collection's totals, None if there is no such collection."""
    found = connection.execute(_STATE, (tenant_id, collection_id)).fetchone()
    if found is None:
        return None
    *totals, record = found
    return CollectionState._make((*totals, collection_record(record)))


def usage_of(connection: Connection, tenant_id: str) -> Usage:
    """Returns what a tenant has; all zero before its first change."""
    found = connection.execute(_USAGE, (tenant_id,)).fetchone()
    return Usage() if found is None else Usage(*found)


def find_document(
    connection: Connection, handle: CollectionHandle, document_id: str
) -> tuple[int, DocumentRecord]:
    """Returns a document's ordinal and record.

    Raises CollectionNotFound if the collection was deleted, or DocumentNotFound.
    """
    found = None
    if is_storable(document_id):
        wanted = (handle.tenant_id, handle.collection_id, document_id)
        found = connection.execute(_DOCUMENT, wanted).fetchone()
    if found is None:
        collection_state(connection, handle)
        raise no_document(handle, document_id)
    ordinal, record = found
    return ordinal, DocumentRecord.from_bytes(record)


def record_of_ordinal(
    connection: Connection, handle: CollectionHandle, ordinal: int
) -> DocumentRecord | None:
    """Returns the record of a version of a document, None if it is not stored any more."""
    wanted = (handle.tenant_id, handle.collection_id, ordinal)
    found = connection.execute(_RECORD, wanted).fetchone()
    return None if found is None else DocumentRecord.from_bytes(found[0])


def aliases_of(connection: Connection, tenant_id: str) -> list[tuple[str, int, str]]:
    """Returns a tenant's aliases in order of name: alias, collection's number, collection."""
    return connection.execute(_ALIASES, (tenant_id,)).fetchall()


def collections_of(
    connection: Connection, tenant_id: str, after: str, count: int
) -> list[Collection]:
    """Returns at most `count` of a tenant's collections by name, after the name `after`."""
    rows = connection.execute(_COLLECTIONS, (tenant_id, as_text(after), count)).fetchall()
    return [described(*each) for each in rows]


def all_collections(connection: Connection) -> Iterator[Collection]:
    """Yields every tenant's collections, by tenant and name."""
    for _, documents, record in connection.execute(_ALL_COLLECTIONS):
        yield described(documents, record)


def described(documents: int, record: str) -> Collection:
    """What clients see of a collection."""
    decoded = collection_record(record)
    return Collection(decoded.tenant_id, decoded.name, decoded.settings, documents)


def table_names(home: int | None) -> Sequence[tuple[str, str]]:
    """Schema and name of the tables that may hold leaves of a collection.

    The last one is where new ones go.
    """
    if home is None:
        return (("hrag", "leaves"),)
    return (("hrag_homes", f"leaves_{home}"), ("hrag_homes", f"tail_{home}"))


def one_value(connection: Connection, query: Any, params: Any) -> Any:
    """Returns the only column of the only row."""
    row = connection.execute(query, params).fetchone()
    assert row is not None
    return row[0]
