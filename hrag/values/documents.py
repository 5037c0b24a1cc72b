"""Documents as clients send them, documents as they are stored, and changes of documents."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hrag.values.errors import InvalidArgument
from hrag.values.read_report import PageUnit, ReadReport

ROOT_KEY = "ingest_root"
"""The metadata key that names the folder of a document which was ingested with --prune.

Only a client sets it; a field of this name in a file is ignored.
"""


class IngestOutcome(StrEnum):
    """The effect of an ingestion: the document was created, replaced or not changed."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Page:
    """A page as a client sends it.

    If `number` is 0, the page's number is its position in the document's list of pages, from 1.
    """

    text: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A document as a client sends it: plain text, the bytes of a file, or pages.

    If `title` is empty, the indexer uses the title that it finds in the text or file: in front
    matter, in the first heading of level 1, or in the file's metadata. If `mime_type` is empty, the
    indexer detects the format of bytes. If `encoding` is empty, it detects the encoding of bytes
    that are text. If `keep_boilerplate` is True, the parts of a web page around its content are
    read too, for example navigation. Raises InvalidArgument for a body of another type.
    """

    body: str | bytes | tuple[Page, ...]
    document_id: str = ""
    title: str = ""
    source: str = ""
    mime_type: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    encoding: str = ""
    keep_boilerplate: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.body, (str, bytes, tuple, list)):
            raise InvalidArgument(
                f"body is a {type(self.body).__name__}; it must be text (str), the bytes of a "
                "file, or a tuple of pages",
                field="body",
            )


@dataclass(frozen=True, slots=True)
class Original:
    """The file from which a document was read: its size in bytes, and its SHA-256 in hex."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A stored document, without its text.

    `sequence` is the sequence number of the change that stored this version of the document.
    Sequence numbers count the changes of the tenant. `page_unit` says what the numbers of pages
    mean, and `recognised_page_count` is the number of pages whose text was recognised in a picture.
    `original_bytes` is the size of the stored original, the file from which the document was read;
    0 if it is not stored.
    """

    document_id: str
    title: str
    source: str
    mime_type: str
    metadata: Mapping[str, Any]
    chunks_per_level: tuple[int, ...]
    token_count: int
    text_bytes: int
    page_count: int
    section_count: int
    sequence: int
    page_unit: PageUnit = PageUnit.PAGE
    recognised_page_count: int = 0
    original_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A change of a document's metadata and source. The document's text does not change.

    With `replace`, `metadata` replaces all stored metadata. Without `replace`, the values in
    `metadata` replace the stored values of the same top-level keys, the keys in `remove_keys` are
    removed, and all other stored keys keep their values. If `source` is None, the source does not
    change. If `expected_sequence` is not 0, the change applies only to the version of the document
    with this sequence number.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    remove_keys: tuple[str, ...] = ()
    replace: bool = False
    source: str | None = None
    expected_sequence: int = 0

    def applied_to(self, info: DocumentInfo) -> tuple[dict[str, Any], str]:
        """Returns the metadata and the source that the document has after the change."""
        remaining = {} if self.replace else info.metadata
        changed = {key: value for key, value in remaining.items() if key not in self.remove_keys}
        source = info.source if self.source is None else self.source
        return {**changed, **self.metadata}, source


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """A document after a change of its metadata.

    The outcome is UPDATED, or UNCHANGED if the document already had the new values.
    """

    document: DocumentInfo
    outcome: IngestOutcome


@dataclass(frozen=True, slots=True)
class DocumentCount:
    """The count of a collection's documents that pass a filter, and the count of all of them.

    Both counts include all changes of the tenant up to the sequence number `sequence`, and no later
    change.
    """

    documents: int
    total_documents: int
    sequence: int


@dataclass(frozen=True, slots=True)
class DocumentDeletion:
    """The count of deleted documents, and the sequence number of the last deletion.

    If nothing was deleted, `sequence` is the sequence number of the tenant's last change.
    """

    documents: int
    sequence: int


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of a text, in bytes of UTF-8, or of a file. An `end` of 0 means its end."""

    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class OriginalPart:
    """A part of a document's original, the file from which the document was read.

    `content` begins at the byte `start` of the file. `mime_type` and `source` are those of the
    document. `original` has the size and the SHA-256 of the whole file. Parts with the same SHA-256
    belong to the same file.
    """

    document_id: str
    source: str
    mime_type: str
    original: Original
    start: int
    content: bytes

    @property
    def end(self) -> int:
        """The offset in the file after the last byte of `content`."""
        return self.start + len(self.content)


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of ingesting one document.

    `sequence` is the sequence number of the tenant's change that stored the document. It is 0 if
    the document was only validated and is not stored yet in this form. `report` says what was read
    of the body. It is None for UNCHANGED, because the body was not read again.
    """

    document_id: str
    outcome: IngestOutcome
    sequence: int
    chunks_per_level: tuple[int, ...]
    token_count: int
    report: ReadReport | None = None
