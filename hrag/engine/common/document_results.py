"""Conversions between documents, their stored records and the results of their ingestion."""

from hrag.engine.common.records import DocumentRecord, Usage
from hrag.engine.engine_documents import CollectionHandle, PreparedDocument
from hrag.models.embedding import Vectors
from hrag.values.documents import IngestOutcome, IngestResult, Original
from hrag.values.tree import ParsedText, Tree


def growth(old: DocumentRecord | None, stored_bytes: int) -> Usage:
    """Returns by how much a tenant's usage grows when a document is stored.

    The new version of the document takes `stored_bytes` bytes. `old` is the record of the version
    that is replaced, None if the document is new. The bytes of the old version are subtracted. The
    bytes of its summaries are not subtracted, because the new version will have summaries too.
    """
    if old is None:
        return Usage(documents=1, stored_bytes=stored_bytes)
    return Usage(stored_bytes=stored_bytes - old.stored_bytes)


def record_of(handle: CollectionHandle, document: PreparedDocument) -> DocumentRecord:
    """Returns the record to store for a document. `sequence` and `stored_bytes` are 0 in it.

    The caller must set these two fields before it stores the record.
    """
    tree = document.tree
    last = tree.record(tree.top_level, tree.counts[-1] - 1)
    return DocumentRecord(
        collection=handle.collection_id,
        document_id=document.document_id,
        title=document.title,
        source=document.source,
        mime_type=document.mime_type,
        metadata=document.metadata,
        content_hash=document.content_hash,
        sections=document.parsed.sections,
        pages=document.parsed.pages,
        chunks_per_level=tree.counts,
        leaf_count=tree.counts[handle.settings.tree.embedding_level],
        token_count=last.token_start + last.token_count,
        text_bytes=last.byte_end,
        vector_bytes=document.vectors.nbytes,
        stored_bytes=0,
        sequence=0,
        metadata_json=document.metadata_json,
        page_unit=document.parsed.page_unit,
        indexed_source=document.indexed_source,
        original=_original_of(document),
    )


def _original_of(document: PreparedDocument) -> Original | None:
    if document.original is None:
        return None
    return Original(len(document.original), document.original_sha256)


def document_of(
    record: DocumentRecord,
    parsed: ParsedText,
    tree: Tree,
    vectors: Vectors,
    original: bytes | None,
) -> PreparedDocument:
    """Returns the document from which `record_of` created `record`.

    The text, tree, vectors and original are arguments, because a record does not contain them.
    """
    return PreparedDocument(
        document_id=record.document_id,
        title=record.title,
        source=record.source,
        mime_type=record.mime_type,
        metadata=record.metadata,
        content_hash=record.content_hash,
        parsed=parsed,
        tree=tree,
        vectors=vectors,
        indexed_source=record.indexed_source,
        original=original,
        original_sha256="" if record.original is None else record.original.sha256,
    )


def unchanged_result(document: DocumentRecord | None, content_hash: str) -> IngestResult | None:
    """Returns the result UNCHANGED if a document is stored already with the same content hash.

    `document` is the record of the stored document; None if no document with this id is stored.
    Returns None if the document must be stored: if `document` is None, if `content_hash` is empty,
    or if the record contains another content hash.
    """
    if document is None or not content_hash or document.content_hash != content_hash:
        return None
    return result_of(document, IngestOutcome.UNCHANGED)


def result_of(document: DocumentRecord, outcome: IngestOutcome) -> IngestResult:
    """Returns the result that a client receives for the ingestion of a document.

    `document` is the record that is stored after the ingestion.
    """
    return IngestResult(
        document_id=document.document_id,
        outcome=outcome,
        sequence=document.sequence,
        chunks_per_level=document.chunks_per_level,
        token_count=document.token_count,
    )
