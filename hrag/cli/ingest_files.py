"""Finds the files of an ingest, names their documents, and says which files are skipped and why.

Links are followed, but the listing of a folder visits no folder twice: if the target of a link is
itself below the folder, the files of the target are listed under their real path. No file is used
twice, even if several folders contain it. Hidden files and folders are left out.

This module only lists the files; they are read when they are sent. For a file of JSON Lines, the
positions of all lines are listed, which takes about 0.5 KB of memory a line. The indexer finds the
titles in the documents, so that all clients get the same titles.
"""

import errno
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter
from pathlib import Path

from hrag.cli.input_documents import (
    JSON_LINES_EXTENSIONS,
    GivenFields,
    InputDocument,
    ReadDocument,
    Unreadable,
    documents_of_lines,
    is_json_lines,
    read_document,
    readable_path,
)
from hrag.values import formats
from hrag.values.ids import MAX_DOCUMENT_ID_BYTES

EXTENSIONS = (*formats.EXTENSIONS, *JSON_LINES_EXTENSIONS)
ROOT_KEY = "ingest_root"
"""The metadata key that names the folder of a document which was ingested with --prune."""

# The reasons why files are skipped. They are shown after a count, as in "2 of unknown format".
UNKNOWN_FORMAT = "of unknown format"
EMPTY = "empty"
DUPLICATE = "found under another name"
BROKEN_LINK = "links that lead nowhere"
SPECIAL = "no regular files"
NOT_SELECTED = "not selected"
"""The reason for files that --glob excludes. `FoundDocuments.skipped` does not contain them."""

_NO_TARGET_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NOT_ALLOWED_IN_ID = re.compile(r"[^A-Za-z0-9._:/-]")
_HASH_DIGITS = 8

_Identity = tuple[int, int]
"""The device and inode of a file or folder."""


@dataclass(frozen=True, slots=True)
class _FoundFile:
    """A file that was found.

    `relative` is the file's path inside the folder or, if the user named the file, only its name.
    `relative` is in Unicode form NFC.
    """

    path: Path
    relative: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was found in a folder and is not ingested, with the reason."""

    path: Path
    reason: str


@dataclass(slots=True)
class FoundDocuments:
    """The documents in the files and folders of an ingest, and the files that are skipped.

    The root of a folder is its absolute path, or the name given by `--root`. `present` contains for
    each root the document ids of all files in the folder. If `is_complete` is False, some files or
    folders could not be read, so `present` may lack ids.
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

    Each file is one document. Exception: in a file of JSON Lines, each line is a document.
    `text_field` names the field of a line that contains its text; if it is empty, the text is in
    the first field of TEXT_FIELDS that the line has. `user_fields` are fields that the user gave as
    options; they replace the fields in the files.

    `globs` are patterns for the files of folders; without patterns, the files with a known
    extension are used. The root of a folder is a text that identifies the folder's documents. If
    `root` is None, documents have no root. Otherwise the metadata of each document from a folder
    names its root: `root` itself or, if `root` is an empty text, the folder's absolute path. If
    `root` is a name, the folder may have a different path at each run, so the source of a document
    is the file's path inside the folder. Lines of JSON Lines belong to no root, because a line can
    have an id that is not derived from its file.

    This function raises no error for a path that does not exist, a file or folder that cannot be
    read, and a file whose document id belongs to an earlier file. For each of them, the result
    contains a document whose `read` raises Unreadable.
    """
    result = FoundDocuments()
    user_fields = user_fields or GivenFields()
    known_files: set[_Identity] = set()
    first_with_id: dict[str, Path] = {}
    for path in paths:
        if is_folder(path):
            listing = _list_folder(path, partial(_skip_reason, globs), known_files)
            result.skipped += listing.skipped
            result.documents += [_unreadable(bad, reason) for bad, reason in listing.problems]
            result.is_complete = result.is_complete and not listing.problems
            fields = user_fields
            if root is not None:
                name = root or _root_of(path)
                fields = replace(user_fields, metadata={**user_fields.metadata, ROOT_KEY: name})
                result.present.setdefault(name, set()).update(map(document_id, listing.present))
            files = listing.files
        else:
            files, fields = _find_file(path, known_files), user_fields
        for file in files:
            source = readable_path(Path(file.relative) if root else file.path)
            if is_json_lines(file.path):
                result.documents += _line_documents(file, source, user_fields, text_field)
            else:
                result.documents.append(_input_document(file, source, fields, first_with_id))
    return result


def _root_of(folder: Path) -> str:
    """Returns the default root of a folder: its absolute path.

    Symbolic links in the path are not replaced by their targets.
    """
    return readable_path(Path(os.path.abspath(folder)))  # noqa: PTH100  # Links stay as they are.


def _skip_reason(globs: Sequence[str], relative: str) -> str:
    """Returns the reason why a file is skipped because of its name, or an empty text.

    `relative` is the file's path inside the folder. With `globs`, only files that match one of
    these patterns are used. Otherwise only files with a known extension are used.
    """
    if globs:
        return "" if any(_matches(relative, pattern) for pattern in globs) else NOT_SELECTED
    return "" if relative.lower().endswith(EXTENSIONS) else UNKNOWN_FORMAT


def _matches(relative: str, pattern: str) -> bool:
    """Returns True if a pattern matches a file.

    `relative` is the file's path inside the folder. A pattern with "/" is compared with this path,
    any other pattern with the file's name. `**` between slashes stands for any number of folders,
    including none.
    """
    pattern = unicodedata.normalize("NFC", pattern)
    if "/" not in pattern:
        return fnmatchcase(relative.rpartition("/")[2], pattern)
    # Each part of the path gets a slash before and after it, and so does each part of the pattern.
    # `**` becomes `*` without slashes: `**/b` becomes `*/b/`, which matches the path `b`, written
    # as `/b/`, and the path `a/b`, written as `/a//b/`.
    parts = ("*" if part == "**" else f"/{part}/" for part in pattern.split("/"))
    return fnmatchcase("".join(f"/{part}/" for part in relative.split("/")), "".join(parts))


def is_folder(path: Path) -> bool:
    """Returns True if the path is a folder; False also if that cannot be determined."""
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _status(path: Path) -> os.stat_result | None:
    """Returns the status of a file or folder; None if the status cannot be read.

    The caller need not report the error, because reading the file later fails with the same error.
    """
    try:
        return path.stat()
    except OSError:
        return None


def _find_file(path: Path, known_files: set[_Identity]) -> list[_FoundFile]:
    """Returns a list with the file at a path that the user named.

    The list is empty if the file is in `known_files`, because it was found before. Otherwise the
    file is added to `known_files`.
    """
    status = _status(path)
    if status is not None and not _is_new(status, known_files):
        return []
    size = 0 if status is None else status.st_size
    return [_FoundFile(path, unicodedata.normalize("NFC", path.name), size)]


def _input_document(
    file: _FoundFile, source: str, user_fields: GivenFields, first_with_id: dict[str, Path]
) -> InputDocument:
    name = user_fields.document_id or document_id(file.relative)
    first = first_with_id.setdefault(name, file.path)
    if first != file.path:
        reason = f"its document id {name} belongs to {readable_path(first)} already"
        return _unreadable(file.path, reason, file.size_bytes)
    read = partial(read_document, file.path, source, replace(user_fields, document_id=name))
    return InputDocument(readable_path(file.path), read, file.size_bytes)


def _line_documents(
    file: _FoundFile, source: str, user_fields: GivenFields, text_field: str
) -> list[InputDocument]:
    name = document_id(file.relative)
    try:
        return list(documents_of_lines(file.path, name, source, user_fields, text_field))
    except OSError as error:
        return [_unreadable(file.path, error.strerror or str(error), file.size_bytes)]
    except Unreadable as error:
        return [_unreadable(file.path, str(error), file.size_bytes)]


def _unreadable(path: Path, reason: str, size_bytes: int = 0) -> InputDocument:
    return InputDocument(readable_path(path), partial(_refuse, reason), size_bytes)


def _refuse(reason: str) -> ReadDocument:
    raise Unreadable(reason)


def document_id(relative: str) -> str:
    """Returns the document id for a file: readable, valid, and different for different paths.

    `relative` is the file's path inside the folder. The id is this path, with ":" in place of "/".
    In three cases, the id is changed further and ends with a hash of the path: the path is too long
    for an id, the path does not begin with a letter or digit, or it contains ":" or another
    character that an id must not contain.
    """
    name = _NOT_ALLOWED_IN_ID.sub("_", relative)
    # At the end, "/" is replaced by ":". So without a hash, the file "a:b" would get the same id as
    # the file "b" in the folder "a".
    changed = name != relative or ":" in relative
    if not name[:1].isalnum():
        name, changed = f"file{name}", True
    if changed or len(name) > MAX_DOCUMENT_ID_BYTES:
        digest = hashlib.sha256(relative.encode("utf-8", "surrogateescape")).hexdigest()
        length = MAX_DOCUMENT_ID_BYTES - _HASH_DIGITS - 1
        name = f"{name[:length]}-{digest[:_HASH_DIGITS]}"
    return name.replace("/", ":")


@dataclass(slots=True)
class _FolderListing:
    """The files of a folder.

    `files` are to be ingested, and `skipped` are not. `present` contains the paths of all files
    inside the folder, also of skipped files and of files that are in the listing of an earlier
    folder. `problems` contains (path, reason) for each file or folder that could not be
    read.
    """

    files: list[_FoundFile] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    problems: list[tuple[Path, str]] = field(default_factory=list)


def _list_folder(
    folder: Path, skip_reason: Callable[[str], str], known_files: set[_Identity]
) -> _FolderListing:
    """Returns the files of a folder in sorted order.

    `skip_reason` is called with a file's path inside the folder. It returns the reason why the file
    is skipped, or an empty text. `known_files` contains the files that were found before, in this
    or another folder; these files are skipped. This function adds the new files to `known_files`.
    """
    listing = _FolderListing()
    visited: set[_Identity] = set()
    links = [folder]
    while links:
        next_links: list[Path] = []
        for link in links:
            for path in _files_below(link, next_links, visited, listing):
                _add_file(path, _relative_path(path, folder), skip_reason, known_files, listing)
        links = next_links
    listing.files.sort(key=lambda file: file.relative.split("/"))
    return listing


def _relative_path(path: Path, folder: Path) -> str:
    """Returns the path inside the folder, with "/" between its parts and in Unicode form NFC.

    So the same file has the same path on all operating systems.
    """
    return unicodedata.normalize("NFC", path.relative_to(folder).as_posix())


def _files_below(
    start: Path, links: list[Path], visited: set[_Identity], listing: _FolderListing
) -> Iterator[Path]:
    """Yields `start` if it is a file, otherwise the files in the folder `start` and its subfolders.

    Symbolic links inside the folder are not followed, but added to `links`. `visited` contains the
    folders that were listed before. These folders are not listed again; the others are added to
    `visited`. A folder that cannot be listed is added to `listing.problems`.
    """
    pending = [start]
    while pending:
        current = pending.pop()
        try:
            if not current.is_dir():
                yield current
                continue
            if not _is_new(current.stat(), visited):
                continue
            entries = [
                (current / entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False))
                for entry in sorted(os.scandir(current), key=attrgetter("name"))
                if not entry.name.startswith(".")
            ]
        except OSError as error:
            listing.problems.append((current, error.strerror or str(error)))
            continue
        folders = []
        for path, is_link, is_directory in entries:
            if is_link:
                links.append(path)
            elif is_directory:
                folders.append(path)
            else:
                yield path
        pending += reversed(folders)


def _add_file(
    path: Path,
    relative: str,
    skip_reason: Callable[[str], str],
    known_files: set[_Identity],
    listing: _FolderListing,
) -> None:
    listing.present.add(relative)
    try:
        status = path.stat()
    except OSError as error:
        if error.errno in _NO_TARGET_ERRORS and path.is_symlink():
            listing.skipped.append(SkippedFile(path, BROKEN_LINK))
        else:
            listing.problems.append((path, error.strerror or str(error)))
        return
    reason = skip_reason(relative)
    if not stat.S_ISREG(status.st_mode):
        reason = SPECIAL
    elif not reason and not _is_new(status, known_files):
        reason = DUPLICATE
    elif not reason and not status.st_size:
        reason = EMPTY
    if reason == NOT_SELECTED:
        return
    if reason:
        listing.skipped.append(SkippedFile(path, reason))
    else:
        listing.files.append(_FoundFile(path, relative, status.st_size))


def _is_new(status: os.stat_result, known: set[_Identity]) -> bool:
    """Returns True if `known` does not contain the file or folder with this status.

    In this case, also adds the file or folder to `known`.
    """
    identity = (status.st_dev, status.st_ino)
    if identity in known:
        return False
    known.add(identity)
    return True
