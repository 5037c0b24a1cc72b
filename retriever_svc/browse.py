"""Reads stored trees: one chunk, or a chunk with its relatives."""

from hrag.engine import Reader
from hrag.values import ids
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.deadline import OF_CALL
from hrag.values.errors import InvalidArgument
from hrag.values.limits import MAX_LEVELS
from hrag.values.reply_limit import UNLIMITED, ReplyLimit


class Browse:
    """Chunks of any tenant's collections; safe to call from several threads."""

    def __init__(self, reader: Reader, reply: ReplyLimit = UNLIMITED) -> None:
        self._reader = reader
        self._reply = reply

    def chunk(self, tenant_id: str, collection: str, chunk_id: str) -> ChunkNode:
        """Returns the chunk with the ids of its parent and children.

        Raises InvalidArgument, CollectionNotFound, DocumentNotFound, ChunkNotFound or
        ReplyTooLarge, and DeadlineExceeded or Cancelled at the end of the call that this
        thread works for.
        """
        parsed = _checked(tenant_id, collection, chunk_id)
        with self._reader.snapshot(tenant_id, collection, deadline=OF_CALL.get()) as snapshot:
            return snapshot.chunk(parsed, self._reply)

    def hierarchy(
        self, tenant_id: str, collection: str, chunk_id: str, depth: int, *, content: bool
    ) -> Hierarchy:
        """Returns the chunk with its relatives, `depth` levels down; 0 means 1.

        `content` fills in the text of the relatives too. Raises as `chunk` does.
        """
        parsed = _checked(tenant_id, collection, chunk_id)
        if depth > MAX_LEVELS:
            raise InvalidArgument(
                f"depth is {depth}; it must be from 0 to {MAX_LEVELS}", field="depth"
            )
        with self._reader.snapshot(tenant_id, collection, deadline=OF_CALL.get()) as snapshot:
            return snapshot.hierarchy(parsed, depth or 1, content=content, reply=self._reply)


def _checked(tenant_id: str, collection: str, chunk_id: str) -> ids.ChunkId:
    ids.check_tenant_id(tenant_id)
    ids.check_collection_name(collection)
    return ids.parse_chunk_id(chunk_id)
