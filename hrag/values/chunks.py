"""Chunks of documents, with their positions in the text and in the chunk tree."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hrag.values.read_report import PageUnit


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a document's text, in bytes of UTF-8 and in characters."""

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
    the pages after `first_page`. `page_unit` says what the numbers of pages mean: pages, rows of a
    table, or seconds of a recording. `recognised_pages` are the numbers of the pages whose text was
    recognised in a picture.
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
    page_unit: PageUnit = PageUnit.PAGE
    recognised_pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkNode:
    """A chunk with the ids of its parent and its children in the chunk tree.

    `parent_id` is empty at the top level. `child_ids` are in order of the text.
    """

    chunk: Chunk
    parent_id: str
    child_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A chunk with its ancestors, siblings and descendants in the chunk tree.

    The ancestors begin with the parent. The descendants are ordered level by level downwards, and
    within a level by their positions in the text.
    """

    node: ChunkNode
    ancestors: tuple[ChunkNode, ...]
    siblings: tuple[ChunkNode, ...]
    descendants: tuple[ChunkNode, ...]
