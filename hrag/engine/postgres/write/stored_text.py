"""Reads a document's text, or a part of it, without reading the rest.

PostgreSQL stores the text uncompressed, so that it reads a part in time of the part's length.
"""

from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.validation import no_document
from hrag.engine.engine_documents import CollectionHandle, info_bytes, read_part
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import collection_state, is_storable
from hrag.values.documents import ByteRange, DocumentInfo
from hrag.values.reply_limit import ReplyLimit, field_bytes

_AROUND = 3
"""At most so many bytes of a character lie before a byte of it."""
_MOST = (1 << 30) - 1  # Bytes of a bytea.

_TEXT = """
SELECT d.record, octet_length(d.body), substring(d.body FROM %s FOR %s)
FROM hrag.documents d JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE d.tenant_id = %s AND d.collection_id = %s AND d.document_id = %s
"""


class _Window:
    """A text of which only the bytes from `start` on are here, as many as anybody looks at."""

    def __init__(self, size: int, start: int, content: bytes) -> None:
        self._size = size
        self._start = start
        self._content = content

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, where: int | slice) -> int | bytes:
        if isinstance(where, slice):
            return self._content[where.start - self._start : where.stop - self._start]
        return self._content[where - self._start]


def read_text(
    connection: Connection,
    handle: CollectionHandle,
    document_id: str,
    part: ByteRange | None,
    reply: ReplyLimit,
) -> tuple[DocumentInfo, str, int]:
    """See `hrag.engine.Writer.document_with_text`."""
    start, size = _wanted(part, reply)
    wanted = (start + 1, size, handle.tenant_id, handle.collection_id, document_id)
    found = None
    if is_storable(document_id):
        found = connection.execute(_TEXT, wanted).fetchone()
    if found is None:
        collection_state(connection, handle)
        raise no_document(handle, document_id)
    record, text_bytes, content = found
    info = DocumentRecord.from_bytes(record).info()
    text = content if len(content) == text_bytes else _Window(text_bytes, start, content)
    left = reply.after(field_bytes(info_bytes(info)))
    # Of a part, `read_part` takes slices; a whole text that is not here is refused by its length.
    return info, *read_part(text, part, left)  # type: ignore[arg-type]


def _wanted(part: ByteRange | None, reply: ReplyLimit) -> tuple[int, int]:
    """Start and size of the bytes that `read_part` may look at."""
    if part is None:
        return 0, min(reply.left_bytes, _MOST)  # A longer text is refused.
    start = min(max(part.start - _AROUND, 0), _MOST)
    size = part.start - start + reply.left_bytes + 1
    if part.end:
        size = min(size, part.end - start + 1)
    return start, max(0, min(size, _MOST - start))
