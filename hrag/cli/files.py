"""Finds the files that an ingest was pointed at, names them, and reads them.

Nothing is read until its turn comes, so a folder may be larger than memory. Whatever is
wrong with one file is that file's own problem, and the others go on.
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
MAX_FILE_BYTES = 256 * 1024 * 1024  # No service can be set to take more.
MAX_TITLE_BYTES = 1024

_MIME_TYPES = {".md": MARKDOWN, ".markdown": MARKDOWN, ".pdf": PDF}
_REPLACED = re.compile(r"[^A-Za-z0-9._:/-]")
_HASH_DIGITS = 8
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)[ \t]*(?:#+[ \t]*)?")
_UNDERLINE = re.compile(r" {0,3}=+[ \t]*")  # "---" may as well end a list, table or preamble.
_FENCE = re.compile(r" {0,3}(```|~~~)")


class Unreadable(Exception):
    """A file cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """Something to ingest: how it is shown, and how it is read, or Unreadable."""

    label: str
    read: Callable[[], Document]


def find(paths: Iterable[Path]) -> list[Source]:
    """Every file under `paths` once, folders in sorted order.

    A path that is missing, or whose document id another file has already, becomes a
    source whose reading raises Unreadable.
    """
    sources: list[Source] = []
    seen: set[Path] = set()
    labels: dict[str, str] = {}
    for path, relative in _walk_all(paths):
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        name = document_id(relative)
        first = labels.setdefault(name, str(path))
        read = partial(read_document, path, name)
        if first != str(path):
            read = partial(_refuse, f"its document id {name} is that of {first}")
        sources.append(Source(str(path), read))
    return sources


def _refuse(reason: str) -> Document:
    raise Unreadable(reason)


def _walk_all(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Files with the path that names them: inside their folder, or the file's name alone."""
    for path in paths:
        if not path.is_dir():
            yield path, path.name
            continue
        for file in _walk(path):
            yield file, file.relative_to(path).as_posix()


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name.lower().endswith(EXTENSIONS):
                yield Path(parent, name)


def document_id(relative: str) -> str:
    """The document id of a file: readable, allowed, and different for different paths.

    Folders are set apart by ":". A path that cannot be kept as it is carries a hash.
    """
    name = _REPLACED.sub("_", relative)
    changed = name != relative or ":" in relative  # a:b is not a/b.
    if not name[:1].isalnum():
        name, changed = f"file{name}", True
    if changed or len(name) > MAX_DOCUMENT_ID_BYTES:
        digest = hashlib.sha256(relative.encode("utf-8", "surrogateescape")).hexdigest()
        room = MAX_DOCUMENT_ID_BYTES - _HASH_DIGITS - 1
        name = f"{name[:room]}-{digest[:_HASH_DIGITS]}"
    return name.replace("/", ":")


def read_document(path: Path, name: str) -> Document:
    """The file as a document with id `name`, or Unreadable."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise Unreadable(f"it has {size:,} bytes; at most {MAX_FILE_BYTES:,} are allowed")
        body = path.read_bytes()
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    mime_type = _MIME_TYPES.get(path.suffix.lower(), PLAIN_TEXT)
    heading = first_heading(body.decode("utf-8", "replace")) if mime_type == MARKDOWN else ""
    return Document(
        body=body,
        document_id=name,
        title=_cut(heading or _utf8(path.name)),
        source=_utf8(str(path)),
        mime_type=mime_type,
    )


def first_heading(markdown: str) -> str:
    """The first heading's text; empty where there is none."""
    return next(headings(markdown), "")


def headings(markdown: str) -> Iterator[str]:
    """The headings of a Markdown text, in order, code blocks left out."""
    fence, before = "", ""
    for line in markdown.splitlines():
        above, before = before, ""
        marker = _FENCE.match(line)
        if marker and (not fence or marker[1] == fence):
            fence = "" if fence else marker[1]
        elif fence:
            continue
        elif heading := _HEADING.fullmatch(line):
            if heading[1]:
                yield heading[1]
        elif above and _UNDERLINE.fullmatch(line):
            yield above
        else:
            before = line.strip()


def _utf8(name: str) -> str:
    """A file's name as it can be sent: names may hold bytes that are no UTF-8."""
    return os.fsencode(name).decode("utf-8", "replace")


def _cut(title: str) -> str:
    return title.encode()[:MAX_TITLE_BYTES].decode("utf-8", "ignore")
