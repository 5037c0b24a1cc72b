"""Finds, names and reads the files of an ingest.

A file is read when it is sent, so a folder may be larger than memory. For a file of JSON Lines,
the positions of all lines are listed first, which takes about 0.5 KB of memory a line. An error
in one file does not affect the others. The indexer finds the titles in the documents, so that
all clients get the same titles.
"""

import hashlib
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import BinaryIO

from hrag.cli.ingest import json_lines
from hrag.cli.ingest.encodings import decoded
from hrag.cli.ingest.folders import (
    NOT_SELECTED,
    UNKNOWN_FORMAT,
    FoundFile,
    Identity,
    SkippedFile,
    is_new,
    list_folder,
    readable_path,
)
from hrag.cli.ingest.input_document import GivenFields, InputDocument, ReadDocument, Unreadable
from hrag.values import formats
from hrag.values.documents import Document
from hrag.values.formats import PLAIN_TEXT, mime_type_of
from hrag.values.ids import MAX_DOCUMENT_ID_BYTES

# A service's limit cannot be set higher.
MAX_FILE_BYTES = 256 * 1024 * 1024
STANDARD_INPUT = Path("-")
ROOT_KEY = "ingest_root"
"""The metadata key that names the folder of a document which was ingested with --prune."""

EXTENSIONS = (*formats.EXTENSIONS, *json_lines.EXTENSIONS)
_FILE_MAGIC = (b"%PDF-", b"PK\x03\x04")
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._:/-]")
_HASH_DIGITS = 8


@dataclass(slots=True)
class FoundDocuments:
    """The documents that paths lead to, and the files that are skipped.

    `present` contains, by the root of each folder, the document ids of all files in the folder.
    If `is_complete` is False, some folders could not be listed, so ids may be missing.
    """

    documents: list[InputDocument] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    present: dict[str, set[str]] = field(default_factory=dict)
    is_complete: bool = True


def find(
    paths: Iterable[Path],
    globs: Sequence[str] = (),
    user_fields: GivenFields | None = None,
    root: str | None = None,
    text_field: str = "",
) -> FoundDocuments:
    """Returns the documents of all files under `paths`, each file once, folders in sorted order.

    A file is one document, but a file of JSON Lines is one document for each line. `text_field`
    names the field of a line that contains its text; if it is empty, the usual names apply.
    `user_fields` replace what the files say.

    `globs` are patterns for the files of folders; without patterns, the files with a known
    extension are used. With a `root`, the metadata of the documents of folders names it; an
    empty `root` means the folder's path. With any other `root` the folder may have another path
    at each run, so sources are paths inside the folder. Lines of JSON Lines belong to no root,
    because a line can have an id that is not derived from its file.

    Three kinds of problems become documents whose reading raises Unreadable: a path that does
    not exist, a folder that cannot be listed, and a file whose document id belongs to an earlier
    file.
    """
    result = FoundDocuments()
    user_fields = user_fields or GivenFields()
    known_files: set[Identity] = set()
    first_with_id: dict[str, Path] = {}
    for path in paths:
        if is_folder(path):
            listing = list_folder(path, partial(_skip_reason, globs), known_files)
            result.skipped += listing.skipped
            result.documents += [_unreadable(bad, reason) for bad, reason in listing.problems]
            result.is_complete = result.is_complete and not listing.problems
            fields = user_fields
            if root is not None:
                name = root or root_of(path)
                fields = replace(user_fields, metadata={**user_fields.metadata, ROOT_KEY: name})
                result.present.setdefault(name, set()).update(map(document_id, listing.present))
            files = listing.files
        else:
            files, fields = _find_file(path, known_files), user_fields
        for file in files:
            source = readable_path(Path(file.relative) if root else file.path)
            if json_lines.is_json_lines(file.path):
                result.documents += _lines(file, source, user_fields, text_field)
            else:
                result.documents.append(_input_document(file, source, fields, first_with_id))
    return result


def root_of(folder: Path) -> str:
    """Returns the default root of a folder: its absolute path, with links unresolved."""
    return readable_path(Path(os.path.abspath(folder)))  # noqa: PTH100  # Links stay as they are.


def _skip_reason(globs: Sequence[str], relative: str) -> str:
    """Returns why a file is skipped, an empty text if it is not."""
    if globs:
        return "" if any(_matches(relative, pattern) for pattern in globs) else NOT_SELECTED
    return "" if relative.lower().endswith(EXTENSIONS) else UNKNOWN_FORMAT


def _matches(relative: str, pattern: str) -> bool:
    """Returns True if a pattern matches a file.

    A pattern with "/" is compared with the path inside the folder, any other pattern with the
    file's name. The part ** stands for any number of folders, including none.
    """
    pattern = unicodedata.normalize("NFC", pattern)
    if "/" not in pattern:
        return fnmatchcase(relative.rpartition("/")[2], pattern)
    # Each part of the path is enclosed in two slashes. So if ** stands for no folders, no slash
    # remains that the pattern would have to match.
    parts = ("*" if part == "**" else f"/{part}/" for part in pattern.split("/"))
    return fnmatchcase("".join(f"/{part}/" for part in relative.split("/")), "".join(parts))


def is_folder(path: Path) -> bool:
    """Returns True if the path is a folder; False also if that cannot be determined."""
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _status(path: Path) -> os.stat_result | None:
    """Returns the file's status; None if it cannot be read.

    The reason is reported later, when the file is read.
    """
    try:
        return path.stat()
    except OSError:
        return None


def _find_file(path: Path, known_files: set[Identity]) -> list[FoundFile]:
    """Returns the file at a path that the user named; an empty list if it was found before."""
    status = _status(path)
    if status is not None and not is_new(status, known_files):
        return []
    size = 0 if status is None else status.st_size
    return [FoundFile(path, unicodedata.normalize("NFC", path.name), size)]


def _input_document(
    file: FoundFile, source: str, user_fields: GivenFields, first_with_id: dict[str, Path]
) -> InputDocument:
    name = user_fields.document_id or document_id(file.relative)
    first = first_with_id.setdefault(name, file.path)
    if first != file.path:
        reason = f"its document id {name} belongs to {readable_path(first)} already"
        return _unreadable(file.path, reason, file.size_bytes)
    read = partial(read_document, file.path, source, replace(user_fields, document_id=name))
    return InputDocument(readable_path(file.path), read, file.size_bytes)


def _lines(
    file: FoundFile, source: str, user_fields: GivenFields, text_field: str
) -> list[InputDocument]:
    name = document_id(file.relative)
    try:
        return list(json_lines.documents_in(file.path, name, source, user_fields, text_field))
    except OSError as error:
        return [_unreadable(file.path, error.strerror or str(error), file.size_bytes)]
    except Unreadable as error:
        return [_unreadable(file.path, str(error), file.size_bytes)]


def _unreadable(path: Path, reason: str, size_bytes: int = 0) -> InputDocument:
    return InputDocument(readable_path(path), partial(_refuse, reason), size_bytes)


def _refuse(reason: str) -> ReadDocument:
    raise Unreadable(reason)


def document_id(relative: str) -> str:
    """Returns the document id for a file: readable, valid, and unique for each path.

    ":" separates folders. If the path cannot be used unchanged, the id ends with a hash of it.
    """
    name = _NOT_ALLOWED.sub("_", relative)
    # The file "a:b" must not get the same id as the file "b" in the folder "a".
    changed = name != relative or ":" in relative
    if not name[:1].isalnum():
        name, changed = f"file{name}", True
    if changed or len(name) > MAX_DOCUMENT_ID_BYTES:
        digest = hashlib.sha256(relative.encode("utf-8", "surrogateescape")).hexdigest()
        length = MAX_DOCUMENT_ID_BYTES - _HASH_DIGITS - 1
        name = f"{name[:length]}-{digest[:_HASH_DIGITS]}"
    return name.replace("/", ":")


def read_document(path: Path, source: str, user_fields: GivenFields) -> ReadDocument:
    """Returns the file as a document. Raises Unreadable."""
    try:
        _check_size(path.stat().st_size)
        with path.open("rb") as file:
            body = _read_whole(file)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    return _as_document(body, source, mime_type_of(path.name), user_fields)


def standard_input(user_fields: GivenFields) -> InputDocument:
    """Returns the document on standard input; the ending of its id determines its type."""
    return InputDocument("standard input", partial(_read_standard_input, user_fields))


def _read_standard_input(user_fields: GivenFields) -> ReadDocument:
    body = _read_whole(sys.stdin.buffer)
    return _as_document(body, "", mime_type_of(user_fields.document_id), user_fields)


def _read_whole(file: BinaryIO) -> bytes:
    """Returns the content of a file or a pipe. Raises Unreadable if it is too large.

    The limit is checked here too, because the size of a pipe is not known before it is read.
    """
    body = file.read(MAX_FILE_BYTES + 1)
    _check_size(len(body))
    return body


def _check_size(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise Unreadable(f"it has {size:,} bytes; at most {MAX_FILE_BYTES:,} are allowed")


def _as_document(
    body: bytes, source: str, mime_type: str, user_fields: GivenFields
) -> ReadDocument:
    encoding = ""
    if not mime_type and not body.startswith(_FILE_MAGIC):
        mime_type = PLAIN_TEXT
    known = formats.format_of(mime_type)
    # An HTML file declares its encoding itself.
    if known is not None and known.is_text and mime_type != formats.HTML:
        body, encoding = decoded(body, user_fields.encoding)
    document = Document(
        body=body,
        document_id=user_fields.document_id,
        title=user_fields.title,
        source=source,
        mime_type=mime_type,
        metadata=user_fields.metadata,
    )
    return ReadDocument(document, encoding)
