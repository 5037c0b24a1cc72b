"""Reads chunk trees, documents, and the files from which documents were read.

Of a tree, it reads one chunk, or a chunk with its ancestors, siblings and descendants. Of a
document, it reads the fields, the text, or a part of the text.
"""

from hrag.engine import Reader
from hrag.values import ids
from hrag.values.chunks import ChunkNode, Hierarchy
from hrag.values.current_call import CURRENT
from hrag.values.documents import ByteRange, DocumentInfo, OriginalPart
from hrag.values.errors import InvalidArgument
from hrag.values.filters import Filter, check_filter
from hrag.values.limits import MAX_LEVELS
from hrag.values.reply_limit import UNLIMITED, ReplyLimit


class Browse:
    """Reads chunks, documents and originals of any tenant's collections.

    Safe to call from several threads.
    """

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

    def document(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        filter: Filter | None,
        *,
        text: bool,
        part: ByteRange | None,
    ) -> tuple[DocumentInfo, str, int]:
        """Returns a document, its text, and the byte offset at which the returned text ends.

        Without `text`, the text is empty. With `part`, it is this part of the text, or as much of
        its beginning as fits into a reply. Raises InvalidArgument or TooLarge if a name, the id or
        the filter is invalid, or if `part` is outside the text. Raises DocumentNotFound if there is
        no such document, or if it does not pass `filter`. May also raise CollectionNotFound,
        ReplyTooLarge, DeadlineExceeded or Cancelled.
        """
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(collection)
        ids.check_document_id(document_id)
        if filter is not None:
            check_filter(filter)
        with self._reader.snapshot(
            tenant_id, collection, deadline=CURRENT.get().deadline
        ) as snapshot:
            info = snapshot.document(document_id, filter)
            if not text:
                return info, "", 0
            return snapshot.document_with_text(document_id, part, self._reply)


def _checked_chunk_id(tenant_id: str, collection: str, chunk_id: str) -> ids.ChunkId:
    ids.check_tenant_id(tenant_id)
    ids.check_collection_name(collection)
    return ids.parse_chunk_id(chunk_id)
