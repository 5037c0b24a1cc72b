"""Finds the files of an ingest, names their documents, and says which files are skipped and why.

Links are followed, but the listing of a folder visits no folder twice: if the target of a link is
itself below the folder, the files of the target are listed under their real path. No file is used
twice, even if several folders contain it. Hidden files and folders are left out.

This module only lists the files; they are read when they are sent. An archive is listed like a
folder: each file in it is a document, whose path begins with the path of the archive. For a file of
JSON Lines, the positions of all lines are listed, which takes about 0.5 KB of memory a line. The
indexer detects formats and finds the titles in the documents, so that all clients get the same
documents.
"""

import errno
import hashlib
import os
import re
import stat
import unicodedata
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter
from pathlib import Path

from hrag.cli.archives import ESCAPES, Member, begins_like_archive, is_archive_name, list_archive
from hrag.cli.input_documents import (
    GivenFields,
    InputDocument,
    Unreadable,
    document_of,
    documents_of_lines,
    is_json_lines,
    read_document,
    readable_path,
)
from hrag.cli.terminal import ExitCode, Failure
from hrag.values import formats
from hrag.values.documents import ROOT_KEY, Document
from hrag.values.ids import MAX_DOCUMENT_ID_BYTES

EXTENSIONS = formats.EXTENSIONS
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLD_EXTENSIONS = (".doc", ".dot", ".ppt", ".pps")

# Only files of at most this many bytes are opened to see whether they are blank. Blank files have a
# few line ends.
_MAX_BLANK_BYTES = 1_024

# The reasons why files are skipped. They are shown after a count, as in "2 of unknown format".
UNKNOWN_FORMAT = "of unknown format"
OLD_FORMAT = "of an old Office format"
EMPTY = "empty"  # The file has no bytes, or only white space.
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
    `relative` is in Unicode form NFC. `is_named` is True if the user named the file. `is_archive`
    is True if its name, or if the user named the file also its content, is that of an archive.
    """

    path: Path
    relative: str
    size_bytes: int
    is_archive: bool = False
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was found in a folder and is not ingested, with the reason.

    `advice` says what the user can do about it; it may be empty.
    """

    path: Path
    reason: str
    advice: str = ""


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

    The files in an archive are chosen like the files in a folder.

    This function raises no error for a path that does not exist, a file, folder or archive that
    cannot be read, and a file whose document id belongs to an earlier file. For each of them, the
    result contains a document whose `read` raises Unreadable.
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
            fields, present = user_fields, None
            if root is not None:
                name = root or _root_of(path)
                fields = replace(user_fields, metadata={**user_fields.metadata, ROOT_KEY: name})
                present = result.present.setdefault(name, set())
                present.update(map(document_id, listing.present))
            files = listing.files
        else:
            files, fields, present = _find_file(path, known_files), user_fields, None
        for file in files:
            source = readable_path(Path(file.relative) if root else file.path)
            # A file whose format the user names is opened only if it is an archive in fact.
            if file.is_archive and (not fields.mime_type or begins_like_archive(file.path)):
                archive = _FoundArchive(file, source, fields, partial(_skip_reason, globs))
                is_document = not archive.add_to(result, present, first_with_id)
            else:
                is_document = True
            if is_document and is_json_lines(file.path):
                result.documents += _line_documents(file, source, user_fields, text_field)
            elif is_document:
                result.documents.append(_input_document(file, source, fields, first_with_id))
    return result


def require_readable(paths: Iterable[Path]) -> None:
    """Raises Failure if one of the files and folders does not exist or may not be read."""
    for path in paths:
        if problem := unreadable_reason(path):
            raise Failure(f"{path}: {problem}", ExitCode.USAGE)


def unreadable_reason(path: Path) -> str:
    """Returns why a file or folder cannot be opened, or an empty text. Opens no pipe."""
    try:
        if is_folder(path):
            os.scandir(path).close()
        elif stat.S_ISREG(path.stat().st_mode):
            path.open("rb").close()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


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
    return _unknown_reason(relative)


def _unknown_reason(relative: str) -> str:
    """Returns why a file's extension is not the extension of a known format, or an empty text."""
    if relative.lower().endswith(_OLD_EXTENSIONS):
        return OLD_FORMAT
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
    is_archive = is_archive_name(path.name)
    if not is_archive and not path.name.lower().endswith(EXTENSIONS):
        is_archive = begins_like_archive(path)
    relative = unicodedata.normalize("NFC", path.name)
    return [_FoundFile(path, relative, size, is_archive, is_named=True)]


def _input_document(
    file: _FoundFile, source: str, user_fields: GivenFields, first_with_id: dict[str, Path]
) -> InputDocument:
    name = user_fields.document_id or document_id(file.relative)
    first = first_with_id.setdefault(name, file.path)
    if first != file.path:
        reason = f"its document id {name} belongs to {readable_path(first)} already"
        return _unreadable(file.path, reason, file.size_bytes)
    read = partial(read_document, file.path, source, replace(user_fields, document_id=name))
    may_be_skipped = not file.is_named and _is_picture(file.relative)
    return InputDocument(readable_path(file.path), read, file.size_bytes, may_be_skipped)


def _is_blank(path: Path, size_bytes: int) -> bool:
    """Returns True if a file has nothing but a byte order mark and white space.

    A file of more than _MAX_BLANK_BYTES is not opened.
    """
    if not 0 < size_bytes <= _MAX_BLANK_BYTES:
        return not size_bytes
    try:
        return not path.read_bytes().removeprefix(BOM_UTF8).strip()
    except OSError:
        return False


def _is_blank_member(member: Member) -> bool:
    """Returns True if a member of an archive is blank, as in `_is_blank`."""
    if not 0 < (member.size_bytes or 0) <= _MAX_BLANK_BYTES:
        return member.size_bytes == 0
    try:
        return not member.read().removeprefix(BOM_UTF8).strip()
    except Unreadable:
        return False


def _is_picture(relative: str) -> bool:
    return formats.mime_type_of(relative) in formats.PICTURES


@dataclass(frozen=True, slots=True)
class _FoundArchive:
    """An archive that was found, and how its members become documents.

    `skip_reason` takes a relative path and returns why a member is skipped, or an empty text.
    """

    file: _FoundFile
    source: str
    user_fields: GivenFields
    skip_reason: Callable[[str], str]

    def add_to(
        self, result: FoundDocuments, present: set[str] | None, first_with_id: dict[str, Path]
    ) -> bool:
        """Adds the members to `result`; returns False if the file is a document.

        The document ids of all members are added to `present`, unless it is None. If the archive
        or an archive in it cannot be listed, `result` is not complete.
        """
        try:
            listing = list_archive(self.file.path)
        except Unreadable as error:
            result.documents.append(_unreadable(self.file.path, str(error), self.file.size_bytes))
            result.is_complete = result.is_complete and present is None
            return True
        if listing is None:
            return False
        for path, reason in listing.problems:
            result.documents.append(_unreadable(self.file.path / path, reason))
            result.is_complete = result.is_complete and present is None
        result.skipped += [SkippedFile(self.file.path / path, ESCAPES) for path in listing.escaping]
        for member in listing.members:
            relative = f"{self.file.relative}/{member.path}"
            if present is not None:
                present.add(document_id(relative))
            reason = self._skip_reason(relative, is_only=len(listing.members) == 1)
            if reason != NOT_SELECTED:
                self._add_member(member, relative, reason, result, first_with_id)
        return True

    def _skip_reason(self, relative: str, *, is_only: bool) -> str:
        """Returns why a member is skipped, or an empty text.

        The only file in an archive that the user named is itself named, so it may have any
        extension, for example `app.log` in `app.log.gz`.
        """
        reason = self.skip_reason(relative)
        if reason == NOT_SELECTED and not self.skip_reason(self.file.relative):
            # The pattern selects the archive, so it selects its members of known formats.
            reason = _unknown_reason(relative)
        is_named = is_only and self.file.is_named
        return "" if is_named and reason in (UNKNOWN_FORMAT, OLD_FORMAT) else reason

    def _add_member(
        self,
        member: Member,
        relative: str,
        reason: str,
        result: FoundDocuments,
        first_with_id: dict[str, Path],
    ) -> None:
        path = self.file.path / member.path
        if not reason and _is_blank_member(member):
            reason = EMPTY
        if reason:
            result.skipped.append(SkippedFile(path, reason))
            return
        size = member.size_bytes or 0
        name = self.user_fields.document_id or document_id(relative)
        first = first_with_id.setdefault(name, path)
        if first != path:
            problem = f"its document id {name} belongs to {readable_path(first)} already"
            result.documents.append(_unreadable(path, problem, size))
            return
        fields = replace(self.user_fields, document_id=name)
        read = partial(_read_member, member, f"{self.source}/{member.path}", fields)
        is_picture = _is_picture(relative)
        result.documents.append(InputDocument(readable_path(path), read, size, is_picture))


def _read_member(member: Member, source: str, user_fields: GivenFields) -> Document:
    return document_of(member.read(), source, user_fields)


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


def _refuse(reason: str) -> Document:
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
    is_archive = is_archive_name(relative)
    # A pattern may select members of an archive, whatever the archive's own name is.
    reason = "" if is_archive else skip_reason(relative)
    if reason == OLD_FORMAT and not _begins_with(path, _OLE_MAGIC):
        reason = ""  # Many files with these names are web pages or RTF, which can be read.
    if not stat.S_ISREG(status.st_mode):
        reason = SPECIAL
    elif not reason and not _is_new(status, known_files):
        reason = DUPLICATE
    elif not reason and _is_blank(path, status.st_size):
        reason = EMPTY
    if reason == NOT_SELECTED:
        return
    if reason:
        listing.skipped.append(SkippedFile(path, reason))
    else:
        listing.files.append(_FoundFile(path, relative, status.st_size, is_archive))


def _begins_with(path: Path, start: bytes) -> bool:
    """Returns True if a regular file begins with these bytes; True also if it is unreadable."""
    try:
        if not path.is_file():
            return True
        with path.open("rb") as file:
            return file.read(len(start)) == start
    except OSError:
        return True


def _is_new(status: os.stat_result, known: set[_Identity]) -> bool:
    """Returns True if `known` does not contain the file or folder with this status.

    In this case, also adds the file or folder to `known`.
    """
    identity = (status.st_dev, status.st_ino)
    if identity in known:
        return False
    known.add(identity)
    return True
