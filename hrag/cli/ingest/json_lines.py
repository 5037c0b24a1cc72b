"""Reads files of JSON Lines in which each line is a document.

A line is a JSON object. One of its fields is the text, `_id` or `id` is the document id, and
`title`, `source` and `mime_type` are the fields of the document with these names. Every other
field becomes metadata. A line is read when it is sent, and an error in one line does not affect
the others.
"""

import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from hrag.cli.ingest.encodings import decoded
from hrag.cli.ingest.folders import readable_path
from hrag.cli.ingest.input_document import (
    GivenFields,
    InputDocument,
    ReadDocument,
    Unreadable,
    sendable,
)
from hrag.cli.ingest.lines import lines_of
from hrag.values.documents import Document

EXTENSIONS = (".jsonl", ".ndjson")
TEXT_FIELDS = ("text", "content", "body")
# A service's limit cannot be set higher.
MAX_LINE_BYTES = 256 * 1024 * 1024

_ID_FIELDS = ("_id", "id", "document_id", "doc_id")
_SHOWN_FIELDS = 10
# The first 4 bytes of a file show its encoding: the character "{" contains NUL bytes in UTF-16
# and in UTF-32, whose code units have 4 bytes.
_CODE_UNIT_BYTES = 4


def is_json_lines(path: Path) -> bool:
    """Returns True if the file's extension says that each line is a document."""
    return path.suffix.lower() in EXTENSIONS


def documents_in(
    path: Path, name: str, source: str, user_fields: GivenFields, text_field: str
) -> Iterator[InputDocument]:
    """Yields a document for each line of a file that is not blank.

    A line without an id gets the id `<name>:<number>`, with the line's number from 1. A line
    without a source gets `source`. `user_fields` replace what the line says. Raises OSError, and
    Unreadable if the file is in UTF-16 or UTF-32.
    """
    lines = _Lines(path, name, source, user_fields, text_field)
    with path.open("rb") as file:
        _check_line_ends(file, user_fields.encoding)
        for number, start, size, content in lines_of(file, MAX_LINE_BYTES):
            if content.strip():
                read = partial(lines.read, number, start, size)
                yield InputDocument(f"{readable_path(path)}:{number}", read, size)


def _check_line_ends(file: BinaryIO, encoding: str) -> None:
    """Raises Unreadable if the lines of a file do not end with the single byte 0x0A."""
    start = file.read(_CODE_UNIT_BYTES)
    file.seek(0)
    if encoding:
        has_wide_units = b"\n".decode(encoding, "replace") != "\n"
    else:
        has_wide_units = b"\0" in start or start.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    if has_wide_units:
        raise Unreadable(
            f"its lines cannot be found in {encoding or 'UTF-16 or UTF-32'}; "
            "store it in UTF-8, for example with: iconv -t UTF-8"
        )


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of one file as documents."""

    path: Path
    name: str
    source: str
    user_fields: GivenFields
    text_field: str

    def read(self, number: int, start: int, size: int) -> ReadDocument:
        """Returns the document of a line. Raises Unreadable."""
        from hrag.evaluation.question_corpus import document_id_of  # noqa: PLC0415

        fields, encoding = self._fields(start, size)
        text_fields = (self.text_field,) if self.text_field else TEXT_FIELDS
        text = _pop_first(fields, *text_fields)
        if not text.strip():
            raise Unreadable(
                f"it has no text in {' or '.join(text_fields)}; its fields are "
                f"{', '.join(list(fields)[:_SHOWN_FIELDS])} (--text-field names the field with "
                "the text)"
            )
        name = _pop_first(fields, *_ID_FIELDS) or f"{self.name}:{number}"
        title = _pop_first(fields, "title")
        document = Document(
            body=text,
            document_id=self.user_fields.document_id or document_id_of(name),
            title=self.user_fields.title or title,
            source=_pop_first(fields, "source") or self.source,
            mime_type=_pop_first(fields, "mime_type"),
            metadata={**fields, **self.user_fields.metadata},
        )
        return ReadDocument(sendable(document), encoding)

    def _fields(self, start: int, size: int) -> tuple[dict[str, Any], str]:
        """Returns the fields of a line, and the encoding of the line if it was not UTF-8."""
        if size > MAX_LINE_BYTES:
            raise Unreadable(f"it has {size:,} bytes; at most {MAX_LINE_BYTES:,} are allowed")
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                content, encoding = decoded(file.read(size), self.user_fields.encoding)
            fields = json.loads(content.decode("utf-8-sig"))
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from error
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"it is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise Unreadable('it is not a JSON object such as {"text": "..."}')
        return fields, encoding


def _pop_first(fields: dict[str, Any], *names: str) -> str:
    """Removes and returns the first of the named fields that is a text or a whole number.

    Returns an empty text if there is none.
    """
    for name in names:
        if isinstance(fields.get(name), str) or type(fields.get(name)) is int:
            return str(fields.pop(name))
    return ""
