"""The files that an ingest was given: finding, naming and reading them.

A file is read when it is sent, so a folder may be larger than memory. An error in one file
does not affect the others. Titles are left to the indexer, which reads them from the
documents for every client alike.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hrag.ids import MAX_DOCUMENT_ID_BYTES
from hrag.types import MARKDOWN, PDF, PLAIN_TEXT, Document

EXTENSIONS = (".txt", ".md", ".markdown", ".rst", ".pdf", ".text")
MAX_FILE_BYTES = 256 * 1024 * 1024  # The highest limit that a service can be set to.

_MIME_TYPES = {".md": MARKDOWN, ".markdown": MARKDOWN, ".pdf": PDF}
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._:/-]")
_HASH_DIGITS = 8


class Unreadable(Exception):
    """A file cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class InputDocument:
    """A document to ingest: the label shown for it, and a function that reads it.

    `read` raises Unreadable.
    """

    label: str
    read: Callable[[], Document]


def find(paths: Iterable[Path]) -> list[InputDocument]:
    """Returns every file under `paths` once, folders in sorted order.

    A path that does not exist, or whose document id belongs to an earlier file, is returned
    as well; reading it raises Unreadable.
    """
    found: list[InputDocument] = []
    seen: set[Path] = set()
    first_with_id: dict[str, str] = {}
    for path, relative in _walk_all(paths):
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        name = document_id(relative)
        first = first_with_id.setdefault(name, str(path))
        read = partial(read_document, path, name)
        if first != str(path):
            read = partial(_refuse, f"its document id {name} is that of {first}")
        found.append(InputDocument(str(path), read))
    return found


def _refuse(reason: str) -> Document:
    raise Unreadable(reason)


def _walk_all(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Files, each with the path that names it: relative to its folder, or its name alone."""
    for path in paths:
        if not path.is_dir():
            yield path, path.name
            continue
        for file in _walk(path):
            yield file, file.relative_to(path).as_posix()


def _walk(folder: Path) -> Iterator[Path]:
    """Files with a known extension; hidden files and folders are left out."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name.lower().endswith(EXTENSIONS):
                yield Path(parent, name)


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


def read_document(path: Path, name: str) -> Document:
    """Returns the file as a document with the id `name`. Raises Unreadable."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise Unreadable(f"it has {size:,} bytes; at most {MAX_FILE_BYTES:,} are allowed")
        body = path.read_bytes()
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    return Document(
        body=body,
        document_id=name,
        source=_utf8(str(path)),
        mime_type=_MIME_TYPES.get(path.suffix.lower(), PLAIN_TEXT),
    )


def _utf8(path: str) -> str:
    """A path as valid UTF-8: file names may hold any bytes."""
    return os.fsencode(path).decode("utf-8", "replace")
