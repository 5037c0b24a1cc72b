"""Streams collections and whole documents as they are stored, for a move to another store.

Each document is read in one short transaction, because a long transaction would delay VACUUM. So
each document is consistent in itself, but the collection may change during the export. Exported
vectors have the 16-bit precision of `halfvec`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from psycopg import sql

from hrag.engine.common.document_results import document_of
from hrag.engine.common.records import CollectionRecord, DocumentRecord, Summarised
from hrag.engine.common.summary_documents import summaries_in
from hrag.engine.engine_documents import (
    DamagedDocument,
    DocumentSummaries,
    ExportedDocument,
    StoredDocument,
)
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.leaf_tables import tables_of
from hrag.engine.postgres.store.opened_collection import (
    OpenedCollection,
    open_collection,
    open_summaries,
)
from hrag.models.embedding import Vectors
from hrag.values.collections import Collection
from hrag.values.errors import CollectionNotFound, DataLoss
from hrag.values.tree import Tree

_COLLECTIONS = """
SELECT record::text, documents FROM hrag.collections
WHERE (record ->> 'summarises')::bigint = 0 ORDER BY tenant_id, record ->> 'name' COLLATE "C"
"""
_COLUMNS = "document_id, ordinal, record, tree, body, is_unsummarised, summarised"
_NEXT = f"""
SELECT {_COLUMNS} FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id > %(after)s
ORDER BY document_id LIMIT 1
"""
_BY_ID = f"""
SELECT {_COLUMNS} FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id = %(document)s
"""
_VECTORS = """
SELECT leaf, halfvec_send(embedding) FROM {table}
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND ordinal = %(ordinal)s
"""
# The binary format of a halfvec begins with a header of 4 bytes.
_HEADER_BYTES = 4


def collections(database: PostgresDatabase) -> list[Collection]:
    """Returns the collections of all tenants, in order of tenant and name."""
    with database.read() as connection:
        rows = connection.execute(_COLLECTIONS).fetchall()
    records = ((CollectionRecord.from_bytes(record.encode()), count) for record, count in rows)
    return [
        Collection(record.tenant_id, record.name, record.settings, count)
        for record, count in records
    ]


def documents(database: PostgresDatabase, tenant_id: str, name: str) -> Iterator[ExportedDocument]:
    """Yields all documents of a collection in order of id; stops if the collection is deleted.

    A document that cannot be read is yielded as DamagedDocument. Raises CollectionNotFound before
    the first document if the collection does not exist.
    """
    with database.read() as connection:
        number = open_collection(connection, tenant_id, name).collection_id
    return _stream(database, tenant_id, name, number)


def _stream(
    database: PostgresDatabase, tenant_id: str, name: str, number: int
) -> Iterator[ExportedDocument]:
    after = ""
    while True:
        with database.read() as connection:
            try:
                collection = open_collection(connection, tenant_id, name)
            except CollectionNotFound:
                return
            if collection.collection_id != number:
                return
            row = connection.execute(
                _NEXT, {**collection.key, "after": after}, binary=True
            ).fetchone()
            if row is None:
                return
            after = row[0]
            try:
                exported: ExportedDocument = _read_document(connection, collection, row)
            except (DataLoss, ValueError) as error:
                exported = DamagedDocument(after, str(error))
        yield exported


def _read_document(
    connection: Connection, collection: OpenedCollection, row: tuple[Any, ...]
) -> StoredDocument:
    _, ordinal, packed, tree, body, is_unsummarised, _ = row
    record = DocumentRecord.from_bytes(packed)
    document = document_of(
        record,
        record.parsed(body),
        Tree(tree),
        _read_vectors(connection, collection, ordinal, record.leaf_count),
    )
    if not collection.record.summaries or is_unsummarised:
        return StoredDocument(document)
    return StoredDocument(document, _read_summaries(connection, collection, record))


def _read_summaries(
    connection: Connection, collection: OpenedCollection, record: DocumentRecord
) -> DocumentSummaries:
    summaries = open_summaries(connection, collection)
    parameters = {**summaries.key, "document": record.document_id}
    row = connection.execute(_BY_ID, parameters, binary=True).fetchone()
    if row is None:  # The summary collection has no entry for the document.
        dimension = collection.settings.dimension
        return DocumentSummaries((), np.empty((0, dimension), np.float32))
    _, ordinal, _, packed, body, _, summarised = row
    sections = Summarised.from_bytes(summarised).sections
    texts = summaries_in(Tree(packed), body, record.leaf_count, sections)
    return DocumentSummaries(texts, _read_vectors(connection, summaries, ordinal, len(texts)))


def _read_vectors(
    connection: Connection, collection: OpenedCollection, ordinal: int, count: int
) -> Vectors:
    """Returns the vectors of a document's `count` leaves, `float32[count, dimension]`.

    Raises DataLoss if not all of these leaves are stored.
    """
    dimension = collection.settings.dimension
    vectors = np.zeros((count, dimension), np.float32)
    if not dimension:
        return vectors
    parts = [sql.SQL(_VECTORS).format(table=table) for table in tables_of(collection.home)]
    rows = connection.execute(
        sql.SQL(" UNION ALL ").join(parts), {**collection.key, "ordinal": ordinal}, binary=True
    ).fetchall()
    for leaf, packed in rows:
        vectors[leaf] = np.frombuffer(packed, ">f2", offset=_HEADER_BYTES)
    if len(rows) != count:
        raise DataLoss(f"{len(rows)} leaves of the document are stored, but it must have {count}")
    return vectors
