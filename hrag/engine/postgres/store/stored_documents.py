"""Reads whole documents as they are stored, with their vectors and summaries, to copy them.

The vectors have the 16-bit precision of `halfvec`.
"""

from typing import Any

import numpy as np
from psycopg import sql

from hrag.engine.common.document_results import document_of
from hrag.engine.common.records import DocumentRecord, Summarised
from hrag.engine.common.summary_documents import summaries_in
from hrag.engine.engine_documents import DocumentSummaries, StoredDocument
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.leaf_tables import tables_of
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_summaries
from hrag.models.embedding import Vectors
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree

COLUMNS = "document_id, ordinal, record, tree, body, is_unsummarised, summarised, original"
"""The columns of the table `hrag.documents` that `read_stored` needs."""
_BY_ID = f"""
SELECT {COLUMNS} FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id = %(document)s
"""
_VECTORS = """
SELECT leaf, halfvec_send(embedding) FROM {table}
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND ordinal = %(ordinal)s
"""
# The binary format of a halfvec begins with a header of 4 bytes.
_HEADER_BYTES = 4


def read_stored(
    connection: Connection, collection: OpenedCollection, row: tuple[Any, ...]
) -> StoredDocument:
    """Returns the document in `row`, with its vectors and summaries.

    `row` has the columns COLUMNS in binary format. Raises DataLoss or ValueError if the document is
    damaged.
    """
    _, ordinal, packed, tree, body, is_unsummarised, _, original = row
    record = DocumentRecord.from_bytes(packed)
    document = document_of(
        record,
        record.parsed(body),
        Tree(tree),
        _read_vectors(connection, collection, ordinal, record.leaf_count),
        original,
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
    _, ordinal, _, packed, body, _, summarised, _ = row
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
