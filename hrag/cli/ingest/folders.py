"""The files below a folder: which are there, and which of them are passed over, and why.

Links are followed, but a listing visits no folder twice: what a link leads to counts as found at
its real place if that is below the folder too. No file is returned twice, whatever folders it is
in. Hidden files and folders are left out.
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
"""Device and inode."""

UNKNOWN_FORMAT = "of unknown format"
EMPTY = "empty"
DUPLICATE = "found under another name"
BROKEN_LINK = "links that lead nowhere"
SPECIAL = "no regular files"
NOT_SELECTED = "not selected"
"""Of files that the user did not ask for; they are present, but do not count as skipped."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file; `relative` is its path inside the folder, in NFC, or its name alone."""

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
    """What was found in folders: `present` are the relative paths of all files, skipped ones too.

    It does not depend on what was listed before, so that folders which overlap are each whole.
    `problems` are (path, reason) of folders that could not be listed.
    """

    files: list[FoundFile] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    problems: list[tuple[Path, str]] = field(default_factory=list)


def list_folder(
    folder: Path, is_wanted: Callable[[str], str], seen: set[Identity]
) -> FolderListing:
    """Returns the files of a folder in sorted order.

    `is_wanted` returns why a file of that relative path is skipped, or an empty text. `seen` are
    the files that were found before, in other folders too, and are skipped; it grows.
    """
    found = FolderListing()
    visited: set[Identity] = set()
    links = [folder]
    while links:
        later: list[Path] = []
        for place in links:
            for path in _entries(place, later, visited, found):
                _add(path, relative_to(path, folder), is_wanted, seen, found)
        links = later
    found.files.sort(key=lambda each: each.relative.split("/"))
    return found


def relative_to(path: Path, folder: Path) -> str:
    """Returns the path inside the folder, with "/" and in NFC, as every system would name it."""
    return unicodedata.normalize("NFC", path.relative_to(folder).as_posix())


def readable_path(path: Path) -> str:
    """Returns a path as valid UTF-8 in NFC: file names may hold any bytes, and both forms."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return unicodedata.normalize("NFC", text)


def _entries(
    place: Path, later: list[Path], visited: set[Identity], found: FolderListing
) -> Iterator[Path]:
    """Yields the files at and below `place`; links inside are added to `later` instead."""
    places = [place]
    while places:
        place = places.pop()
        try:
            if not place.is_dir():
                yield place
                continue
            if not is_new(place.stat(), visited):
                continue
            found_here = [
                (place / each.name, each.is_symlink(), each.is_dir(follow_symlinks=False))
                for each in sorted(os.scandir(place), key=attrgetter("name"))
                if not each.name.startswith(".")
            ]
        except OSError as error:
            found.problems.append((place, error.strerror or str(error)))
            continue
        folders = []
        for path, is_link, is_folder in found_here:
            if is_link:
                later.append(path)
            elif is_folder:
                folders.append(path)
            else:
                yield path
        places += reversed(folders)


def _add(
    path: Path,
    relative: str,
    is_wanted: Callable[[str], str],
    seen: set[Identity],
    found: FolderListing,
) -> None:
    found.present.add(relative)
    try:
        status = path.stat()
    except OSError as error:
        if error.errno in _NOWHERE and path.is_symlink():
            found.skipped.append(SkippedFile(path, BROKEN_LINK))
        else:
            found.problems.append((path, error.strerror or str(error)))
        return
    reason = is_wanted(relative)
    if not stat.S_ISREG(status.st_mode):
        reason = SPECIAL
    elif not reason and not is_new(status, seen):
        reason = DUPLICATE
    elif not reason and not status.st_size:
        reason = EMPTY
    if reason == NOT_SELECTED:
        return
    if reason:
        found.skipped.append(SkippedFile(path, reason))
    else:
        found.files.append(FoundFile(path, relative, status.st_size))


def is_new(status: os.stat_result, seen: set[Identity]) -> bool:
    """Returns whether this file or folder is not in `seen` yet; adds it."""
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return False
    seen.add(identity)
    return True
