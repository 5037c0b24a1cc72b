"""Reads whole documents, as they are stored, through the services' public calls.

All parts of a document are from one version: if it is replaced during reading, it is read again.
Reading the pages takes one call for each top-level chunk, and so does reading the tree.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from hrag.cli.documents.chunk_tree import hierarchies, nodes, top_chunk_ids
from hrag.values.chunks import Chunk, ChunkNode
from hrag.values.documents import DocumentInfo, Page
from hrag.values.errors import ChunkNotFound, DocumentChanged, DocumentNotFound

if TYPE_CHECKING:
    from hrag.client import Client

_ATTEMPTS = 3
_MAX_PAGE_NUMBER = 2**32 - 1  # A request stores page numbers in 32 bits.
_PAGE_BREAK = "\n\n"  # The indexer joins the texts of pages with this.


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """One version of a document: its text, and either its pages or its tree.

    `pages` is empty if the document has none or was read with its tree; `tree` is empty if it
    was read with its pages.
    """

    info: DocumentInfo
    text: str
    pages: tuple[Page, ...] = ()
    tree: tuple[ChunkNode, ...] = ()


class DocumentReader:
    """Reads whole documents of one collection."""

    def __init__(self, client: "Client", tenant: str, collection: str) -> None:
        self._client = client
        self._tenant = tenant
        self._collection = collection

    def with_pages(self, info: DocumentInfo) -> StoredDocument | None:
        """Returns the document with its pages.

        Returns None if it was deleted, or replaced during each of three attempts.
        """
        return self._read_unchanged(info, self._with_pages)

    def with_tree(self, info: DocumentInfo) -> StoredDocument | None:
        """Returns the document with all chunks, parents first.

        Returns None if it was deleted, or replaced during each of three attempts.
        """
        return self._read_unchanged(info, self._with_tree)

    def _read_unchanged(
        self, info: DocumentInfo, read: Callable[[DocumentInfo], StoredDocument]
    ) -> StoredDocument | None:
        """Calls `read` until the document has not changed while it was read."""
        for _ in range(_ATTEMPTS):
            try:
                document = read(info)
            except ChunkNotFound:
                document = None
            except (DocumentChanged, DocumentNotFound):
                return None
            try:
                current = self._client.get_document(
                    self._tenant, info.document_id, collection=self._collection
                )
            except DocumentNotFound:
                return None
            if document is not None and current.sequence == info.sequence:
                return document
            info = current
        return None

    def _with_pages(self, info: DocumentInfo) -> StoredDocument:
        text = self._text(info)
        return StoredDocument(info, text, pages_of(text, self._top_chunks(info), info.page_count))

    def _with_tree(self, info: DocumentInfo) -> StoredDocument:
        trees = hierarchies(self._client, self._tenant, self._collection, info)
        tree = tuple(node for hierarchy in trees for node in nodes(hierarchy))
        return StoredDocument(info, self._text(info), tree=tree)

    def _text(self, info: DocumentInfo) -> str:
        return self._client.get_text(self._tenant, info.document_id, collection=self._collection)

    def _top_chunks(self, info: DocumentInfo) -> Iterator[Chunk]:
        """Yields the chunks of the top level, if the document has pages."""
        if not info.page_count:
            return
        for chunk_id in top_chunk_ids(info):
            node = self._client.get_chunk(self._tenant, chunk_id, collection=self._collection)
            yield node.chunk


def pages_of(text: str, chunks: Iterator[Chunk], page_count: int) -> tuple[Page, ...]:
    """Returns the pages of `text`. Without chunks, returns no pages.

    `chunks` are the chunks of the top level, in order. `page_count` is the number of pages. An
    empty last page lies in no chunk, so its number is taken to be one more than the number of
    the page before it.
    """
    numbers: dict[int, int] = {}
    last_page = end = 0
    for chunk in chunks:
        if chunk.first_page != last_page and chunk.span.char_start >= end:
            # No earlier chunk reaches into this page, so the page begins with this chunk.
            numbers[chunk.span.char_start] = chunk.first_page
        numbers |= {start.char_start: start.number for start in chunk.page_starts}
        last_page, end = chunk.last_page, chunk.span.char_end
    if len(numbers) < page_count and text.endswith(_PAGE_BREAK):
        numbers[len(text)] = min(last_page + 1, _MAX_PAGE_NUMBER)
    starts = sorted(numbers)
    pieces = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    texts = [*(piece.removesuffix(_PAGE_BREAK) for piece in pieces[:-1]), *pieces[-1:]]
    return tuple(Page(piece, numbers[start]) for piece, start in zip(texts, starts, strict=True))
