"""Puts and deletes documents. A commit may contain one document or several."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.write.commits import WriterPart
from hrag.engine.embedded.write.selection import matching_ordinals
from hrag.engine.embedded.write.shared_state import existing_collection
from hrag.engine.engine_documents import CollectionHandle, PreparedDocument, StoredDocument
from hrag.values import canonical_json
from hrag.values.deadline import NEVER, Deadline
from hrag.values.documents import DocumentDeletion, DocumentInfo, IngestResult
from hrag.values.errors import DataLoss, HragError, outcome_of
from hrag.values.filters import Filter

# One transaction deletes at most this many documents, which takes about 10 ms. The count is limited
# because other writers wait until the transaction ends.
_DELETIONS_PER_COMMIT = 64


class DocumentWriter(WriterPart):
    """Implements the methods of `hrag.engine.Writer` that put or delete documents."""

    def wait_for_capacity(self, collection: CollectionHandle, deadline: Deadline) -> None:
        if self.commits.maintenance is not None:
            self.commits.maintenance.wait_for_capacity(collection.collection_id, deadline)

    def put(self, collection: CollectionHandle, document: PreparedDocument) -> IngestResult:
        (result,) = self.put_many([(collection, document)])
        if isinstance(result, HragError):
            raise result
        return result

    def put_many(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        """Puts documents in one commit. Returns one result or error per document, in their order.

        If a document cannot be written completely because stored data is damaged, nothing is
        committed. Instead, each document is put in a separate commit, so that the error of one
        document does not affect the others.
        """
        try:
            return self._put_in_one_commit(documents)
        except DataLoss as error:
            if len(documents) == 1:
                return [error]
        return [outcome_of(self.put, collection, document) for collection, document in documents]

    def _put_in_one_commit(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        results: list[IngestResult | HragError] = []
        extra_bytes = sum(max_bytes_of(document) for _, document in documents)
        with self.commits.changes("put", extra_bytes) as changes:
            for collection, document in documents:
                result = outcome_of(changes.put, collection, document)
                if isinstance(result, HragError) and not changes.is_whole:
                    raise result
                results.append(result)
        return results

    def put_stored(self, collection: CollectionHandle, stored: StoredDocument) -> IngestResult:
        if stored.summaries is None:
            return self.put(collection, stored.document)
        with self.commits.changes("put", max_bytes_of(stored.document)) as changes:
            return changes.put_stored(collection, stored.document, stored.summaries)

    def put_metadata(
        self,
        collection: CollectionHandle,
        document_id: str,
        sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        extra_bytes = len(canonical_json.encode(metadata)) + len(source.encode())
        with self.commits.changes("metadata", extra_bytes) as changes:
            return changes.put_metadata(collection, document_id, sequence, metadata, source)

    def delete(self, collection: CollectionHandle, document_id: str) -> int:
        with self.commits.changes("delete") as changes:
            return changes.delete(collection, document_id)

    def delete_matching(
        self, collection: CollectionHandle, filter: Filter, deadline: Deadline = NEVER
    ) -> Iterator[DocumentDeletion]:
        store, number = self.commits.store, collection.collection_id
        with store.read() as txn:
            existing_collection(txn, collection)
            sequence = read_usage(txn, collection.tenant_id).sequence
            ordinals = matching_ordinals(txn, number, filter, deadline).tolist()
        if not ordinals:
            yield DocumentDeletion(0, sequence)
        for start in range(0, len(ordinals), _DELETIONS_PER_COMMIT):
            deadline.check("deleting documents")
            with self.commits.changes("delete") as changes:
                batch = ordinals[start : start + _DELETIONS_PER_COMMIT]
                deletion = changes.delete_unchanged(collection, batch, sequence)
            yield deletion


def max_bytes_of(document: PreparedDocument) -> int:
    """Returns an upper bound for the size of all stored values of a document together, in bytes.

    A character of the text counts as 4 bytes, which is the most that UTF-8 needs.
    """
    values = len(document.metadata_json) + document.tree.size_bytes + document.vectors.nbytes
    return 4 * len(document.parsed.text) + values + len(document.original or b"")
