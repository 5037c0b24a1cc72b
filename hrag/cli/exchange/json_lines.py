"""The JSON Lines format of `hrag export`: a line for the collection, then one for each document.

The first line is `{"hrag_export": 1, "collection": ..., "settings": {...}}`. A document has `id`,
`title`, `source`, `mime_type`, `metadata` and either `text` or `pages`. `pages` is a list of
objects with `number` and `text`, so that citations name the same pages after an import.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hrag.cli.exchange.stored_documents import StoredDocument
from hrag.cli.ingest.input_document import Unreadable
from hrag.values.collections import NO_EMBEDDER, Collection, SettingsRequest, SummaryUnit
from hrag.values.documents import Document, Page
from hrag.values.formats import CSV, HTML, PLAIN_TEXT, TSV, format_of

VERSION = 1

_READ_FROM_FILES = (HTML, CSV, TSV)
_TEXTS = ("id", "title", "source", "mime_type", "text")
_FIELDS = (*_TEXTS, "metadata", "pages")


class NotAnExport(ValueError):
    """The first line is not the first line of an export that this version can read."""


def header_line(collection: Collection) -> str:
    """Returns the first line of an export."""
    settings = collection.settings
    return _line(
        {
            "hrag_export": VERSION,
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


def document_line(document: StoredDocument) -> str:
    """Returns the line for a document."""
    info = document.info
    body: dict[str, Any] = {"text": document.text}
    if document.pages:
        body = {"pages": [asdict(page) for page in document.pages]}
    return _line(
        {
            "id": info.document_id,
            "title": info.title,
            "source": info.source,
            "mime_type": info.mime_type,
            "metadata": info.metadata,
            **body,
        }
    )


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_header(line: bytes) -> SettingsRequest:
    """Returns the settings of the exported collection. Raises NotAnExport.

    The exported embedder is not used, because the importing indexer embeds the texts again: the
    settings leave the embedder to that indexer. A collection without vectors stays without them.
    """
    try:
        header = json.loads(line)
        version = header["hrag_export"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotAnExport('its first line is not {"hrag_export": 1, ...}') from None
    if version != VERSION:
        raise NotAnExport(f"it has format {version!r}; only format {VERSION} can be read")
    try:
        settings = dict(header["settings"])
        settings["embedder"] = NO_EMBEDDER if settings["embedder"] == NO_EMBEDDER else None
        settings["level_sizes"] = tuple(settings["level_sizes"])
        settings["summaries"] = SummaryUnit(settings["summaries"])
        return SettingsRequest(**settings)
    except (ValueError, KeyError, TypeError) as error:
        raise NotAnExport(f"the settings in its first line cannot be read: {error}") from None


def parse_document(line: bytes) -> Document:
    """Returns the document of a line. Raises Unreadable.

    Documents of types like PDF and HTML become plain text, because the export contains the text
    that was read from the file, not the file.
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
    _check(value)
    return Document(
        body=value["text"] if "text" in value else tuple(map(_page, value["pages"])),
        document_id=value["id"],
        title=value.get("title", ""),
        source=value.get("source", ""),
        mime_type=_type_of_text(value.get("mime_type", "")),
        metadata=value.get("metadata", {}),
    )


def _type_of_text(mime_type: str) -> str:
    """Returns the type of a text that was read from a file of type `mime_type`.

    If the stored text is the file's content, as for Markdown and source code, that is the file's
    type. Otherwise it is plain text.
    """
    known = format_of(mime_type)
    is_file_content = known is not None and known.is_text and mime_type not in _READ_FROM_FILES
    return mime_type if is_file_content or not mime_type else PLAIN_TEXT


def _check(value: Mapping[str, Any]) -> None:
    for name in value:
        if name not in _FIELDS:
            raise Unreadable(f"it has the field {name!r}; the fields are {', '.join(_FIELDS)}")
    for name in _TEXTS:
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


def _page(value: Any) -> Page:
    number = value.get("number", 0) if isinstance(value, dict) else None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise Unreadable("each page must be an object with a number from 0 and a text")
    if not isinstance(value.get("text"), str):
        raise Unreadable("each page must be an object with a number from 0 and a text")
    return Page(value["text"], number)
