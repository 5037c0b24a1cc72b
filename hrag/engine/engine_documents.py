"""Documents, summaries and collections, as callers pass them to engines and engines return them.

All engines use the same classes. Vectors are rows of `float32` with unit length.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from hrag.models.embedding import Vectors
from hrag.values import canonical_json
from hrag.values.collections import CollectionSettings
from hrag.values.documents import ByteRange, DocumentInfo, IngestResult
from hrag.values.errors import DataLoss, InvalidArgument
from hrag.values.reply_limit import TEXT_ADVICE, ReplyLimit, field_bytes, struct_bytes, text_bytes
from hrag.values.tree import ParsedText, Tree

# The maximum size in bytes of all integer fields together in the protobuf message of a document,
# without the chunk counts.
_INFO_BYTES = 78
# The maximum size in bytes of one chunk count, a varint, in the protobuf message of a document.
_COUNT_BYTES = 5
# The maximum size in bytes of the other fields of the response with a part of an original: two
# integers, a SHA-256, and the tags and lengths of all fields.
_ORIGINAL_BYTES = 110


@dataclass(frozen=True, slots=True)
class CollectionHandle:
    """A collection that was looked up by its name or alias: its tenant, name, id and settings.

    The id of a deleted collection is never used again. So the handle of a deleted collection does
    not refer to a new collection with the same name.
    """

    tenant_id: str
    name: str
    collection_id: int
    settings: CollectionSettings


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document that is ready to be committed.

    `content_hash` is a hash of everything that the client sent. If the stored document has the same
    hash, ingesting the document returns UNCHANGED. `vectors` is `float32[leaves, dimension]`, in
    the order of the tree's leaves. `metadata_json` is `metadata` as canonical JSON; if it is not
    passed, this class computes it. `indexed_source` is the source whose words are indexed, if it is
    not `source`. Only a copy of a stored document whose source was changed has it. `original` is
    the file from which the document was read, which is stored with the document; None if it is not
    stored. `original_sha256` is its SHA-256 in hex; if it is not passed, this class computes it.
    """

    document_id: str
    title: str
    source: str
    mime_type: str
    metadata: Mapping[str, Any]
    content_hash: str
    parsed: ParsedText
    tree: Tree
    vectors: Vectors
    metadata_json: bytes = field(default=b"", repr=False)
    indexed_source: str | None = None
    original: bytes | None = field(default=None, repr=False)
    original_sha256: str = ""

    def __post_init__(self) -> None:
        if not self.metadata_json:
            object.__setattr__(self, "metadata_json", canonical_json.encode(self.metadata))
        if self.original is not None and not self.original_sha256:
            object.__setattr__(self, "original_sha256", sha256(self.original).hexdigest())


@dataclass(frozen=True, slots=True)
class IngestDecision:
    """The decision whether a document must be ingested, and the collection that it belongs to.

    If a document with the same id and the same content hash is stored already, `unchanged` is the
    result to return. If `unchanged` is None, the document must be ingested.
    """

    collection: CollectionHandle
    unchanged: IngestResult | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A text, which is not blank, and the range of a document's leaves that it summarises."""

    text: str
    leaves: range


@dataclass(frozen=True, slots=True)
class DocumentSummaries:
    """The summaries of a document: first of the whole document, then of each of its sections.

    `summaries` is empty if the document is too short to be summarised. `vectors` is
    `float32[len(summaries), dimension]`.
    """

    summaries: tuple[Summary, ...]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A whole document as it is stored, with its vectors and summaries.

    A StoredDocument can be copied to another store without embedding the document again.
    `summaries` is None if the summaries are not written yet, or if the collection has no summaries.
    """

    document: PreparedDocument
    summaries: DocumentSummaries | None = None

    @property
    def document_id(self) -> str:
        """The document's id."""
        return self.document.document_id


@dataclass(frozen=True, slots=True)
class DamagedDocument:
    """A document whose stored data differs from the data that was written.

    `problem` is the message that says which data is damaged.
    """

    document_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class UncopiedDocument:
    """A document that the copy of its collection does not have yet.

    `sequence` is the sequence number of the document's last change. It tells later whether the
    document has changed since it was read.
    """

    stored: StoredDocument
    sequence: int


ExportedDocument = StoredDocument | DamagedDocument
"""What `Reader.export` yields for a document."""


def size_of(document: PreparedDocument) -> int:
    """Returns about how many bytes a document's text, tree, vectors and original have."""
    content_bytes = document.tree.size_bytes + document.vectors.nbytes
    return len(document.parsed.text) + content_bytes + len(document.original or b"")


NO_VERSION = 0
"""A `version` that no document has.

For a document with this version, `Writer.put_summaries` stores no summaries. It only adds the
tokens to the collection's total."""


class UnreadableVersion(DataLoss):
    """A document without summaries cannot be read: its data or its collection are damaged.

    `version` identifies the damaged document or the damaged collection.
    `Writer.next_unsummarised` skips this document or collection if its argument `excluding`
    contains `version`.
    """

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True, slots=True)
class Unsummarised:
    """A stored document whose summaries are not written yet.

    `version` distinguishes the document from later documents with the same id. `spent_tokens` is
    the count of tokens that a chat model has read and written so far for all summaries of the
    collection.
    """

    collection: CollectionHandle
    version: int
    document_id: str
    title: str
    parsed: ParsedText
    tree: Tree
    spent_tokens: int


def info_bytes(info: DocumentInfo) -> int:
    """Returns an upper bound for the size of a document's protobuf message, in bytes."""
    texts = text_bytes(info.document_id, info.title, info.source, info.mime_type)
    counts = _COUNT_BYTES * len(info.chunks_per_level)
    return texts + field_bytes(struct_bytes(info.metadata)) + counts + _INFO_BYTES


def fitting(infos: Iterable[DocumentInfo], reply: ReplyLimit) -> Iterator[DocumentInfo]:
    """Yields the first documents of `infos`: as many as fit into the reply to a client.

    `reply` is the size limit of the reply. The first document is yielded even if it does not fit.
    """
    for index, info in enumerate(infos):
        size = field_bytes(info_bytes(info))
        if index and size > reply.left_bytes:
            return
        yield info
        reply = reply.after(size)


def read_part(
    text: bytes | memoryview, part: ByteRange | None, reply: ReplyLimit
) -> tuple[str, int]:
    """Returns a part of a UTF-8 text, and the byte offset at which the returned text ends.

    `reply` is the size limit of the response. If `part` does not fit this limit, the end of the
    part is left out. The returned text begins and ends at boundaries of characters. If `part` is
    None, the whole text is returned. Raises InvalidArgument if `part` is outside the text. Raises
    ReplyTooLarge if `part` is None and the whole text does not fit the limit.
    """
    if part is None:
        reply.check(field_bytes(len(text)), TEXT_ADVICE)
        return str(text, "utf-8"), len(text)
    end = part.end or len(text)
    if not part.start <= min(end, len(text)):
        raise InvalidArgument(
            f"text_range is from {part.start} to {end}; it must be within the text, which has "
            f"{len(text)} bytes",
            field="text_range",
        )
    start = _character_start(text, part.start)
    end = _character_start(text, min(end, len(text), start + reply.left_bytes))
    return str(text[start:end], "utf-8"), end


def original_range(info: DocumentInfo, part: ByteRange, reply: ReplyLimit) -> tuple[int, int]:
    """Returns the offsets of the first byte of a part of an original, and after its last byte.

    `info` describes the document. The end of the part is left out if the part does not fit the size
    limit `reply` of the response. Raises InvalidArgument if `part` is outside the original.
    """
    size_bytes = info.original_bytes
    end = part.end or size_bytes
    if not part.start <= min(end, size_bytes):
        raise InvalidArgument(
            f"start is {part.start} and end is {part.end}; the range must be within the original, "
            f"which has {size_bytes} bytes",
            field="start",
        )
    overhead = text_bytes(info.source, info.mime_type) + _ORIGINAL_BYTES
    return part.start, min(end, size_bytes, part.start + reply.after(overhead).left_bytes)


def _character_start(text: bytes | memoryview, position: int) -> int:
    """Returns the offset at which the character that contains the byte at `position` begins."""
    while position < len(text) and text[position] & 0xC0 == 0x80:
        position -= 1
    return position
