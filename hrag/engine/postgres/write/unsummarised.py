"""Finds the next document that waits for its summaries.

If a document or a collection is damaged, UnreadableVersion is raised. It contains an integer that
identifies what is damaged: the result of `version_of` for a document, or the negated id of a
collection. The caller passes this integer as one of `excluding` when it looks for the next
document.
"""

from collections.abc import Container, Iterator
from contextlib import contextmanager

from psycopg import sql
from psycopg.errors import DataCorrupted, IndexCorrupted

from hrag.engine.common.labels import LEAF_BITS
from hrag.engine.common.records import DocumentRecord
from hrag.engine.engine_documents import CollectionHandle, UnreadableVersion, Unsummarised
from hrag.engine.postgres.store.cluster import rows_of_all_nodes
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import handle_of
from hrag.values.tree import Tree

# The result of `version_of` has the ordinal of the document in its lowest _ORDINAL_BITS bits. The
# higher bits are the id of the document's collection, because an ordinal is unique only in its
# tenant. The lowest bits are enough for 17 million million changes of a tenant.
_ORDINAL_BITS = 64 - LEAF_BITS
_DAMAGE = (DataCorrupted, IndexCorrupted, ValueError, KeyError, TypeError)
"""The exceptions that reading and decoding a damaged row may raise."""

# An unfinished copy of a collection gets its summaries from this collection. On a cluster, the
# collections of a node that is down are missing.
_COLLECTIONS = sql.SQL("""
SELECT tenant_id, collection_id, summary_tokens, record::text,
  record->'settings'->>'embedder' AS embedder
FROM {table} WHERE unsummarised > 0 AND record->>'copy_of' IS NULL
""")
_DOCUMENTS = """
SELECT ordinal FROM hrag.documents
WHERE tenant_id = %s AND collection_id = %s AND is_unsummarised AND ordinal > %s
ORDER BY ordinal LIMIT 64
"""
_DOCUMENT = """
SELECT record, tree, body FROM hrag.documents
WHERE tenant_id = %s AND collection_id = %s AND ordinal = %s
"""


def version_of(collection_id: int, ordinal: int) -> int:
    """Returns an integer that identifies a version of a document in the whole store."""
    return collection_id << _ORDINAL_BITS | ordinal


def ordinal_of(version: int) -> int:
    """Returns the ordinal from `version`, which is a result of `version_of`."""
    return version & ((1 << _ORDINAL_BITS) - 1)


def next_unsummarised(
    connection: Connection,
    embedder: str,
    after: CollectionHandle | None,
    excluding: Container[int],
) -> Unsummarised | None:
    """Returns a document whose summaries are not written yet; None if no document waits for them.

    Implements `hrag.engine.Writer.next_unsummarised`.
    """
    last = 0 if after is None else after.collection_id
    rows = rows_of_all_nodes(connection, "collections", _COLLECTIONS)
    waiting = sorted(
        (
            row["collection_id"] <= last,
            row["collection_id"],
            row["tenant_id"],
            row["summary_tokens"],
            row["record"],
        )
        for row in rows
        if row["embedder"] == embedder
    )
    for _, number, tenant_id, spent_tokens, record in waiting:
        if -number in excluding:
            continue
        with _report_damage(-number, f"collection {number} of tenant {tenant_id!r}"):
            ordinal = _first_waiting(connection, tenant_id, number, excluding)
            collection = handle_of(number, record)
        if ordinal is not None:
            name = f"document {ordinal} of '{tenant_id}/{collection.name}'"
            with _report_damage(version_of(number, ordinal), name):
                return _read_document(connection, collection, ordinal, spent_tokens)
    return None


@contextmanager
def _report_damage(version: int, name: str) -> Iterator[None]:
    """Raises UnreadableVersion if the `with` block raises one of the exceptions in `_DAMAGE`.

    `version` identifies the damaged document or collection, and `name` describes it in the message.
    """
    try:
        yield
    except _DAMAGE as error:
        raise UnreadableVersion(f"{name} is damaged: {error!r}", version) from error


def _first_waiting(
    connection: Connection, tenant_id: str, number: int, excluding: Container[int]
) -> int | None:
    """Returns the lowest ordinal of a document that waits for summaries and is not excluded.

    Returns None if the collection has no such document. `number` is the id of the collection.
    `excluding` contains results of `version_of`.
    """
    last = 0
    while rows := connection.execute(_DOCUMENTS, (tenant_id, number, last)).fetchall():
        for (last,) in rows:
            if version_of(number, last) not in excluding:
                return int(last)
    return None


def _read_document(
    connection: Connection, collection: CollectionHandle, ordinal: int, spent: int
) -> Unsummarised:
    number = collection.collection_id
    row = connection.execute(_DOCUMENT, (collection.tenant_id, number, ordinal)).fetchone()
    assert row is not None  # The row exists, because the same snapshot has just listed it.
    record, tree, body = row
    document = DocumentRecord.from_bytes(record)
    return Unsummarised(
        collection=collection,
        version=version_of(number, ordinal),
        document_id=document.document_id,
        title=document.title,
        parsed=document.parsed(body),
        tree=Tree(bytes(tree)),
        spent_tokens=spent,
    )
