"""Conversions between documents, their stored records and the results of their ingestion."""

from hrag.engine.common.records import DocumentRecord, Usage
from hrag.engine.engine_documents import CollectionHandle, PreparedDocument
from hrag.models.embedding import Vectors
from hrag.values.documents import IngestOutcome, IngestResult
from hrag.values.tree import ParsedText, Tree


def growth(old: DocumentRecord | None, stored_bytes: int) -> Usage:
    """Returns the change of a tenant's usage when a document of `stored_bytes` bytes is stored.

    The size of the version that it replaces, if any, is subtracted. The size of that version's
    summaries is not subtracted, because the new version will have summaries too.
    """
    if old is None:
        return Usage(documents=1, stored_bytes=stored_bytes)
    return Usage(stored_bytes=stored_bytes - old.stored_bytes)


def record_of(handle: CollectionHandle, document: PreparedDocument) -> DocumentRecord:
    """Returns the document's record. The caller must still set `sequence` and `stored_bytes`."""
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
    )


def document_of(
    record: DocumentRecord, parsed: ParsedText, tree: Tree, vectors: Vectors
) -> PreparedDocument:
    """Returns the document from which `record_of` created the record."""
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
    )


def unchanged_result(document: DocumentRecord | None, content_hash: str) -> IngestResult | None:
    """Returns the stored document's result if it has this hash, else None; "" equals no hash."""
    if document is None or not content_hash or document.content_hash != content_hash:
        return None
    return result_of(document, IngestOutcome.UNCHANGED)


def result_of(document: DocumentRecord, outcome: IngestOutcome) -> IngestResult:
    """Returns the result of ingesting the stored document."""
    return IngestResult(
        document_id=document.document_id,
        outcome=outcome,
        sequence=document.sequence,
        chunks_per_level=document.chunks_per_level,
        token_count=document.token_count,
    )
