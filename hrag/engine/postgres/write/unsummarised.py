"""Which document is to be summarised next?

A damaged one, or a damaged collection, is reported under a number that leaves it out of the next
look: the document's version, or the collection's number below zero.
"""

from collections.abc import Container, Iterator
from contextlib import contextmanager

from psycopg.errors import DataCorrupted, IndexCorrupted

from hrag.engine.common.labels import LEAF_BITS
from hrag.engine.common.records import DocumentRecord
from hrag.engine.engine_documents import CollectionHandle, UnreadableVersion, Unsummarised
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import handle_of
from hrag.values.tree import Tree

# Ordinals are unique in a tenant; with the collection's number, in the store. The sequence of a
# tenant has room for 17 million million changes.
_ORDINAL_BITS = 64 - LEAF_BITS
_DAMAGE = (DataCorrupted, IndexCorrupted, ValueError, KeyError, TypeError)
"""What reading a damaged row raises."""

_COLLECTIONS = """
SELECT tenant_id, collection_id, summary_tokens, record::text FROM hrag.collections
WHERE unsummarised > 0 AND record->'settings'->>'embedder' = %s
ORDER BY collection_id <= %s, collection_id
"""
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
    """The number of a document's version in the whole store."""
    return collection_id << _ORDINAL_BITS | ordinal


def ordinal_of(version: int) -> int:
    """The ordinal of what `version_of` has numbered."""
    return version & ((1 << _ORDINAL_BITS) - 1)


def next_unsummarised(
    connection: Connection,
    embedder: str,
    after: CollectionHandle | None,
    excluding: Container[int],
) -> Unsummarised | None:
    """See `hrag.engine.Writer.next_unsummarised`."""
    last = 0 if after is None else after.collection_id
    for tenant_id, number, spent, record in connection.execute(_COLLECTIONS, (embedder, last)):
        if -number in excluding:
            continue
        with _damage_as(-number, f"collection {number} of tenant {tenant_id!r}"):
            ordinal = _first(connection, tenant_id, number, excluding)
            collection = handle_of(number, record)
        if ordinal is not None:
            name = f"document {ordinal} of '{tenant_id}/{collection.name}'"
            with _damage_as(version_of(number, ordinal), name):
                return _unsummarised(connection, collection, ordinal, spent)
    return None


@contextmanager
def _damage_as(version: int, name: str) -> Iterator[None]:
    """Raises what shows in the block that `name` is damaged as UnreadableVersion."""
    try:
        yield
    except _DAMAGE as error:
        raise UnreadableVersion(f"{name} is damaged: {error!r}", version) from error


def _first(
    connection: Connection, tenant_id: str, number: int, excluding: Container[int]
) -> int | None:
    """The first of a collection's documents that is waiting and not excluded."""
    last = 0
    while rows := connection.execute(_DOCUMENTS, (tenant_id, number, last)).fetchall():
        for (last,) in rows:
            if version_of(number, last) not in excluding:
                return int(last)
    return None


def _unsummarised(
    connection: Connection, collection: CollectionHandle, ordinal: int, spent: int
) -> Unsummarised:
    number = collection.collection_id
    found = connection.execute(_DOCUMENT, (collection.tenant_id, number, ordinal)).fetchone()
    assert found is not None  # In the same snapshot.
    record, tree, body = found
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
