"""The content of an export: whole documents as they are stored, and their JSON Lines format.

Documents are read through the services' public calls. The text of a document and its pages or tree
are from one version of the document: if the document is replaced while it is read, it is read
again. Reading the pages takes one call for each top-level chunk, and so does reading the tree.

The first line of an export is `{"hrag_export": 1, "collection": ..., "settings": {...}}`. Each
other line is a document with `id`, `title`, `source`, `mime_type`, `metadata` and either `text` or
`pages`. `pages` is a list of objects with `number` and `text`, so that citations name the same
pages after an import. A document whose numbers are those of rows or seconds is exported as `text`,
without these numbers, because an import would put blank lines between its rows.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hrag.cli.input_documents import Unreadable
from hrag.cli.tree import hierarchies, nodes, top_chunk_ids
from hrag.values.chunks import Chunk, ChunkNode
from hrag.values.collections import NO_EMBEDDER, Collection, SettingsRequest, SummaryUnit
from hrag.values.documents import Document, DocumentInfo, Page
from hrag.values.errors import ChunkNotFound, DocumentChanged, DocumentNotFound
from hrag.values.formats import (
    CSV,
    HTML,
    JSON,
    LATEX,
    NOTEBOOK,
    PLAIN_TEXT,
    RST,
    SRT,
    TSV,
    VTT,
    XML,
    format_of,
)
from hrag.values.read_report import PageUnit

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client

FORMAT_VERSION = 1

# Text formats whose files the indexer parses. The indexer stores the text that it extracts from a
# file, not the content of the file.
_READ_FROM_FILES = (HTML, CSV, TSV, RST, NOTEBOOK, LATEX, JSON, XML, SRT, VTT)
_TEXT_FIELDS = ("id", "title", "source", "mime_type", "text")
_FIELDS = (*_TEXT_FIELDS, "metadata", "pages")
_ATTEMPTS = 3
# The highest page number: a request to the indexer stores page numbers in 32 bits.
_MAX_PAGE_NUMBER = 2**32 - 1
_PAGE_BREAK = "\n\n"  # The indexer puts this text between the texts of two pages.
_NOT_A_PAGE = (
    "each page must be an object with the fields text (a string) and number (optional: a whole "
    "number, 0 or more)"
)


@dataclass(frozen=True, slots=True)
class CompleteDocument:
    """One version of a document: its text, and either its pages or its tree.

    `pages` is empty if the document has none or was read with its tree; `tree` is empty if it
    was read with its pages.
    """

    info: DocumentInfo
    text: str
    pages: tuple[Page, ...] = ()
    tree: tuple[ChunkNode, ...] = ()


class ExportReader:
    """Reads whole documents of one collection."""

    def __init__(self, client: "Client", tenant: str, collection: str) -> None:
        self._client = client
        self._tenant = tenant
        self._collection = collection

    def with_pages(self, info: DocumentInfo) -> CompleteDocument | None:
        """Returns the document with its pages.

        Returns None if the document was deleted, or if each attempt to read it failed because it
        was replaced meanwhile.
        """
        return self._read_unchanged(info, self._with_pages)

    def with_tree(self, info: DocumentInfo) -> CompleteDocument | None:
        """Returns the document with all chunks. Each parent precedes its children.

        Returns None if the document was deleted, or if each attempt to read it failed because it
        was replaced meanwhile.
        """
        return self._read_unchanged(info, self._with_tree)

    def _read_unchanged(
        self, info: DocumentInfo, read: Callable[[DocumentInfo], CompleteDocument]
    ) -> CompleteDocument | None:
        """Returns the document as `read` returns it, from one version.

        If the document was replaced while it was read, this function calls `read` again. Returns
        None if the document was deleted, or if each attempt failed because it was replaced.
        """
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

    def _with_pages(self, info: DocumentInfo) -> CompleteDocument:
        text = self._text(info)
        page_count = info.page_count if info.page_unit is PageUnit.PAGE else 0
        return CompleteDocument(info, text, pages_of(text, self._top_chunks(info), page_count))

    def _with_tree(self, info: DocumentInfo) -> CompleteDocument:
        trees = hierarchies(self._client, self._tenant, self._collection, info)
        tree = tuple(node for hierarchy in trees for node in nodes(hierarchy))
        return CompleteDocument(info, self._text(info), tree=tree)

    def _text(self, info: DocumentInfo) -> str:
        return self._client.get_text(self._tenant, info.document_id, collection=self._collection)

    def _top_chunks(self, info: DocumentInfo) -> Iterator[Chunk]:
        """Yields the document's chunks of the top level.

        Yields none if the document has no pages, or if its page numbers are those of rows or
        seconds.
        """
        if not info.page_count or info.page_unit is not PageUnit.PAGE:
            return
        for chunk_id in top_chunk_ids(info):
            node = self._client.get_chunk(self._tenant, chunk_id, collection=self._collection)
            yield node.chunk


def pages_of(text: str, chunks: Iterator[Chunk], page_count: int) -> tuple[Page, ...]:
    """Returns the pages of the document that has the text `text`.

    `chunks` are the document's chunks of the top level, in order; without chunks, the result is
    empty. `page_count` is the count of pages. An empty last page is in no chunk, so no chunk says
    its page number. This number is assumed to be one more than the number of the page before it.
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


class NotAnExport(ValueError):
    """A file is not an export, or has a format that this version of hrag cannot read."""


def header_line(collection: Collection) -> str:
    """Returns the first line of an export: the format version, and the collection's settings."""
    settings = collection.settings
    return _json_line(
        {
            "hrag_export": FORMAT_VERSION,
            "collection": collection.name,
            "settings": {
                "level_sizes": settings.tree.level_sizes,
                "overlap_ratio": settings.tree.overlap_ratio,
                "embedding_level": settings.tree.embedding_level,
                "return_level": settings.return_level,
                "summaries": settings.summaries,
                "embedder": settings.embedder,
                "analyzer": settings.analyzer.partition("/")[0] or None,
                "index_headings": settings.index_headings,
            },
        }
    )


def document_line(document: CompleteDocument) -> str:
    """Returns the line of an export that contains this document, as a JSON object."""
    info = document.info
    body: dict[str, Any] = {"text": document.text}
    if document.pages:
        body = {"pages": [asdict(page) for page in document.pages]}
    return _json_line(
        {
            "id": info.document_id,
            "title": info.title,
            "source": info.source,
            "mime_type": info.mime_type,
            "metadata": info.metadata,
            **body,
        }
    )


def _json_line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_header(line: bytes) -> SettingsRequest:
    """Returns the settings of the exported collection. `line` is the first line of the export.

    The returned settings do not name the exported embedder: the importing indexer embeds the texts
    again, with its default embedder. Exception: if the exported collection has no vectors, the
    settings say so, so that the imported collection has no vectors either. Raises NotAnExport if
    `line` is not the first line of an export in a format that this version of hrag can read.
    """
    try:
        header = json.loads(line)
        version = header["hrag_export"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotAnExport('its first line is not {"hrag_export": 1, ...}') from None
    if version != FORMAT_VERSION:
        raise NotAnExport(f"it has format {version!r}; only format {FORMAT_VERSION} can be read")
    try:
        settings = dict(header["settings"])
        settings["embedder"] = NO_EMBEDDER if settings["embedder"] == NO_EMBEDDER else None
        settings["level_sizes"] = tuple(settings["level_sizes"])
        settings["summaries"] = SummaryUnit(settings["summaries"])
        return SettingsRequest(**settings)
    except (ValueError, KeyError, TypeError) as error:
        raise NotAnExport(f"the settings in its first line cannot be read: {error}") from None


def parse_document(line: bytes) -> Document:
    """Returns the document that a line of an export contains.

    A document of a type like PDF or HTML gets the type of plain text. The reason is that the export
    contains the text that was read from the file, not the file. Raises Unreadable if the line is
    not a document of an export.
    """
    try:
        value = json.loads(line)
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8 at byte {error.start:,}") from None
    except ValueError as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    if not isinstance(value, dict):
        raise Unreadable("it is not a JSON object")
    _check_fields(value)
    return Document(
        body=value["text"] if "text" in value else tuple(map(_parse_page, value["pages"])),
        document_id=value["id"],
        title=value.get("title", ""),
        source=value.get("source", ""),
        mime_type=_type_of_text(value.get("mime_type", "")),
        metadata=value.get("metadata", {}),
    )


def _type_of_text(mime_type: str) -> str:
    """Returns the MIME type of a text that was read from a file of type `mime_type`.

    If the indexer stores the file's content as the text, as for Markdown and source code, returns
    `mime_type`. Otherwise returns the type of plain text.
    """
    known = format_of(mime_type)
    is_file_content = known is not None and known.is_text and mime_type not in _READ_FROM_FILES
    return mime_type if is_file_content or not mime_type else PLAIN_TEXT


def _check_fields(value: Mapping[str, Any]) -> None:
    for name in value:
        if name not in _FIELDS:
            raise Unreadable(f"it has the field {name!r}; the fields are {', '.join(_FIELDS)}")
    for name in _TEXT_FIELDS:
        if not isinstance(value.get(name, ""), str):
            raise Unreadable(f"{name} is {type(value[name]).__name__}; it must be a text")
    if not value.get("id"):
        raise Unreadable("id is missing")
    if not isinstance(value.get("metadata", {}), dict):
        raise Unreadable("metadata is not a JSON object")
    if ("text" in value) == ("pages" in value):
        raise Unreadable("it must have either text or pages")
    if not isinstance(value.get("pages", []), list):
        raise Unreadable("pages is not a list")


def _parse_page(value: Any) -> Page:
    number = value.get("number", 0) if isinstance(value, dict) else None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise Unreadable(_NOT_A_PAGE)
    if not isinstance(value.get("text"), str):
        raise Unreadable(_NOT_A_PAGE)
    return Page(value["text"], number)
