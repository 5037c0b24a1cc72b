"""Copies the documents of one collection into another store.

Documents that the target already has, with the same content, are not written. Documents without
summaries are written in groups, each group in one commit. Each document with summaries is
written in a separate commit. A commit contains only whole documents. So if a copy is interrupted,
running it again copies the missing documents. The copy does not wait until indexes are built,
because an engine builds indexes faster once all documents are stored.
"""

from collections.abc import Iterator
from contextlib import suppress

from hrag.engine.engine_documents import (
    CollectionHandle,
    PreparedDocument,
    StoredDocument,
    size_of,
)
from hrag.engine.protocols import Writer
from hrag.engine.transfer.comparison import problem_of
from hrag.engine.transfer.pairs import Pair
from hrag.engine.transfer.transfer_report import TransferProgress
from hrag.values.documents import IngestOutcome
from hrag.values.errors import DataLoss, HragError, InvalidArgument, TooLarge

# One commit contains at most GROUP_DOCUMENTS documents. If it contains more than one document, the
# texts, trees and vectors of all of them together have at most GROUP_BYTES bytes. The indexer's
# bulk load has the same limits. In a commit of this size, the sync to disk takes only a small part
# of the time.
GROUP_DOCUMENTS = 64
GROUP_BYTES = 16 << 20
# After one of these errors, other documents can still be stored. Any other error, for example
# StorageFull, ends the copy.
_DOCUMENT_ERRORS = (InvalidArgument, TooLarge, DataLoss)


class CollectionCopier:
    """Copies documents into one collection.

    `refused` maps the id of each document that could not be stored to the reason.
    """

    def __init__(
        self,
        writer: Writer,
        collection: CollectionHandle,
        progress: TransferProgress,
        *,
        replace: bool,
    ) -> None:
        """Creates a copier that copies into `collection`.

        If `replace` is True, the copier replaces documents of the target that differ from those of
        the source. Otherwise it does not change these documents.
        """
        self.refused: dict[str, str] = {}
        self._writer = writer
        self._collection = collection
        self._progress = progress
        self._replace = replace
        self._group: list[PreparedDocument] = []
        self._group_bytes = 0

    def copy(self, documents: Iterator[Pair]) -> None:
        """Copies the documents of the source that the target does not have.

        If the copier was created with `replace`, also replaces documents of the target that differ
        from those of the source. Stops early if the iterator `documents` raises DataLoss. If the
        target can store no further document, raises the error of the target, for example
        StorageFull.
        """
        # `documents` raises DataLoss if the whole collection is damaged. The comparison after the
        # copy finds and reports this damage.
        with suppress(DataLoss):
            for pair in documents:
                self._progress.done += pair.source is not None
                if isinstance(pair.source, StoredDocument):
                    self._copy(pair.source, pair)
        self._flush()

    def _copy(self, stored: StoredDocument, pair: Pair) -> None:
        """Copies a document of the source if the target does not have it.

        If the target has a different document with the same id, replaces it if the copier was
        created with `replace`. `stored` is the document of the source in `pair`.
        """
        if pair.target is None and stored.summaries is None:
            self._add(stored.document)
        elif pair.target is None:
            self._progress.copied += self._put(stored)
        elif not problem_of(pair):
            self._progress.present += 1
        elif self._replace:
            self._progress.replaced += self._put(stored)

    def _put(self, stored: StoredDocument) -> bool:
        """Stores a document in the target. If the target has the document already, replaces it.

        Returns False if the target refused the document.
        """
        writer, document_id = self._writer, stored.document_id
        try:
            result = writer.put_stored(self._collection, stored)
            if result.outcome is IngestOutcome.UNCHANGED:
                # The target did not store the document, because it has a version of the document
                # with the same content hash. This version differs in something else, for example in
                # its summaries. `put_metadata` clears the content hash of the version, so the
                # second `put_stored` replaces the version.
                stored_info = writer.document(self._collection, document_id)
                unchanged_fields = (stored_info.sequence, stored_info.metadata, stored_info.source)
                writer.put_metadata(self._collection, document_id, *unchanged_fields)
                writer.put_stored(self._collection, stored)
        except _DOCUMENT_ERRORS as error:
            self.refused[document_id] = error.message
            return False
        return True

    def _add(self, document: PreparedDocument) -> None:
        """Adds a document without summaries to the group of documents for the next commit.

        Commits the group if the group is full.
        """
        size = size_of(document)
        if self._group and self._group_bytes + size > GROUP_BYTES:
            self._flush()
        self._group.append(document)
        self._group_bytes += size
        if len(self._group) == GROUP_DOCUMENTS:
            self._flush()

    def _flush(self) -> None:
        """Commits the group of documents that `_add` has collected, and begins a new group."""
        group, self._group, self._group_bytes = self._group, [], 0
        if not group:
            return
        results = self._writer.put_many([(self._collection, document) for document in group])
        for document, result in zip(group, results, strict=True):
            if isinstance(result, HragError):
                self.refused[document.document_id] = result.message
            else:
                self._progress.copied += 1
