"""Documents, as clients send them and as they are stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

PLAIN_TEXT = "text/plain"
MARKDOWN = "text/markdown"
PDF = "application/pdf"


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
    matter, its first heading of level 1 (Markdown), or its metadata (PDF).
    """

    body: str | bytes | tuple[Page, ...]
    document_id: str = ""
    title: str = ""
    source: str = ""
    mime_type: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


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
