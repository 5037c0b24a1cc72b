"""Fills the copy of a collection that is embedded again.

The copy is another collection. `begin_copy` and `finish_copy` of `CollectionWriter` create it and
let it take the collection's place. Its documents are always current versions of the collection's
documents; `WriteTransaction` takes care of this. So the copy is complete if both collections have
equally many documents.
"""

from collections.abc import Iterator, Sequence

from hrag.engine.common.validation import no_copy
from hrag.engine.embedded.segments.stored_documents import read_stored
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.commits import WriterPart
from hrag.engine.embedded.write.document_writer import max_bytes_of
from hrag.engine.embedded.write.shared_state import existing_collection
from hrag.engine.engine_documents import CollectionHandle, UncopiedDocument, size_of


class CopyWriter(WriterPart):
    """Implements the methods of `hrag.engine.Writer` that fill the copy of a collection."""

    def uncopied(
        self, source: CollectionHandle, after: str, max_documents: int, max_bytes: int
    ) -> list[UncopiedDocument]:
        documents: list[UncopiedDocument] = []
        with self.commits.store.read() as txn:
            record = existing_collection(txn, source)
            if not record.copied_to:
                raise no_copy(source)
            for ordinal in _uncopied_ordinals(txn, source.collection_id, record.copied_to, after):
                stored = read_stored(txn, source.collection_id, record, ordinal)
                address = address_of(txn, source.collection_id, ordinal)
                sequence = txn.documents.require(address).sequence
                documents.append(UncopiedDocument(stored, sequence))
                max_bytes -= size_of(stored.document)
                if len(documents) == max_documents or max_bytes <= 0:
                    break
        return documents

    def put_copies(self, source: CollectionHandle, documents: Sequence[UncopiedDocument]) -> int:
        extra_bytes = sum(max_bytes_of(document.stored.document) for document in documents)
        with self.commits.changes("put", extra_bytes) as changes:
            return sum([changes.put_copy(source, document) for document in documents])


def _uncopied_ordinals(txn: Txn, collection: int, copy: int, after: str) -> Iterator[int]:
    """Yields the ordinals of documents that the copy does not have, in order of document id.

    `collection` and `copy` are the ids of the collection and of its copy. Begins after the document
    id `after`.
    """
    start = (collection, f"{after}\0") if after else None
    for (_, document_id), ordinal in txn.document_ids.entries(collection, start=start):
        if not txn.document_ids.has((copy, document_id)):
            yield ordinal
