"""Reads documents to ingest: files, standard input, and the lines of JSON Lines files.

A document is read when it is sent, so a folder may be larger than memory. If a document cannot be
read, reading it raises Unreadable; the other documents are not affected.

A file is sent as its bytes. The indexer detects the format and the encoding, so that a file gives
the same document whichever client sends it.

In a file of JSON Lines, each line is a document, written as a JSON object. One field of the object
is the text. `_id`, `id`, `document_id` or `doc_id` is the document id. `title`, `source` and
`mime_type` are the fields of the document with these names. Every other field becomes metadata.
"""

import codecs
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from hrag.values.documents import Document
from hrag.values.errors import InvalidArgument

# The highest allowed value of HRAG_MAX_DOCUMENT_BYTES: no service accepts a larger document.
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
STANDARD_INPUT = Path("-")
JSON_LINES_EXTENSIONS = (".jsonl", ".ndjson")
TEXT_FIELDS = ("text", "content", "body")
"""The fields of a line of JSON Lines that may contain its text. The first that exists is used."""

_ENCODING_HINT = "--encoding says which encoding it has"
_ID_FIELDS = ("_id", "id", "document_id", "doc_id")
_SHOWN_FIELDS = 10
# The first 4 bytes of a file of JSON Lines show whether the file is in UTF-16 or UTF-32. In these
# encodings, the first character of the file, "{", contains NUL bytes. UTF-32 needs the most bytes
# for a character: 4.
_CODE_UNIT_BYTES = 4


class Unreadable(Exception):
    """A document cannot be read from a file, from standard input or from a line of a file.

    The message says why.
    """


@dataclass(frozen=True, slots=True)
class InputDocument:
    """A document to ingest: its label in messages, its size, and a function that reads it.

    `read` raises Unreadable if the document cannot be read. `size_bytes` is 0 if the size is not
    known. If `may_be_skipped` is True and the indexer finds no text in the document, the document
    is skipped and does not fail. That holds for pictures in folders and archives, because most of
    them illustrate other documents.
    """

    label: str
    read: Callable[[], Document]
    size_bytes: int = 0
    may_be_skipped: bool = False


@dataclass(frozen=True, slots=True)
class GivenFields:
    """Values for fields of the documents to ingest, given by the user as options.

    They replace the values that are in the files. `encoding` is the encoding of the files.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    document_id: str = ""
    encoding: str = ""
    mime_type: str = ""
    keep_boilerplate: bool = False


def sendable(document: Document) -> Document:
    """Returns the document unchanged. Raises Unreadable if the client would refuse to send it."""
    # The module loads gRPC, which is slow, so it is imported only when a document is sent.
    from hrag.wire.common import document_message  # noqa: PLC0415

    try:
        document_message(document)
    except InvalidArgument as error:
        raise Unreadable(error.message) from None
    return document


def readable_path(path: Path) -> str:
    """Returns a path as a text that can be encoded as UTF-8, in the Unicode form NFC.

    File names may contain bytes that are not valid UTF-8. Each of these bytes is replaced by
    U+FFFD. Decomposed characters are composed.
    """
    text = os.fsencode(path).decode("utf-8", "replace")
    return unicodedata.normalize("NFC", text)


def read_document(path: Path, source: str, user_fields: GivenFields) -> Document:
    """Reads the file at `path` and returns it as a document.

    Raises Unreadable if the file is too large or cannot be read.
    """
    try:
        check_size(path.stat().st_size, MAX_DOCUMENT_BYTES)
        with path.open("rb") as file:
            body = _read_whole(file)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    return document_of(body, source, user_fields)


def document_of(body: bytes, source: str, user_fields: GivenFields) -> Document:
    """Returns the document with these bytes. The indexer detects its format and encoding."""
    return Document(
        body=body,
        document_id=user_fields.document_id,
        title=user_fields.title,
        source=source,
        mime_type=user_fields.mime_type,
        metadata=user_fields.metadata,
        encoding=user_fields.encoding,
        keep_boilerplate=user_fields.keep_boilerplate,
    )


def standard_input(user_fields: GivenFields) -> InputDocument:
    """Returns a document whose `read` reads standard input.

    If its content does not show its format, the extension at the end of the document id in
    `user_fields`, for example `.md`, determines the document's type.
    """
    return InputDocument("standard input", partial(_read_standard_input, user_fields))


def _read_standard_input(user_fields: GivenFields) -> Document:
    return document_of(_read_whole(sys.stdin.buffer), "", user_fields)


def _read_whole(file: BinaryIO) -> bytes:
    """Returns the content of a file or a pipe. Raises Unreadable if it is too large.

    The size of a pipe is not known before it is read, so the limit must be checked here.
    """
    body = file.read(MAX_DOCUMENT_BYTES + 1)
    check_size(len(body), MAX_DOCUMENT_BYTES)
    return body


def check_size(size: int, limit: int) -> None:
    """Raises Unreadable if a document of `size` bytes is larger than `limit`."""
    if size > limit:
        raise Unreadable(f"it has {size:,} bytes; at most {limit:,} are allowed")


class Line(NamedTuple):
    """A line of a file.

    `number` is the line number, from 1. `start` is the offset of the line's first byte, and `size`
    is the length of the line in bytes, including the line end. `content` contains the bytes of the
    line, but `lines_of` cuts it off after a maximum number of bytes.
    """

    number: int
    start: int
    size: int
    content: bytes


def lines_of(file: BinaryIO, limit: int) -> Iterator[Line]:
    """Yields the lines of `file` from its current position.

    The field `start` of a line is an offset from this position. The content of a line is cut off
    after `limit` + 1 bytes. Raises OSError if `file` cannot be read.
    """
    start = 0
    for number in count(1):
        content = part = file.readline(limit + 1)
        if not content:
            return
        size = len(content)
        while size > limit and part and not part.endswith(b"\n"):
            part = file.readline(limit)
            size += len(part)
        yield Line(number, start, size, content)
        start += size


def is_json_lines(path: Path) -> bool:
    """Returns True if the file's extension says that each line is a document."""
    return path.suffix.lower() in JSON_LINES_EXTENSIONS


def documents_of_lines(
    path: Path, name: str, source: str, user_fields: GivenFields, text_field: str
) -> Iterator[InputDocument]:
    """Yields a document for each line of a file of JSON Lines, except for blank lines.

    A line without an id gets the id `<name>:<number>`, with the line's number from 1. A line
    without a source gets `source`. `user_fields` are fields that the user gave as options; they
    replace the fields of a line. Raises OSError if the file cannot be read, and Unreadable if it is
    in UTF-16 or UTF-32.
    """
    lines = _JsonLines(path, name, source, user_fields, text_field)
    with path.open("rb") as file:
        _check_line_ends(file, user_fields.encoding)
        for number, start, size, content in lines_of(file, MAX_DOCUMENT_BYTES):
            if content.strip():
                read = partial(lines.read, number, start, size)
                yield InputDocument(f"{readable_path(path)}:{number}", read, size)


def _check_line_ends(file: BinaryIO, encoding: str) -> None:
    """Raises Unreadable if a line end in the file's encoding is not the single byte 0x0A.

    If `encoding` is empty, the first bytes of the file show whether it is in UTF-16 or UTF-32.
    """
    start = file.read(_CODE_UNIT_BYTES)
    file.seek(0)
    if encoding:
        has_wide_units = b"\n".decode(encoding, "replace") != "\n"
    else:
        has_wide_units = b"\0" in start or start.startswith(
            (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        )
    if has_wide_units:
        raise Unreadable(
            f"its lines cannot be found in {encoding or 'UTF-16 or UTF-32'}; "
            "store it in UTF-8, for example with: iconv -t UTF-8"
        )


@dataclass(frozen=True, slots=True)
class _JsonLines:
    """Reads documents from a file of JSON Lines. Each line is a document.

    `name` is the beginning of the id of a document whose line has no id. `source` is the source of
    a document whose line has no source. `user_fields` are fields that the user gave as options;
    they replace the fields of a line. `text_field` names the field with the text; if it is empty,
    the text is in the first field of TEXT_FIELDS that the line has.
    """

    path: Path
    name: str
    source: str
    user_fields: GivenFields
    text_field: str

    def read(self, number: int, start: int, size: int) -> Document:
        """Returns the document of line `number`, which has `size` bytes from the offset `start`.

        Raises Unreadable if the line cannot be read or is not a document.
        """
        from hrag.evaluation.question_corpus import document_id_of  # noqa: PLC0415

        fields = self._fields(start, size)
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
        source, mime_type = _pop_first(fields, "source"), _pop_first(fields, "mime_type")
        document = Document(
            body=text,
            document_id=self.user_fields.document_id or document_id_of(name),
            title=self.user_fields.title or title,
            source=source or self.source,
            mime_type=self.user_fields.mime_type or mime_type,
            metadata={**fields, **self.user_fields.metadata},
            keep_boilerplate=self.user_fields.keep_boilerplate,
        )
        return sendable(document)

    def _fields(self, start: int, size: int) -> dict[str, Any]:
        """Returns the fields of a line. Raises Unreadable."""
        check_size(size, MAX_DOCUMENT_BYTES)
        encoding = self.user_fields.encoding or "utf-8"
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                fields = json.loads(file.read(size).decode(encoding).removeprefix("\ufeff"))
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from error
        except UnicodeDecodeError as error:
            wrong = error.object[error.start]
            raise Unreadable(
                f"it is not {encoding}: byte 0x{wrong:02X} at offset {error.start:,}; "
                f"{_ENCODING_HINT}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"it is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise Unreadable('it is not a JSON object such as {"text": "..."}')
        return fields


def _pop_first(fields: dict[str, Any], *names: str) -> str:
    """Removes the first field of `names` that is a text or a whole number; returns it as text.

    Returns an empty text if none of these fields is a text or a whole number.
    """
    for name in names:
        if isinstance(fields.get(name), str) or type(fields.get(name)) is int:
            return str(fields.pop(name))
    return ""
