"""Queries that the writer, the reader and maintenance share.

Each query runs in the current transaction of the caller.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from hrag.engine.common.records import CollectionRecord, DocumentRecord, Usage
from hrag.engine.common.validation import no_collection, no_document
from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.store.connection import Connection
from hrag.values.collections import Collection

# PostgreSQL's type text does not allow this character, so no stored name or id contains it.
_NUL = "\0"

_FIND_COLLECTION = """
SELECT c.collection_id, c.record::text
FROM hrag.names n JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE n.tenant_id = %s AND n.name = %s
"""
_STATE = """
SELECT sequence, home, documents, chunks, leaves, tokens, text_bytes, vector_bytes,
  unsummarised, summary_tokens, stored_bytes, record::text
FROM hrag.collections WHERE tenant_id = %s AND collection_id = %s
"""
_USAGE = """
SELECT collections, documents, stored_bytes, sequence FROM hrag.tenants WHERE tenant_id = %s
"""
_FIND_DOCUMENT = """
SELECT d.ordinal, d.record
FROM hrag.documents d JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE d.tenant_id = %s AND d.collection_id = %s AND d.document_id = %s
"""
_RECORD_OF_ORDINAL = """
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
REMOVE_ROWS = """
DELETE FROM {table} WHERE tenant_id = %(tenant_id)s AND ctid = ANY(ARRAY(
    SELECT ctid FROM {table} WHERE tenant_id = %(tenant_id)s
    AND collection_id = %(collection_id)s LIMIT %(rows)s))
"""
"""Deletes at most `rows` rows of a collection from a table."""
REMOVED_ROWS = 10_000
"""One transaction of maintenance deletes at most this many rows by REMOVE_ROWS."""


LEAVES = ("hrag", "leaves")
"""The schema and the name of the table that all collections share."""


class CollectionState(NamedTuple):
    """A collection's running totals, stored in the table `collections`."""

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
    stored_bytes: int
    record: CollectionRecord


def as_text(value: str) -> str:
    """Returns the part of a client's text before the first NUL.

    PostgreSQL's type text cannot contain NUL. Use the result only to find the names or ids that
    sort after the client's text. The result is correct for this: a stored name contains no NUL, so
    a name that sorts after the whole text also sorts after the part before the first NUL.
    """
    return value.partition(_NUL)[0]


def is_storable(*values: str) -> bool:
    """Returns True if PostgreSQL can store all these names or ids: none of them contains NUL."""
    return not any(_NUL in value for value in values)


@lru_cache(maxsize=1024)
def collection_record(record: str) -> CollectionRecord:
    """Decodes the JSON record of a collection.

    Results are cached because every call needs the record of its collection, and the record of a
    collection rarely changes: when the collection is reindexed or embedded again.
    """
    return CollectionRecord.from_bytes(record.encode())


def find_collection(connection: Connection, tenant_id: str, name: str) -> CollectionHandle:
    """Returns the handle (tenant, name, id and settings) of the collection with this name or alias.

    Raises CollectionNotFound if there is no such collection.
    """
    row = None
    if is_storable(tenant_id, name):
        row = connection.execute(_FIND_COLLECTION, (tenant_id, name)).fetchone()
    if row is None:
        raise no_collection(tenant_id, name)
    return handle_of(*row)


def handle_of(collection_id: int, record: str) -> CollectionHandle:
    """Creates the handle of a collection from its id and its JSON record.

    A handle has the tenant, the name, the id and the settings of the collection.
    """
    decoded = collection_record(record)
    return CollectionHandle(decoded.tenant_id, decoded.name, collection_id, decoded.settings)


def collection_state(connection: Connection, handle: CollectionHandle) -> CollectionState:
    """Returns the collection's totals, or raises CollectionNotFound if it was deleted."""
    state = state_of(connection, handle.tenant_id, handle.collection_id)
    if state is None:
        raise no_collection(handle.tenant_id, handle.name)
    return state


def state_of(connection: Connection, tenant_id: str, collection_id: int) -> CollectionState | None:
    """Returns a collection's totals; None if the collection does not exist."""
    row = connection.execute(_STATE, (tenant_id, collection_id)).fetchone()
    if row is None:
        return None
    *totals, record = row
    return CollectionState._make((*totals, collection_record(record)))


def usage_of(connection: Connection, tenant_id: str) -> Usage:
    """Returns a tenant's usage; all its values are zero before the tenant's first change."""
    row = connection.execute(_USAGE, (tenant_id,)).fetchone()
    return Usage() if row is None else Usage(*row)


def find_document(
    connection: Connection, handle: CollectionHandle, document_id: str
) -> tuple[int, DocumentRecord]:
    """Returns a document's ordinal and record.

    Raises CollectionNotFound if the collection was deleted, and DocumentNotFound if it has no
    document with this id.
    """
    stored = document_named(connection, handle, document_id)
    if stored is None:
        collection_state(connection, handle)
        raise no_document(handle, document_id)
    return stored


def document_named(
    connection: Connection, handle: CollectionHandle, document_id: str
) -> tuple[int, DocumentRecord] | None:
    """Returns the ordinal and the record of the document with this id; None if there is none."""
    if not is_storable(document_id):
        return None
    parameters = (handle.tenant_id, handle.collection_id, document_id)
    row = connection.execute(_FIND_DOCUMENT, parameters).fetchone()
    return None if row is None else (row[0], DocumentRecord.from_bytes(row[1]))


def record_of_ordinal(
    connection: Connection, handle: CollectionHandle, ordinal: int
) -> DocumentRecord | None:
    """Returns the record of the document version with this ordinal; None if it was deleted."""
    parameters = (handle.tenant_id, handle.collection_id, ordinal)
    row = connection.execute(_RECORD_OF_ORDINAL, parameters).fetchone()
    return None if row is None else DocumentRecord.from_bytes(row[0])


def aliases_of(connection: Connection, tenant_id: str) -> list[tuple[str, int, str]]:
    """Returns a tenant's aliases in order of name.

    Each element is a tuple of the alias, the collection's id and the collection's name.
    """
    return connection.execute(_ALIASES, (tenant_id,)).fetchall()


def collections_of(
    connection: Connection, tenant_id: str, after: str, count: int
) -> list[Collection]:
    """Returns the next `count` of a tenant's collections, or fewer, in order of name.

    The names of all returned collections sort after the name `after`.
    """
    rows = connection.execute(_COLLECTIONS, (tenant_id, as_text(after), count)).fetchall()
    return [described(*row) for row in rows]


def all_collections(connection: Connection) -> Iterator[Collection]:
    """Yields the collections of all tenants, in order of tenant and name."""
    for _, documents, record in connection.execute(_ALL_COLLECTIONS):
        yield described(documents, record)


def described(documents: int, record: str) -> Collection:
    """Returns the description of a collection for clients.

    `documents` is its count of documents, and `record` is its JSON record.
    """
    decoded = collection_record(record)
    return Collection(decoded.tenant_id, decoded.name, decoded.settings, documents)


def table_names(home: int | None) -> Sequence[tuple[str, str]]:
    """Returns the schema and the name of each table that may contain leaves of a collection.

    The writer inserts new leaves into the last of these tables, `hrag.leaves`, which all
    collections share. `home` is the id of the collection's home, a table with an HNSW index; None
    if it has none.
    """
    if home is None:
        return (LEAVES,)
    return (("hrag_homes", f"leaves_{home}"), LEAVES)


def one_value(connection: Connection, query: Any, params: Any) -> Any:
    """Runs a query whose result is one row with one column; returns this value."""
    row = connection.execute(query, params).fetchone()
    assert row is not None
    return row[0]
