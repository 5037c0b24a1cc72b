"""Copies the documents of one collection into another store.

What the target has already and the same is not written. Documents without summaries share
commits; a document with summaries has one of its own. A commit holds whole documents, so a copy
that was ended at any point goes on with the next run. Nothing waits for indexes: an engine builds
them faster once all documents are there.
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

# As the indexer's bulk load has them: with so many, the commit's sync takes little of the time.
GROUP_DOCUMENTS = 64
GROUP_BYTES = 16 << 20  # Texts, trees and vectors.
_OWN_ERRORS = (InvalidArgument, TooLarge, DataLoss)  # Of one document; others concern all.


class CollectionCopier:
    """Writes to one collection. `refused` has why documents were not stored, by their ids."""

    def __init__(
        self,
        writer: Writer,
        collection: CollectionHandle,
        progress: TransferProgress,
        *,
        replace: bool,
    ) -> None:
        """With `replace`, documents that differ are replaced; else they are left alone."""
        self.refused: dict[str, str] = {}
        self._writer = writer
        self._collection = collection
        self._progress = progress
        self._replace = replace
        self._group: list[PreparedDocument] = []
        self._group_bytes = 0

    def copy(self, documents: Iterator[Pair]) -> None:
        """Copies what the target lacks, as far as `documents` can be read.

        Raises what concerns all documents, as `Writer.put` does.
        """
        with suppress(DataLoss):  # Of the whole collection. A comparison meets it again.
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
        """Stores one document in place of any other version; returns whether it could."""
        writer, name = self._writer, stored.document_id
        try:
            result = writer.put_stored(self._collection, stored)
            if result.outcome is IngestOutcome.UNCHANGED:
                # The content hash is equal, something else is not, such as summaries. No hash
                # equals that of a document with changed metadata.
                known = writer.document(self._collection, name)
                changed = (known.sequence, known.metadata, known.source)
                writer.put_metadata(self._collection, name, *changed)
                writer.put_stored(self._collection, stored)
        except _OWN_ERRORS as error:
            self.refused[name] = error.message
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
        """Commits the group."""
        group, self._group, self._group_bytes = self._group, [], 0
        if not group:
            return
        results = self._writer.put_many([(self._collection, each) for each in group])
        for document, result in zip(group, results, strict=True):
            if isinstance(result, HragError):
                self.refused[document.document_id] = result.message
            else:
                self._progress.copied += 1
