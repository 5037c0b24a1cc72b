"""Fills the copy of a collection that is embedded again.

The copy is another collection of the tenant. `begin_copy` and `finish_copy` of `CollectionWriter`
create it and let it take the collection's place. Its documents are always current versions of the
collection's documents; `TenantTransaction` takes care of this. So the copy is complete if both
collections have equally many documents. All statements name the tenant, so on Citus each of them
runs on the tenant's node.
"""

from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.validation import no_collection, no_copy
from hrag.engine.engine_documents import CollectionHandle, UncopiedDocument, size_of
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id
from hrag.engine.postgres.store.queries import as_text
from hrag.engine.postgres.store.stored_documents import COLUMNS, read_stored
from hrag.engine.postgres.write.document_drafts import DocumentDraft, draft_of, draft_of_summaries
from hrag.engine.postgres.write.transaction import summary_collection
from hrag.values.errors import DataLoss

# The ids are read first, so that no more texts are read than fit into the limits.
_UNCOPIED = """
SELECT document_id FROM hrag.documents d
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id > %(after)s
  AND NOT EXISTS (
    SELECT FROM hrag.documents c
    WHERE c.tenant_id = %(tenant_id)s AND c.collection_id = %(copy)s
      AND c.document_id = d.document_id)
ORDER BY document_id LIMIT %(count)s
"""
_DOCUMENT = f"""
SELECT {COLUMNS} FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id = %(document)s
"""


def copy_of(connection: Connection, source: CollectionHandle) -> CollectionHandle:
    """Returns the copy of a collection.

    Raises CollectionNotFound if the collection or its copy does not exist.
    """
    collection = _opened(connection, source)
    copy = open_by_id(connection, source.tenant_id, collection.record.copied_to)
    if copy is None:
        raise no_copy(source)
    return CollectionHandle(
        source.tenant_id, copy.record.name, copy.collection_id, copy.record.settings
    )


def uncopied(
    connection: Connection,
    source: CollectionHandle,
    after: str,
    max_documents: int,
    max_bytes: int,
) -> list[UncopiedDocument]:
    """Returns documents that the copy of a collection does not have. See `Writer.uncopied`."""
    collection = _opened(connection, source)
    parameters = {"copy": collection.record.copied_to, "after": as_text(after)}
    rows = connection.execute(
        _UNCOPIED, {**collection.key, **parameters, "count": max_documents}
    ).fetchall()
    documents: list[UncopiedDocument] = []
    for (document_id,) in rows:
        document = _read(connection, collection, document_id)
        documents.append(document)
        max_bytes -= size_of(document.stored.document)
        if max_bytes <= 0:
            break
    return documents


def drafts_of_copy(
    copy: CollectionHandle, document: UncopiedDocument
) -> tuple[DocumentDraft, DocumentDraft | None]:
    """Returns the drafts of a document and of its summaries, to be stored in the copy.

    The second one is None if there are no summaries. Raises InvalidArgument if the vectors do not
    fit the copy.
    """
    draft, summaries = draft_of(copy, document.stored.document), document.stored.summaries
    if summaries is None:
        return draft, None
    return draft, draft_of_summaries(summary_collection(copy), draft.record, summaries)


def _opened(connection: Connection, source: CollectionHandle) -> OpenedCollection:
    """Returns the row of a collection that has a copy. Raises CollectionNotFound."""
    collection = open_by_id(connection, source.tenant_id, source.collection_id)
    if collection is None:
        raise no_collection(source.tenant_id, source.name)
    if not collection.record.copied_to:
        raise no_copy(source)
    return collection


def _read(
    connection: Connection, collection: OpenedCollection, document_id: str
) -> UncopiedDocument:
    row = connection.execute(
        _DOCUMENT, {**collection.key, "document": document_id}, binary=True
    ).fetchone()
    assert row is not None  # The row exists, because the same snapshot has just listed it.
    try:
        sequence = DocumentRecord.from_bytes(row[2]).sequence
        return UncopiedDocument(read_stored(connection, collection, row), sequence)
    except ValueError as error:
        raise DataLoss(f"document {document_id!r} is damaged: {error}") from error
