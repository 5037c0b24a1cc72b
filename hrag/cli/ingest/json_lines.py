"""Files of JSON Lines: each line is a document, one of its fields the text.

A line is an object. `title`, `source` and `mime_type` are the document's own, `_id` or `id` is
its id, and every other field becomes metadata. A line is read when it is sent, and an error in
one does not affect the others.
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
MAX_LINE_BYTES = 256 * 1024 * 1024  # The highest limit that a service can be set to.

_ID_FIELDS = ("_id", "id", "document_id", "doc_id")
_SHOWN_FIELDS = 10
_CODE_UNIT_BYTES = 4  # Of UTF-32. Two of them, and one of UTF-16, are NUL in "{".


def is_json_lines(path: Path) -> bool:
    """Whether a file's extension says that each line is a document."""
    return path.suffix.lower() in EXTENSIONS


def documents_in(
    path: Path, name: str, source: str, given: GivenFields, text_field: str
) -> Iterator[InputDocument]:
    """The lines of a file that are not blank. Raises OSError, and Unreadable for UTF-16 and -32.

    A line without an id of its own has `name` and its number, which counts from 1, and one
    without a source has `source`. What the user gave replaces what the line says.
    """
    lines = _Lines(path, name, source, given, text_field)
    with path.open("rb") as file:
        _check_line_ends(file, given.encoding)
        for number, start, size, content in lines_of(file, MAX_LINE_BYTES):
            if content.strip():
                read = partial(lines.read, number, start, size)
                yield InputDocument(f"{readable_path(path)}:{number}", read, size)


def _check_line_ends(file: BinaryIO, encoding: str) -> None:
    """Raises Unreadable if the byte of a line feed does not end the lines of a file."""
    begin = file.read(_CODE_UNIT_BYTES)
    file.seek(0)
    if encoding:
        has_wide_units = b"\n".decode(encoding, "replace") != "\n"
    else:
        has_wide_units = b"\0" in begin or begin.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
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
    given: GivenFields
    text_field: str

    def read(self, number: int, start: int, size: int) -> ReadDocument:
        """Returns the document of a line. Raises Unreadable."""
        from hrag.evaluation.question_corpus import document_id_of  # noqa: PLC0415

        fields, encoding = self._fields(start, size)
        wanted = (self.text_field,) if self.text_field else TEXT_FIELDS
        text = _taken(fields, *wanted)
        if not text.strip():
            raise Unreadable(
                f"it has no text in {' or '.join(wanted)}; its fields are "
                f"{', '.join(list(fields)[:_SHOWN_FIELDS])} (--text-field names the one to take)"
            )
        own_id, own_title = _taken(fields, *_ID_FIELDS), _taken(fields, "title")
        document = Document(
            body=text,
            document_id=self.given.document_id or document_id_of(own_id or f"{self.name}:{number}"),
            title=self.given.title or own_title,
            source=_taken(fields, "source") or self.source,
            mime_type=_taken(fields, "mime_type"),
            metadata={**fields, **self.given.metadata},
        )
        return ReadDocument(sendable(document), encoding)

    def _fields(self, start: int, size: int) -> tuple[dict[str, Any], str]:
        """The fields of a line, and the encoding it had if that was not UTF-8."""
        if size > MAX_LINE_BYTES:
            raise Unreadable(f"it has {size:,} bytes; at most {MAX_LINE_BYTES:,} are allowed")
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                content, encoding = decoded(file.read(size), self.given.encoding)
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
