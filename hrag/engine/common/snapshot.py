"""The part of a snapshot that all engines share: it reads single chunks and their relatives.

The relatives of a chunk are its ancestors, its siblings and its descendants in the document's tree.
"""

from abc import ABC, abstractmethod

from hrag.passages.tree_text import TreeText
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.errors import ChunkNotFound, DocumentNotFound
from hrag.values.ids import ChunkId
from hrag.values.reply_limit import UNLIMITED, ReplyLimit


class BrowsableSnapshot(ABC):
    """The methods of `hrag.engine.Snapshot` that read single chunks; all engines share them."""

    @abstractmethod
    def _document(self, document_id: str) -> TreeText | None:
        """Returns the tree and the text of a document, or None if there is no such document."""

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
