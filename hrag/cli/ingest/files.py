"""The files that an ingest was given: finding, naming and reading them.

A file is read when it is sent, so a folder may be larger than memory; of JSON Lines, the places
of all lines are listed first, about 0.5 KB a line. An error in one file does not affect the
others. Titles are left to the indexer, which reads them from the documents for every client
alike.
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

MAX_FILE_BYTES = 256 * 1024 * 1024  # The highest limit that a service can be set to.
STANDARD_INPUT = Path("-")
ROOT_KEY = "ingest_root"
"""Of the metadata of documents ingested with --prune: the folder that they belong to."""

EXTENSIONS = (*formats.EXTENSIONS, *json_lines.EXTENSIONS)
_FILE_MAGIC = (b"%PDF-", b"PK\x03\x04")
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._:/-]")
_HASH_DIGITS = 8


@dataclass(slots=True)
class FoundDocuments:
    """What paths lead to: documents, and files that are skipped.

    `present` holds, for the root of each folder, the document ids of all files in it; it has
    all of them if `is_complete`.
    """

    documents: list[InputDocument] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    present: dict[str, set[str]] = field(default_factory=dict)
    is_complete: bool = True


def find(
    paths: Iterable[Path],
    globs: Sequence[str] = (),
    given: GivenFields | None = None,
    root: str | None = None,
    text_field: str = "",
) -> FoundDocuments:
    """Returns every file under `paths` once, each folder in sorted order; of JSON Lines, its lines.

    `text_field` names the field of a line that is its text; empty for the usual names. Lines
    belong to no root: their ids are their own.
    `globs` select files of folders; without any, those whose extension is known are taken. With
    a `root`, documents of folders carry it in their metadata; an empty one stands for the
    folder's own path. Under any other, which may lie elsewhere at each run, sources are paths
    inside the folder. A path that does not exist or cannot be listed, and a file whose document
    id belongs to an earlier file, is returned as well; reading it raises Unreadable.
    """
    found = FoundDocuments()
    given = given or GivenFields()
    seen: set[Identity] = set()
    first_with_id: dict[str, Path] = {}
    for path in paths:
        if is_folder(path):
            listing = list_folder(path, partial(_why_skipped, globs), seen)
            found.skipped += listing.skipped
            found.documents += [_unreadable(place, why) for place, why in listing.problems]
            found.is_complete = found.is_complete and not listing.problems
            fields = given
            if root is not None:
                name = root or root_of(path)
                fields = replace(given, metadata={**given.metadata, ROOT_KEY: name})
                found.present.setdefault(name, set()).update(map(document_id, listing.present))
            files = listing.files
        else:
            files, fields = _named(path, seen), given
        for each in files:
            source = readable_path(Path(each.relative) if root else each.path)
            if json_lines.is_json_lines(each.path):
                found.documents += _lines(each, source, given, text_field)
            else:
                found.documents.append(_input_document(each, source, fields, first_with_id))
    return found


def root_of(folder: Path) -> str:
    """Returns the name of a folder whose documents can be pruned: its absolute path."""
    return readable_path(Path(os.path.abspath(folder)))  # noqa: PTH100  # Links stay as they are.


def _why_skipped(globs: Sequence[str], relative: str) -> str:
    if globs:
        return "" if any(_matches(relative, each) for each in globs) else NOT_SELECTED
    return "" if relative.lower().endswith(EXTENSIONS) else UNKNOWN_FORMAT


def _matches(relative: str, pattern: str) -> bool:
    """Whether a pattern matches the path inside the folder or, without "/", the file's name.

    A part that is ** stands for any number of folders, for none too.
    """
    pattern = unicodedata.normalize("NFC", pattern)
    if "/" not in pattern:
        return fnmatchcase(relative.rpartition("/")[2], pattern)
    # Each part has slashes of its own around it, so that none are left over where ** is none.
    parts = ("*" if part == "**" else f"/{part}/" for part in pattern.split("/"))
    return fnmatchcase("".join(f"/{part}/" for part in relative.split("/")), "".join(parts))


def is_folder(path: Path) -> bool:
    """Returns whether the path is a folder; False if that cannot be found out."""
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _status(path: Path) -> os.stat_result | None:
    """None if there is no such file, or no way to it: reading it says why."""
    try:
        return path.stat()
    except OSError:
        return None


def _named(path: Path, seen: set[Identity]) -> list[FoundFile]:
    """A file that was given by its name, unless it was found before."""
    status = _status(path)
    if status is not None and not is_new(status, seen):
        return []
    size = 0 if status is None else status.st_size
    return [FoundFile(path, unicodedata.normalize("NFC", path.name), size)]


def _input_document(
    file: FoundFile, source: str, given: GivenFields, first_with_id: dict[str, Path]
) -> InputDocument:
    name = given.document_id or document_id(file.relative)
    first = first_with_id.setdefault(name, file.path)
    if first != file.path:
        reason = f"its document id {name} is that of {readable_path(first)}"
        return _unreadable(file.path, reason, file.size_bytes)
    read = partial(read_document, file.path, source, replace(given, document_id=name))
    return InputDocument(readable_path(file.path), read, file.size_bytes)


def _lines(
    file: FoundFile, source: str, given: GivenFields, text_field: str
) -> list[InputDocument]:
    name = document_id(file.relative)
    try:
        return list(json_lines.documents_in(file.path, name, source, given, text_field))
    except OSError as error:
        return [_unreadable(file.path, error.strerror or str(error), file.size_bytes)]
    except Unreadable as error:
        return [_unreadable(file.path, str(error), file.size_bytes)]


def _unreadable(path: Path, reason: str, size_bytes: int = 0) -> InputDocument:
    return InputDocument(readable_path(path), partial(_refuse, reason), size_bytes)


def _refuse(reason: str) -> ReadDocument:
    raise Unreadable(reason)


def document_id(relative: str) -> str:
    """Returns the document id of a file: readable, valid, and unique for each path.

    ":" separates folders. A path that cannot be kept unchanged gets a hash as suffix.
    """
    name = _NOT_ALLOWED.sub("_", relative)
    changed = name != relative or ":" in relative  # a:b is not a/b.
    if not name[:1].isalnum():
        name, changed = f"file{name}", True
    if changed or len(name) > MAX_DOCUMENT_ID_BYTES:
        digest = hashlib.sha256(relative.encode("utf-8", "surrogateescape")).hexdigest()
        length = MAX_DOCUMENT_ID_BYTES - _HASH_DIGITS - 1
        name = f"{name[:length]}-{digest[:_HASH_DIGITS]}"
    return name.replace("/", ":")


def read_document(path: Path, source: str, given: GivenFields) -> ReadDocument:
    """Returns the file as a document. Raises Unreadable."""
    try:
        _check_size(path.stat().st_size)
        with path.open("rb") as file:
            body = _whole(file)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    return _as_document(body, source, mime_type_of(path.name), given)


def standard_input(given: GivenFields) -> InputDocument:
    """Returns the document that standard input holds; its type follows from its id's ending."""
    return InputDocument("standard input", partial(_read_standard_input, given))


def _read_standard_input(given: GivenFields) -> ReadDocument:
    return _as_document(_whole(sys.stdin.buffer), "", mime_type_of(given.document_id), given)


def _whole(file: BinaryIO) -> bytes:
    """The content of a file or a pipe, however long that says it is. Raises Unreadable."""
    body = file.read(MAX_FILE_BYTES + 1)
    _check_size(len(body))
    return body


def _check_size(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise Unreadable(f"it has {size:,} bytes; at most {MAX_FILE_BYTES:,} are allowed")


def _as_document(body: bytes, source: str, mime_type: str, given: GivenFields) -> ReadDocument:
    encoding = ""
    if not mime_type and not body.startswith(_FILE_MAGIC):
        mime_type = PLAIN_TEXT
    known = formats.format_of(mime_type)
    if known is not None and known.is_text and mime_type != formats.HTML:  # It declares its own.
        body, encoding = decoded(body, given.encoding)
    document = Document(
        body=body,
        document_id=given.document_id,
        title=given.title,
        source=source,
        mime_type=mime_type,
        metadata=given.metadata,
    )
    return ReadDocument(document, encoding)
