"""Reads whole documents as they are stored, with their vectors and summaries, to copy them."""

import numpy as np

from hrag.engine.common.document_results import document_of
from hrag.engine.common.records import CollectionRecord, DocumentRecord
from hrag.engine.common.summary_documents import summaries_in
from hrag.engine.embedded.segments import leaves
from hrag.engine.embedded.store.queries import address_of, find_document
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.engine_documents import DocumentSummaries, StoredDocument
from hrag.models.embedding import Vectors
from hrag.values.tree import Tree


def read_stored(
    txn: Txn, number: int, collection: CollectionRecord, ordinal: int
) -> StoredDocument:
    """Returns the document with this ordinal, with its vectors and summaries.

    `number` is the id of its collection, and `collection` is the record of the collection. Raises
    DataLoss if the document is damaged.
    """
    address = address_of(txn, number, ordinal)
    record = txn.documents.require(address)
    document = document_of(
        record,
        record.parsed(txn.contents.text(address)),
        Tree(bytes(txn.contents.tree(address))),
        _read_vectors(txn, address, record.leaf_count, collection.settings.dimension),
        txn.originals.read_whole(address, record.original),
    )
    return StoredDocument(document, _read_summaries(txn, number, collection, ordinal, record))


def _read_summaries(
    txn: Txn,
    number: int,
    collection: CollectionRecord,
    ordinal: int,
    record: DocumentRecord,
) -> DocumentSummaries | None:
    """Returns the summaries of a document.

    If the document is too short for summaries, returns a `DocumentSummaries` with 0 summaries.
    Returns None if the collection was created without summaries, or if the document's summaries are
    not written yet.
    """
    if not collection.summaries or txn.unsummarised.has((number, ordinal)):
        return None
    summary_ordinal, summary_record = find_document(txn, collection.summaries, record.document_id)
    dimension = collection.settings.dimension
    if summary_record is None:  # The document is too short for summaries.
        return DocumentSummaries((), np.empty((0, dimension), np.float32))
    address = address_of(txn, collection.summaries, summary_ordinal)
    tree, text = Tree(txn.contents.tree(address)), txn.contents.text(address)
    sections = txn.summarised.require((collection.summaries, summary_ordinal)).sections
    summaries = summaries_in(tree, text, record.leaf_count, sections)
    return DocumentSummaries(summaries, _read_vectors(txn, address, len(summaries), dimension))


def _read_vectors(txn: Txn, address: bytes, count: int, dimension: int) -> Vectors:
    """Returns a copy of the vectors of a document: `float32[count, dimension]`."""
    return np.array(leaves.vectors_in_place(txn, address, count, dimension), np.float32)
