"""Lists the files below a folder, and says which of them are skipped and why.

Links are followed, but a listing visits no folder twice: if the target of a link is itself below
the folder, its files are listed under their real path. No file is returned twice, even if several
folders contain it. Hidden files and folders are left out.
"""

import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

Identity = tuple[int, int]
"""The device and inode of a file or folder."""

UNKNOWN_FORMAT = "of unknown format"
EMPTY = "empty"
DUPLICATE = "found under another name"
BROKEN_LINK = "links that lead nowhere"
SPECIAL = "no regular files"
NOT_SELECTED = "not selected"
"""The reason for files that --glob excludes; they are present, but do not count as skipped."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that was found.

    `relative` is its path inside the folder or, if the user named the file, only its name. It is
    in Unicode form NFC.
    """

    path: Path
    relative: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file of a folder that is not ingested."""

    path: Path
    reason: str


@dataclass(slots=True)
class FolderListing:
    """The files of a folder.

    `files` are to be ingested, and `skipped` are not. `present` contains the relative paths of
    all files, also of skipped ones. It does not depend on earlier listings, so that it is
    complete for each of several folders that overlap. `problems` contains (path, reason) for
    each file or folder that could not be read.
    """

    files: list[FoundFile] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    problems: list[tuple[Path, str]] = field(default_factory=list)


def list_folder(
    folder: Path, skip_reason: Callable[[str], str], known_files: set[Identity]
) -> FolderListing:
    """Returns the files of a folder in sorted order.

    `skip_reason` takes a relative path and returns why the file is skipped, or an empty text.
    Files in `known_files` were found before, also in other folders, and are skipped; the
    function adds the files that it finds.
    """
    listing = FolderListing()
    visited: set[Identity] = set()
    links = [folder]
    while links:
        next_links: list[Path] = []
        for link in links:
            for path in _entries(link, next_links, visited, listing):
                _add(path, relative_to(path, folder), skip_reason, known_files, listing)
        links = next_links
    listing.files.sort(key=lambda file: file.relative.split("/"))
    return listing


def relative_to(path: Path, folder: Path) -> str:
    """Returns the path inside the folder, with "/" and in NFC, so that all systems agree on it."""
    return unicodedata.normalize("NFC", path.relative_to(folder).as_posix())


def readable_path(path: Path) -> str:
    """Returns a path as valid UTF-8 in NFC.

    File names may contain bytes that are not valid UTF-8, and decomposed characters.
    """
    text = os.fsencode(path).decode("utf-8", "replace")
    return unicodedata.normalize("NFC", text)


def _entries(
    start: Path, links: list[Path], visited: set[Identity], listing: FolderListing
) -> Iterator[Path]:
    """Yields the files at and below `start`; links below it are added to `links` instead."""
    pending = [start]
    while pending:
        current = pending.pop()
        try:
            if not current.is_dir():
                yield current
                continue
            if not is_new(current.stat(), visited):
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
        for path, is_link, is_folder in entries:
            if is_link:
                links.append(path)
            elif is_folder:
                folders.append(path)
            else:
                yield path
        pending += reversed(folders)


def _add(
    path: Path,
    relative: str,
    skip_reason: Callable[[str], str],
    known_files: set[Identity],
    listing: FolderListing,
) -> None:
    listing.present.add(relative)
    try:
        status = path.stat()
    except OSError as error:
        if error.errno in _NOWHERE and path.is_symlink():
            listing.skipped.append(SkippedFile(path, BROKEN_LINK))
        else:
            listing.problems.append((path, error.strerror or str(error)))
        return
    reason = skip_reason(relative)
    if not stat.S_ISREG(status.st_mode):
        reason = SPECIAL
    elif not reason and not is_new(status, known_files):
        reason = DUPLICATE
    elif not reason and not status.st_size:
        reason = EMPTY
    if reason == NOT_SELECTED:
        return
    if reason:
        listing.skipped.append(SkippedFile(path, reason))
    else:
        listing.files.append(FoundFile(path, relative, status.st_size))


def is_new(status: os.stat_result, known: set[Identity]) -> bool:
    """Returns True if this file or folder is not in `known` yet, and adds it."""
    identity = (status.st_dev, status.st_ino)
    if identity in known:
        return False
    known.add(identity)
    return True
