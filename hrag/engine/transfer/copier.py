"""Copies the documents of one collection into another store.

Documents that the target already has, with the same content, are not written. Documents without
summaries share commits; a document with summaries has a separate commit. A commit contains only
whole documents, so the next run can continue a copy that was interrupted at any point. The copy
does not wait for indexes, because an engine builds them faster once all documents are stored.
"""

from collections.abc import Iterator
from contextlib import suppress

from hrag.engine.engine_documents import CollectionHandle, PreparedDocument, StoredDocument
from hrag.engine.protocols import Writer
from hrag.engine.transfer.comparison import problem_of
from hrag.engine.transfer.pairs import Pair
from hrag.engine.transfer.transfer_report import TransferProgress
from hrag.values.documents import IngestOutcome
from hrag.values.errors import DataLoss, HragError, InvalidArgument, TooLarge

# The same limits as in the indexer's bulk load. In a commit of this size, the sync to disk takes
# only a small part of the time.
GROUP_DOCUMENTS = 64
GROUP_BYTES = 16 << 20  # Counts texts, trees and vectors.
# These errors concern one document. All other errors concern every document.
_DOCUMENT_ERRORS = (InvalidArgument, TooLarge, DataLoss)


class CollectionCopier:
    """Copies documents into one collection.

    `refused` maps the ids of documents that could not be stored to the reasons.
    """

    def __init__(
        self,
        writer: Writer,
        collection: CollectionHandle,
        progress: TransferProgress,
        *,
        replace: bool,
    ) -> None:
        """Creates a copier. It replaces documents that differ only if `replace` is True."""
        self.refused: dict[str, str] = {}
        self._writer = writer
        self._collection = collection
        self._progress = progress
        self._replace = replace
        self._group: list[PreparedDocument] = []
        self._group_bytes = 0

    def copy(self, documents: Iterator[Pair]) -> None:
        """Copies the documents that the target does not have, as far as `documents` can be read.

        Raises the errors of `Writer.put` that concern all documents.
        """
        # If the whole collection is damaged, the later comparison finds and reports it.
        with suppress(DataLoss):
            for pair in documents:
                self._progress.done += pair.source is not None
                if isinstance(pair.source, StoredDocument):
                    self._copy(pair.source, pair)
        self._flush()

    def _copy(self, stored: StoredDocument, pair: Pair) -> None:
        if pair.target is None and stored.summaries is None:
            self._add(stored.document)
        elif pair.target is None:
            self._progress.copied += self._put(stored)
        elif not problem_of(pair):
            self._progress.present += 1
        elif self._replace:
            self._progress.replaced += self._put(stored)

    def _put(self, stored: StoredDocument) -> bool:
        """Stores one document in place of any other version; returns True if it was stored."""
        writer, document_id = self._writer, stored.document_id
        try:
            result = writer.put_stored(self._collection, stored)
            if result.outcome is IngestOutcome.UNCHANGED:
                # The content hash is equal, but something else differs, for example the summaries.
                # After a change of its metadata, a document's hash equals no other hash, so the
                # second `put_stored` replaces the document.
                stored_info = writer.document(self._collection, document_id)
                unchanged_fields = (stored_info.sequence, stored_info.metadata, stored_info.source)
                writer.put_metadata(self._collection, document_id, *unchanged_fields)
                writer.put_stored(self._collection, stored)
        except _DOCUMENT_ERRORS as error:
            self.refused[document_id] = error.message
            return False
        return True

    def _add(self, document: PreparedDocument) -> None:
        size = len(document.parsed.text) + document.tree.size_bytes + document.vectors.nbytes
        if self._group and self._group_bytes + size > GROUP_BYTES:
            self._flush()
        self._group.append(document)
        self._group_bytes += size
        if len(self._group) == GROUP_DOCUMENTS:
            self._flush()

    def _flush(self) -> None:
        """Commits the documents that were collected so far."""
        group, self._group, self._group_bytes = self._group, [], 0
        if not group:
            return
        results = self._writer.put_many([(self._collection, document) for document in group])
        for document, result in zip(group, results, strict=True):
            if isinstance(result, HragError):
                self.refused[document.document_id] = result.message
            else:
                self._progress.copied += 1
