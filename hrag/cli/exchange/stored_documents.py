"""Documents as they are stored, read whole through the services' public calls.

One version of a document is read: if it is replaced meanwhile, it is read again. Pages are found
with one call for each top-level chunk, and so is the tree.
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
_MAX_PAGE_NUMBER = 2**32 - 1  # The largest that a request can hold.
_PAGE_BREAK = "\n\n"  # Between the texts of pages.


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """One version of a document: its text, its pages if it has any, its tree if asked for."""

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
        """Returns the document with its pages, or None if it is deleted or changes all the time."""
        return self._unchanged(info, self._with_pages)

    def with_tree(self, info: DocumentInfo) -> StoredDocument | None:
        """Returns the document with all chunks, parents first, or None as above."""
        return self._unchanged(info, self._with_tree)

    def _unchanged(
        self, info: DocumentInfo, read: Callable[[DocumentInfo], StoredDocument]
    ) -> StoredDocument | None:
        for _ in range(_ATTEMPTS):
            try:
                found = read(info)
            except ChunkNotFound:
                found = None
            except (DocumentChanged, DocumentNotFound):
                return None
            try:
                now = self._client.get_document(
                    self._tenant, info.document_id, collection=self._collection
                )
            except DocumentNotFound:
                return None
            if found is not None and now.sequence == info.sequence:
                return found
            info = now
        return None

    def _with_pages(self, info: DocumentInfo) -> StoredDocument:
        text = self._text(info)
        return StoredDocument(info, text, pages_of(text, self._top_chunks(info), info.page_count))

    def _with_tree(self, info: DocumentInfo) -> StoredDocument:
        found = hierarchies(self._client, self._tenant, self._collection, info)
        tree = tuple(node for each in found for node in nodes(each))
        return StoredDocument(info, self._text(info), tree=tree)

    def _text(self, info: DocumentInfo) -> str:
        return self._client.get_text(self._tenant, info.document_id, collection=self._collection)

    def _top_chunks(self, info: DocumentInfo) -> Iterator[Chunk]:
        """The chunks of the top level, if the document has pages."""
        if not info.page_count:
            return
        for chunk_id in top_chunk_ids(info):
            node = self._client.get_chunk(self._tenant, chunk_id, collection=self._collection)
            yield node.chunk


def pages_of(text: str, chunks: Iterator[Chunk], page_count: int) -> tuple[Page, ...]:
    """Returns the pages of `text`, of which `chunks` are the top level; none without chunks.

    An empty last page is in no chunk: it has the number after that of the page before.
    """
    numbers: dict[int, int] = {}
    last_page = end = 0
    for chunk in chunks:
        if chunk.first_page != last_page and chunk.span.char_start >= end:
            # No earlier chunk reaches into this page, so it begins with this chunk.
            numbers[chunk.span.char_start] = chunk.first_page
        numbers |= {start.char_start: start.number for start in chunk.page_starts}
        last_page, end = chunk.last_page, chunk.span.char_end
    if len(numbers) < page_count and text.endswith(_PAGE_BREAK):
        numbers[len(text)] = min(last_page + 1, _MAX_PAGE_NUMBER)
    starts = sorted(numbers)
    pieces = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    texts = [*(each.removesuffix(_PAGE_BREAK) for each in pieces[:-1]), *pieces[-1:]]
    return tuple(Page(each, numbers[start]) for each, start in zip(texts, starts, strict=True))
