"""Documents, in the form in which engines take and return them.

Knows nothing of a specific engine. Vectors are `float32` rows of unit length.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hrag.models.embedding import Vectors
from hrag.values import canonical_json
from hrag.values.collections import CollectionSettings
from hrag.values.documents import ByteRange, DocumentInfo, IngestResult
from hrag.values.errors import DataLoss, InvalidArgument
from hrag.values.reply_limit import TEXT_ADVICE, ReplyLimit, field_bytes, struct_bytes, text_bytes
from hrag.values.tree import ParsedText, Tree

# The numbers in an encoded DocumentInfo, without the chunk counts, take at most 64 bytes.
_INFO_BYTES = 64
# One chunk count, encoded as a varint, takes at most 5 bytes.
_COUNT_BYTES = 5


@dataclass(frozen=True, slots=True)
class CollectionHandle:
    """A collection that was opened by name.

    A `collection_id` is never reused, so a handle of a deleted collection does not refer to
    a new collection with the same name.
    """

    tenant_id: str
    name: str
    collection_id: int
    settings: CollectionSettings


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document that is ready to be committed.

    `content_hash` covers everything that the client sent. If the stored document has the same hash,
    ingesting the document returns UNCHANGED. `vectors` is `float32[leaves, dimension]`, in the
    order of the tree's leaves. `metadata_json` is `metadata` as canonical JSON. It is computed here
    if it is empty.
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

    def __post_init__(self) -> None:
        if not self.metadata_json:
            object.__setattr__(self, "metadata_json", canonical_json.encode(self.metadata))


@dataclass(frozen=True, slots=True)
class IngestDecision:
    """The decision whether a document must be ingested, and the collection that it belongs to.

    `unchanged` is the stored document's result if it has the same content hash, else None. If it is
    None, the document must be ingested.
    """

    collection: CollectionHandle
    unchanged: IngestResult | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A text, not blank, that summarises a range of leaves of its document."""

    text: str
    leaves: range


@dataclass(frozen=True, slots=True)
class DocumentSummaries:
    """The summaries of a document: first one of the whole document, then one of each section.

    Empty if the document is too short to be summarised. `vectors` is
    `float32[len(summaries), dimension]`.
    """

    summaries: tuple[Summary, ...]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A whole stored document, which can be stored in another store without embedding it again.

    `summaries` is None if the summaries are not written yet or if the collection has none.
    """

    document: PreparedDocument
    summaries: DocumentSummaries | None = None

    @property
    def document_id(self) -> str:
        """The document's id."""
        return self.document.document_id


@dataclass(frozen=True, slots=True)
class DamagedDocument:
    """A stored document whose stored data differs from what was written.

    `problem` says which part is damaged.
    """

    document_id: str
    problem: str


ExportedDocument = StoredDocument | DamagedDocument


NO_VERSION = 0
"""A `version` that no document has. With it, `Writer.put_summaries` only counts tokens."""


class UnreadableVersion(DataLoss):
    """A document that waits for its summaries cannot be read, or its whole collection cannot.

    If `version` is in `excluding`, `Writer.next_unsummarised` skips this document or collection.
    """

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True, slots=True)
class Unsummarised:
    """A stored document whose summaries are not written yet.

    `version` distinguishes it from later documents with the same id. `spent_tokens` is the number
    of tokens that the summaries of the collection have cost so far.
    """

    collection: CollectionHandle
    version: int
    document_id: str
    title: str
    parsed: ParsedText
    tree: Tree
    spent_tokens: int


def info_bytes(info: DocumentInfo) -> int:
    """Returns an upper bound for the encoded size of a DocumentInfo, in bytes."""
    texts = text_bytes(info.document_id, info.title, info.source, info.mime_type)
    counts = _COUNT_BYTES * len(info.chunks_per_level)
    return texts + field_bytes(struct_bytes(info.metadata)) + counts + _INFO_BYTES


def fitting(infos: Iterable[DocumentInfo], reply: ReplyLimit) -> Iterator[DocumentInfo]:
    """Yields documents as long as they fit into `reply`. Yields at least one if there is one."""
    for number, info in enumerate(infos):
        size = field_bytes(info_bytes(info))
        if number and size > reply.left_bytes:
            return
        yield info
        reply = reply.after(size)


def read_part(
    text: bytes | memoryview, part: ByteRange | None, reply: ReplyLimit
) -> tuple[str, int]:
    """Returns a part of a UTF-8 text, and the byte offset at which the returned text ends.

    The text is cut where `reply` allows no more. It begins and ends at the boundaries of
    characters. If `part` is None, the whole text is returned. Raises InvalidArgument if `part` lies
    outside the text, and ReplyTooLarge if the whole text is requested and too long.
    """
    if part is None:
        reply.check(field_bytes(len(text)), TEXT_ADVICE)
        return str(text, "utf-8"), len(text)
    end = part.end or len(text)
    if not part.start <= min(end, len(text)):
        raise InvalidArgument(
            f"text_range is from {part.start} to {end}; it must lie in the text, which has "
            f"{len(text)} bytes",
            field="text_range",
        )
    start = _character_start(text, part.start)
    end = _character_start(text, min(end, len(text), start + reply.left_bytes))
    return str(text[start:end], "utf-8"), end


def _character_start(text: bytes | memoryview, position: int) -> int:
    """Returns the start of the character that contains the byte at `position`."""
    while position < len(text) and text[position] & 0xC0 == 0x80:
        position -= 1
    return position
