"""Reads the text of a document, or a part of the text without the rest.

PostgreSQL stores the text uncompressed, so the time to read a part depends only on the length of
the part.
"""

from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.validation import no_document, no_original
from hrag.engine.engine_documents import CollectionHandle, info_bytes, read_part
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import collection_state, is_storable
from hrag.values.documents import ByteRange, DocumentInfo
from hrag.values.reply_limit import ReplyLimit, field_bytes
from hrag.values.tree import ParsedText

_MAX_PREVIOUS_BYTES = 3
"""In UTF-8, a character has at most this many bytes before its last byte."""
# A value of type bytea has at most this many bytes.
_MAX_BYTES = (1 << 30) - 1

_TEXT = """
SELECT d.record, octet_length(d.body), substring(d.body FROM %s FOR %s)
FROM hrag.documents d JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE d.tenant_id = %s AND d.collection_id = %s AND d.document_id = %s
"""
_ORIGINAL = """
SELECT d.record, d.body, d.original
FROM hrag.documents d JOIN hrag.collections c USING (tenant_id, collection_id)
WHERE d.tenant_id = %s AND d.collection_id = %s AND d.document_id = %s
"""


class _PartialText:
    """A text of `size` bytes of which only a part was read: `content`, which begins at `start`.

    `read_part` uses the object like the bytes of the whole text. `content` has all bytes that
    `read_part` accesses.
    """

    def __init__(self, size: int, start: int, content: bytes) -> None:
        self._size = size
        self._start = start
        self._content = content

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice) -> int | bytes:
        if isinstance(index, slice):
            return self._content[index.start - self._start : index.stop - self._start]
        return self._content[index - self._start]


def read_text(
    connection: Connection,
    handle: CollectionHandle,
    document_id: str,
    part: ByteRange | None,
    reply: ReplyLimit,
) -> tuple[DocumentInfo, str, int]:
    """Returns a document, the requested part of its text, and the byte at which the part ends.

    If `part` is None, the whole text is requested. `reply` is the limit of the response's size in
    bytes. Implements `hrag.engine.Writer.document_with_text`.
    """
    start, size = _byte_range(part, reply)
    parameters = (start + 1, size, handle.tenant_id, handle.collection_id, document_id)
    row = None
    if is_storable(document_id):
        row = connection.execute(_TEXT, parameters).fetchone()
    if row is None:
        collection_state(connection, handle)
        raise no_document(handle, document_id)
    record, text_bytes, content = row
    info = DocumentRecord.from_bytes(record).info()
    text = content if len(content) == text_bytes else _PartialText(text_bytes, start, content)
    remaining = reply.after(field_bytes(info_bytes(info)))
    # If a part is requested, `read_part` only reads slices of `text`, so a _PartialText is enough.
    # If the whole text is requested, a _PartialText means that the text is too long for the reply;
    # then `read_part` raises an error.
    return info, *read_part(text, part, remaining)  # type: ignore[arg-type]


def read_original(
    connection: Connection, handle: CollectionHandle, document_id: str
) -> tuple[DocumentInfo, ParsedText, bytes]:
    """Returns a document, its text and its original.

    Implements `hrag.engine.Writer.document_with_original`.
    """
    parameters = (handle.tenant_id, handle.collection_id, document_id)
    row = connection.execute(_ORIGINAL, parameters).fetchone() if is_storable(document_id) else None
    if row is None:
        collection_state(connection, handle)
        raise no_document(handle, document_id)
    packed, text, original = row
    if original is None:
        raise no_original(document_id)
    record = DocumentRecord.from_bytes(packed)
    return record.info(), record.parsed(text), bytes(original)


def _byte_range(part: ByteRange | None, reply: ReplyLimit) -> tuple[int, int]:
    """Returns the offset of the first byte that `read_part` may access, and the count of bytes."""
    if part is None:
        # A text with more bytes than the reply may still have is read only in part, because
        # `read_part` raises an error for it.
        return 0, min(reply.left_bytes, _MAX_BYTES)
    start = min(max(part.start - _MAX_PREVIOUS_BYTES, 0), _MAX_BYTES)
    size = part.start - start + reply.left_bytes + 1
    if part.end:
        size = min(size, part.end - start + 1)
    return start, max(0, min(size, _MAX_BYTES - start))
