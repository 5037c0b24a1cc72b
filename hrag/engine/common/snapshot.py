"""The part of a snapshot that all engines share: it reads chunks, their relatives, and originals.

The relatives of a chunk are its ancestors, its siblings and its descendants in the document's tree.
"""

from abc import ABC, abstractmethod

from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.validation import no_original
from hrag.engine.engine_documents import original_range
from hrag.passages.tree_text import TreeText
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.documents import ByteRange, OriginalPart
from hrag.values.errors import ChunkNotFound, DocumentNotFound
from hrag.values.ids import ChunkId
from hrag.values.reply_limit import UNLIMITED, ReplyLimit


class BrowsableSnapshot(ABC):
    """The methods of `hrag.engine.Snapshot` that read chunks and originals; engines share them."""

    @abstractmethod
    def _document(self, document_id: str) -> TreeText | None:
        """Returns the tree and the text of a document, or None if there is no such document."""

    @abstractmethod
    def _record(self, document_id: str) -> tuple[int, DocumentRecord] | None:
        """Returns the ordinal and the record of a document; None if there is no such document."""

    @abstractmethod
    def _original_bytes(self, ordinal: int, start: int, end: int) -> bytes:
        """Returns the bytes from `start` to `end` of the original of an existing document."""

    def original(
        self, document_id: str, part: ByteRange, reply: ReplyLimit = UNLIMITED
    ) -> OriginalPart:
        """Returns a part of a document's original. Implements `Snapshot.original`."""
        stored = self._record(document_id)
        if stored is None:
            raise DocumentNotFound(
                f"the collection has no document {document_id!r}", field="document_id"
            )
        ordinal, record = stored
        if record.original is None:
            raise no_original(document_id)
        start, end = original_range(record.info(), part, reply)
        content = self._original_bytes(ordinal, start, end)
        return OriginalPart(
            document_id, record.source, record.mime_type, record.original, start, content
        )

    def chunk(self, chunk_id: ChunkId, reply: ReplyLimit = UNLIMITED) -> ChunkNode:
        """Returns a chunk with the ids of its parent and children. Implements `Snapshot.chunk`."""
        document = self._document_with(chunk_id)
        return document.node((chunk_id.level, chunk_id.index), reply=reply)

    def hierarchy(
        self, chunk_id: ChunkId, depth: int, *, content: bool, reply: ReplyLimit = UNLIMITED
    ) -> Hierarchy:
        """Returns a chunk with its ancestors, siblings and descendants.

        `depth` is how many levels of descendants are returned. Implements `Snapshot.hierarchy`.
        """
        document = self._document_with(chunk_id)
        position = (chunk_id.level, chunk_id.index)
        return document.hierarchy(position, depth, content=content, reply=reply)

    def _document_with(self, chunk_id: ChunkId) -> TreeText:
        """Returns the tree and the text of the document that contains the chunk with this id.

        Raises DocumentNotFound if the collection has no such document, and ChunkNotFound if the
        document has no such chunk.
        """
        document = self._document(chunk_id.document_id)
        if document is None:
            raise DocumentNotFound(
                f"the collection has no document {chunk_id.document_id!r}", field="chunk_id"
            )
        if not document.has_chunk((chunk_id.level, chunk_id.index)):
            raise ChunkNotFound(
                f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}; "
                f"its levels, lowest level first, have {document.tree.counts} chunks",
                field="chunk_id",
            )
        return document
