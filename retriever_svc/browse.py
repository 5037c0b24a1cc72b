"""Reads chunks, chunks with their relatives, and the files from which documents were read."""

from hrag.engine import Reader
from hrag.values import ids
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.current_call import CURRENT
from hrag.values.documents import ByteRange, OriginalPart
from hrag.values.errors import InvalidArgument
from hrag.values.limits import MAX_LEVELS
from hrag.values.reply_limit import UNLIMITED, ReplyLimit


class Browse:
    """Reads chunks and originals of any tenant. Safe to call from several threads."""

    def __init__(self, reader: Reader, reply: ReplyLimit = UNLIMITED) -> None:
        self._reader = reader
        self._reply = reply

    def chunk(self, tenant_id: str, collection: str, chunk_id: str) -> ChunkNode:
        """Returns the chunk with the ids of its parent and children.

        Raises InvalidArgument if a name or an id is malformed, and CollectionNotFound,
        DocumentNotFound, ChunkNotFound or ReplyTooLarge. Raises DeadlineExceeded or Cancelled if
        the gRPC call of this thread has passed its deadline or was cancelled.
        """
        parsed = _checked_chunk_id(tenant_id, collection, chunk_id)
        with self._reader.snapshot(
            tenant_id, collection, deadline=CURRENT.get().deadline
        ) as snapshot:
            return snapshot.chunk(parsed, self._reply)

    def hierarchy(
        self, tenant_id: str, collection: str, chunk_id: str, depth: int, *, content: bool
    ) -> Hierarchy:
        """Returns the chunk with its relatives: ancestors, siblings and descendants.

        Descendants are returned down to `depth` levels below the chunk. If `depth` is 0, only the
        children are returned, as with a `depth` of 1. With `content`, the relatives are returned
        with their text. Raises the errors of the method `chunk`, and InvalidArgument if `depth` is
        more than MAX_LEVELS.
        """
        parsed = _checked_chunk_id(tenant_id, collection, chunk_id)
        if depth > MAX_LEVELS:
            raise InvalidArgument(
                f"depth is {depth}; it must be from 0 to {MAX_LEVELS}", field="depth"
            )
        with self._reader.snapshot(
            tenant_id, collection, deadline=CURRENT.get().deadline
        ) as snapshot:
            return snapshot.hierarchy(parsed, depth or 1, content=content, reply=self._reply)

    def original(
        self, tenant_id: str, collection: str, document_id: str, part: ByteRange
    ) -> OriginalPart:
        """Returns a part of a document's original: as much of it as fits into a reply.

        Raises InvalidArgument if a name or an id is malformed, or if `part` is outside the file.
        Raises CollectionNotFound, DocumentNotFound or OriginalNotFound. Raises DeadlineExceeded or
        Cancelled, as the method `chunk` does.
        """
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(collection)
        ids.check_document_id(document_id)
        with self._reader.snapshot(
            tenant_id, collection, deadline=CURRENT.get().deadline
        ) as snapshot:
            return snapshot.original(document_id, part, self._reply)


def _checked_chunk_id(tenant_id: str, collection: str, chunk_id: str) -> ids.ChunkId:
    ids.check_tenant_id(tenant_id)
    ids.check_collection_name(collection)
    return ids.parse_chunk_id(chunk_id)
