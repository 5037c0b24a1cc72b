"""Prepares the values of documents' rows before a transaction begins.

Slow work, for example analysing texts and encoding arrays, is done here. So the transaction locks
the tenant's row only while its statements run.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.document_results import record_of
from hrag.engine.common.filter_terms import is_format_term, terms_of
from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.summary_documents import as_document
from hrag.engine.common.validation import check_shapes
from hrag.engine.engine_documents import CollectionHandle, DocumentSummaries, PreparedDocument
from hrag.engine.postgres.indexes.term_vectors import leaf_terms_of, packed
from hrag.values.tree import CHUNK

# The estimated overhead of a table row in bytes: its header, its tenant id and collection id, its
# entry in an index, and unused space on pages.
_ROW_BYTES = 96
# A leaf's array of ancestors has a header of 24 bytes, and its vector has a header of 8 bytes.
_ARRAY_BYTES = 24 + 8
# For each level, a leaf stores the index of its ancestor in 4 bytes.
_LEVEL_BYTES = 4


@dataclass(frozen=True, slots=True)
class DocumentDraft:
    """A document with all values to store, except the values that its commit determines.

    `terms` are the document's filter terms. `ancestors`, `uint32[levels, leaves]`, has the index of
    each leaf's ancestor at each level. `term_vector` is None and `term_count` is 0 in a collection
    without an analyzer. `record` has no sequence number yet.
    """

    handle: CollectionHandle
    document: PreparedDocument
    record: DocumentRecord
    terms: tuple[bytes, ...]
    ancestors: NDArray[np.uint32]
    term_vector: bytes | None
    term_count: int

    @property
    def size_bytes(self) -> int:
        """The approximate size of the statement parameters that insert the document, in bytes."""
        document = self.document
        original_bytes = len(document.original or b"")
        return 4 * len(document.parsed.text) + document.vectors.nbytes + original_bytes

    def analysed_by(self, analyzer: str) -> "DocumentDraft":
        """Returns this draft with a term vector of `analyzer`, the collection's analyzer.

        The draft has the term vector of an older version if the collection was reindexed after the
        draft was made.
        """
        settings = self.handle.settings
        if settings.analyzer == analyzer:
            return self
        handle = replace(self.handle, settings=replace(settings, analyzer=analyzer))
        return draft_of(handle, self.document)

    def described_as(self, document: DocumentRecord) -> "DocumentDraft":
        """Returns a copy of this draft with the source, metadata and content hash of `document`."""
        description = (document.metadata, document.metadata_json, document.source)
        record = replace(self.record.described_by(*description), content_hash=document.content_hash)
        terms = tuple(terms_of(record))
        return replace(self, record=with_size(record, terms), terms=terms)


def draft_of(handle: CollectionHandle, document: PreparedDocument) -> DocumentDraft:
    """Returns the draft of a document, with all values to store in the collection `handle`.

    Raises InvalidArgument or TooLarge if the document does not fit the collection's settings.
    """
    settings = handle.settings
    check_shapes(document, settings)
    record = record_of(handle, document)
    terms = tuple(terms_of(record))
    term_vector, term_count = None, 0
    if settings.analyzer:
        leaf_terms = leaf_terms_of(record, document.parsed.text, document.tree, settings)
        term_vector, term_count = packed(leaf_terms), int(leaf_terms.lengths.sum())
    return DocumentDraft(
        handle=handle,
        document=document,
        record=with_size(record, terms),
        terms=terms,
        ancestors=document.tree.ancestors(settings.tree.embedding_level),
        term_vector=term_vector,
        term_count=term_count,
    )


def draft_of_summaries(
    handle: CollectionHandle, document: DocumentRecord, summaries: DocumentSummaries
) -> DocumentDraft | None:
    """Returns the draft of a document's summaries, to be stored in the summary collection `handle`.

    Returns None if there are no summaries. Raises the errors of `draft_of`.
    """
    if not summaries.summaries:
        return None
    return draft_of(handle, as_document(document, summaries))


def with_size(record: DocumentRecord, terms: tuple[bytes, ...]) -> DocumentRecord:
    """Returns the record with its `stored_bytes`, the size that counts against the quota.

    This size approximates the real size within a factor of two. It includes the text, the tree,
    vectors in half precision, the original, the record, the filter terms except for that of the
    format, which older documents got later, and a constant for each
    table row and its index entry. It includes neither the lexical index nor the HNSW index. The
    size depends neither on the ids and sequence numbers that the store assigns nor on the length of
    the tenant's id. So the same document always has the same size, no matter when and where it is
    stored.
    """
    plain = replace(record, collection=0, sequence=0, stored_bytes=0)
    chunks = sum(record.chunks_per_level)
    leaf_bytes = _ROW_BYTES + _ARRAY_BYTES + _LEVEL_BYTES * len(record.chunks_per_level)
    size_bytes = len(plain.to_bytes()) + record.text_bytes + CHUNK.itemsize * chunks
    size_bytes += 2 * len(record.document_id) + 2 * _ROW_BYTES
    size_bytes += record.vector_bytes // 2 + leaf_bytes * record.leaf_count
    size_bytes += sum(2 * len(term) + _ROW_BYTES for term in terms if not is_format_term(term))
    size_bytes += 0 if record.original is None else record.original.size_bytes
    return replace(record, stored_bytes=size_bytes)
