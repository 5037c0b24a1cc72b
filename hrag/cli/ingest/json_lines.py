"""Files of JSON Lines: each line is a document, one of its fields the text.

A line is an object. `title`, `source` and `mime_type` are the document's own, `_id` or `id` is
its id, and every other field becomes metadata. A line is read when it is sent, and an error in
one does not affect the others.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hrag.cli.ingest.encodings import decoded
from hrag.cli.ingest.input_document import (
    GivenFields,
    InputDocument,
    ReadDocument,
    Unreadable,
    sendable,
)
from hrag.types import Document

EXTENSIONS = (".jsonl", ".ndjson")
TEXT_FIELDS = ("text", "content", "body")
MAX_LINE_BYTES = 256 * 1024 * 1024  # The highest limit that a service can be set to.

_ID_FIELDS = ("_id", "id", "document_id", "doc_id")
_SHOWN_FIELDS = 10


class _Line(NamedTuple):
    """Where a line lies in its file."""

    path: Path
    number: int
    start: int
    size: int


def is_json_lines(path: Path) -> bool:
    """Whether a file's extension says that each line is a document."""
    return path.suffix.lower() in EXTENSIONS


def documents_in(
    path: Path, name: str, source: str, given: GivenFields, text_field: str
) -> Iterator[InputDocument]:
    """The lines of a file that are not blank. Raises OSError.

    A line without an id of its own has `name` and its number, which counts from 1. What the
    user gave replaces what the line says.
    """
    for line in _lines(path):
        default = Document("", f"{name}:{line.number}", source=source)
        read = partial(_read, line, default, given, text_field)
        yield InputDocument(f"{path}:{line.number}", read, line.size)


def _lines(path: Path) -> Iterator[_Line]:
    start = 0
    with path.open("rb") as file:
        lines = iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")
        for number, content in enumerate(lines, start=1):
            if content.strip():
                yield _Line(path, number, start, len(content))
            start += len(content)


def _read(line: _Line, default: Document, given: GivenFields, text_field: str) -> ReadDocument:
    """The document of a line. Raises Unreadable."""
    from hrag.evaluation.corpus import document_id_of  # noqa: PLC0415

    fields, encoding = _fields(line, given.encoding)
    wanted = (text_field,) if text_field else TEXT_FIELDS
    text = _taken(fields, *wanted)
    if not text.strip():
        raise Unreadable(
            f"it has no text in {' or '.join(wanted)}; its fields are "
            f"{', '.join(list(fields)[:_SHOWN_FIELDS])} (--text-field names the one to take)"
        )
    own_id, own_title = _taken(fields, *_ID_FIELDS), _taken(fields, "title")
    document = Document(
        body=text,
        document_id=given.document_id or document_id_of(own_id or default.document_id),
        title=given.title or own_title,
        source=_taken(fields, "source") or default.source,
        mime_type=_taken(fields, "mime_type"),
        metadata={**fields, **given.metadata},
    )
    return ReadDocument(sendable(document), encoding)


def _fields(line: _Line, encoding: str) -> tuple[dict[str, Any], str]:
    """The fields of a line, and the encoding it had if that was not UTF-8."""
    if line.size > MAX_LINE_BYTES:
        raise Unreadable(f"it has {line.size:,} bytes; at most {MAX_LINE_BYTES:,} are allowed")
    try:
        with line.path.open("rb") as file:
            file.seek(line.start)
            content, encoding = decoded(file.read(line.size), encoding)
        fields = json.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Unreadable('it is no JSON object, such as {"text": "..."}')
    return fields, encoding


def _taken(fields: dict[str, Any], *names: str) -> str:
    """Removes and returns the first of the fields that holds a text or a whole number."""
    for name in names:
        if isinstance(fields.get(name), str) or type(fields.get(name)) is int:
            return str(fields.pop(name))
    return ""
