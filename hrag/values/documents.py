"""Documents, as clients send them and as they are stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hrag.values.errors import InvalidArgument


class IngestOutcome(StrEnum):
    """Outcome of ingesting a document."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Page:
    """One page as a client sends it; number 0 means its position, counted from 1."""

    text: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A document as a client sends it: plain text, a file's bytes, or pages.

    Without a title the indexer takes the one that the document itself gives: in front
    matter, its first heading of level 1, or its metadata. Raises InvalidArgument for a body of
    another type.
    """

    body: str | bytes | tuple[Page, ...]
    document_id: str = ""
    title: str = ""
    source: str = ""
    mime_type: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.body, (str, bytes, tuple, list)):
            raise InvalidArgument(
                f"body is a {type(self.body).__name__}; it must be text (str), the bytes of a "
                "file, or a tuple of pages",
                field="body",
            )


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document as it is stored; `sequence` is the tenant's at the change that stored it."""

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


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A change of a document's metadata and source; its content stays as it is.

    `metadata` is stored at its top-level keys, or, with `replace`, instead of all that is stored;
    `remove_keys` are taken out. A `source` of None stays. With `expected_sequence`, only the
    version with this sequence is changed.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    remove_keys: tuple[str, ...] = ()
    replace: bool = False
    source: str | None = None
    expected_sequence: int = 0

    def applied_to(self, info: DocumentInfo) -> tuple[dict[str, Any], str]:
        """Returns the metadata and the source that the document has after the change."""
        kept = {} if self.replace else info.metadata
        changed = {key: value for key, value in kept.items() if key not in self.remove_keys}
        source = info.source if self.source is None else self.source
        return {**changed, **self.metadata}, source


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """A document after a change of its metadata: UPDATED, or UNCHANGED if it was so before."""

    document: DocumentInfo
    outcome: IngestOutcome


@dataclass(frozen=True, slots=True)
class DocumentCount:
    """How many documents pass a filter, and how many there are, as of the tenant's `sequence`."""

    documents: int
    total_documents: int
    sequence: int


@dataclass(frozen=True, slots=True)
class DocumentDeletion:
    """How many documents were deleted, and the tenant's sequence at the last deletion.

    If there was none, it is that of the tenant's last change before.
    """

    documents: int
    sequence: int


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A part of a text in bytes of UTF-8; an `end` of 0 is the end of the text."""

    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Result of ingesting one document; `sequence` is the tenant's at the change that stored it."""

    document_id: str
    outcome: IngestOutcome
    sequence: int
    chunks_per_level: tuple[int, ...]
    token_count: int
