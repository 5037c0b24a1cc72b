"""Documents as rows, made before a transaction begins.

What takes time, such as analysing texts and packing arrays, is done here, so that a tenant's
row is locked for the statements alone.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.document_results import record_of
from hrag.engine.common.filter_terms import terms_of
from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.summary_documents import as_document
from hrag.engine.common.validation import check_shapes
from hrag.engine.engine_documents import CollectionHandle, DocumentSummaries, PreparedDocument
from hrag.engine.postgres.indexes.term_vectors import packed
from hrag.passages.indexed_text import indexed_leaves
from hrag.text.analysis import analyzer
from hrag.values.tree import CHUNK

# A row: its header, tenant and collection, its entry in an index, and what pages leave free.
_ROW_BYTES = 96
_ARRAY_BYTES = 24 + 8  # Headers of a leaf's ancestors and of its vector.
_LEVEL_BYTES = 4  # Of a leaf: the index of its ancestor.


@dataclass(frozen=True, slots=True)
class Draft:
    """A document and what is stored of it, except what its commit decides.

    `ancestors` is `uint32[levels, leaves]`; `term_vector` is None in a collection without an
    analyzer. `record` has no sequence yet.
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
        """About how many bytes the statements have that insert it."""
        return 4 * len(self.document.parsed.text) + self.document.vectors.nbytes

    def described_as(self, other: DocumentRecord) -> "Draft":
        """The draft with source, metadata and hash of another document."""
        record = replace(
            self.record,
            source=other.source,
            metadata=other.metadata,
            metadata_json=other.metadata_json,
            content_hash=other.content_hash,
        )
        terms = tuple(terms_of(record))
        return replace(self, record=with_size(record, terms), terms=terms)


def draft_of(handle: CollectionHandle, document: PreparedDocument) -> Draft:
    """Raises InvalidArgument or TooLarge for a document that does not fit the collection."""
    settings = handle.settings
    check_shapes(document, settings)
    record = record_of(handle, document)
    terms = tuple(terms_of(record))
    term_vector, term_count = None, 0
    if settings.analyzer:
        parsed, level = document.parsed, settings.tree.embedding_level
        about = (parsed.text, document.title, parsed.sections, document.tree, level)
        indexed = indexed_leaves(*about, headings=settings.index_headings)
        leaf_terms = analyzer(settings.analyzer).leaf_terms([each.lexical for each in indexed])
        term_vector, term_count = packed(leaf_terms), int(leaf_terms.lengths.sum())
    return Draft(
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
) -> Draft | None:
    """The draft of a document's summaries in the summary collection `handle`; None without any.

    Raises InvalidArgument.
    """
    if not summaries.summaries:
        return None
    return draft_of(handle, as_document(document, summaries))


def with_size(record: DocumentRecord, terms: tuple[bytes, ...]) -> DocumentRecord:
    """The record with its `stored_bytes`: what a quota counts, within a factor of two.

    That is text, tree, vectors in half precision, record and filter terms, and a constant for
    each row of a table and its entry in an index; not the lexical index, nor that of vectors.
    The digits of the store's own numbers in the record do not count, nor the length of the
    tenant's id, so that a document takes as much wherever and whenever it is stored.
    """
    plain = replace(record, collection=0, sequence=0, stored_bytes=0)
    chunks = sum(record.chunks_per_level)
    leaf_bytes = _ROW_BYTES + _ARRAY_BYTES + _LEVEL_BYTES * len(record.chunks_per_level)
    size = len(plain.to_bytes()) + record.text_bytes + CHUNK.itemsize * chunks
    size += 2 * len(record.document_id) + 2 * _ROW_BYTES
    size += record.vector_bytes // 2 + leaf_bytes * record.leaf_count
    size += sum(2 * len(each) + _ROW_BYTES for each in terms)
    return replace(record, stored_bytes=size)
