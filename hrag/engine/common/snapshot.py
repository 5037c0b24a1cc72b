"""The part of a snapshot that all engines share: searches and reads of single chunks."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.fetch import Fetch
from hrag.engine.common.rounds import Selection
from hrag.engine.common.search import P
from hrag.engine.find import FindRequest, Found, PassageFields
from hrag.passages.tree_text import TreeText
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.errors import ChunkNotFound, DocumentNotFound
from hrag.values.ids import ChunkId
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.search import Passage, SearchMode

FetchOf: TypeAlias = Callable[[Fetch, AncestorGroups], tuple[tuple[P, ...], Selection]]


class SearchableSnapshot(ABC):
    """The part of `hrag.engine.EncodingSnapshot` that all engines share."""

    @abstractmethod
    def _find(self, request: FindRequest, read: FetchOf[P]) -> Found[P]:
        """Runs a search. `read` reads the best groups in the form that the caller needs."""

    @abstractmethod
    def _document(self, document_id: str) -> TreeText | None:
        """Returns the document with this id, or None if there is none."""

    def find(self, request: FindRequest) -> Found[Passage]:
        """Runs a search and returns its passages. Implements `Snapshot.find`."""
        if request.mode is SearchMode.SENTENCE_WINDOW:
            return self._find_contexts(request)
        return self._find(request, Fetch.passages)

    def find_encoded(self, request: FindRequest, fields: PassageFields) -> Found[bytes]:
        """Runs a search, returns encoded passages. Implements `EncodingSnapshot.find_encoded`."""
        if request.mode is SearchMode.SENTENCE_WINDOW:
            return self._find_contexts(request)

        def read(fetch: Fetch, groups: AncestorGroups) -> tuple[tuple[bytes, ...], Selection]:
            return fetch.encoded_passages(fields, groups)

        return self._find(request, read)

    def _find_contexts(self, request: FindRequest) -> Found[Any]:
        """Finds leaves with the sentences around them, for SENTENCE_WINDOW."""
        result: Found[Any] = self._find(request, Fetch.sentence_contexts)
        return replace(result, passages=(), contexts=result.passages)

    def chunk(self, chunk_id: ChunkId, reply: ReplyLimit = UNLIMITED) -> ChunkNode:
        """Returns a chunk with the ids of its relatives. Implements `Snapshot.chunk`."""
        document = self._document_with(chunk_id)
        return document.node((chunk_id.level, chunk_id.index), reply=reply)

    def hierarchy(
        self, chunk_id: ChunkId, depth: int, *, content: bool, reply: ReplyLimit = UNLIMITED
    ) -> Hierarchy:
        """Returns a chunk with its relatives. Implements `Snapshot.hierarchy`."""
        document = self._document_with(chunk_id)
        position = (chunk_id.level, chunk_id.index)
        return document.hierarchy(position, depth, content=content, reply=reply)

    def _document_with(self, chunk_id: ChunkId) -> TreeText:
        """Returns the chunk's document.

        Raises DocumentNotFound or ChunkNotFound.
        """
        document = self._document(chunk_id.document_id)
        if document is None:
            raise DocumentNotFound(
                f"the collection has no document {chunk_id.document_id!r}", field="chunk_id"
            )
        if not document.has_chunk((chunk_id.level, chunk_id.index)):
            raise ChunkNotFound(
                f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}; "
                f"its levels have {document.tree.counts} chunks",
                field="chunk_id",
            )
        return document
