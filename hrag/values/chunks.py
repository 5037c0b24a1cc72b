"""Chunks of documents and their place in the tree."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """The position of a chunk in its document's text."""

    byte_start: int
    byte_end: int
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class PageStart:
    """The position where a page begins in its document's text."""

    number: int
    char_start: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a document at one level, with the fields that a citation needs.

    `first_page` and `last_page` are 0 if the document has no pages. `page_starts` are the starts of
    the pages after `first_page`.
    """

    chunk_id: str
    document_id: str
    level: int
    index: int
    content: str
    token_count: int
    span: Span
    section_path: tuple[str, ...]
    first_page: int
    last_page: int
    title: str
    source: str
    metadata: Mapping[str, Any]
    page_starts: tuple[PageStart, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkNode:
    """A chunk with its place in the tree."""

    chunk: Chunk
    parent_id: str
    child_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A chunk with its relatives: ancestors parent first, descendants level by level."""

    node: ChunkNode
    ancestors: tuple[ChunkNode, ...]
    siblings: tuple[ChunkNode, ...]
    descendants: tuple[ChunkNode, ...]
