"""Lists and reads the files in archives: ZIP, TAR, compressed TAR, and single GZIP files.

Nothing is unpacked to disk, so no name in an archive can lead to a file outside of it. A member is
read into memory when it is sent. Archives come from anywhere, so everything is limited: the number
of members, the bytes when unpacked, also in relation to the bytes of the archive, and how deep
archives may be inside archives. Only the directory of a ZIP and the headers of a TAR are read to
list the members, but a compressed TAR must be unpacked for that, up to the limit.

A file whose name says ZIP but that is an Office document, for example, is a document.
"""

import gzip
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import SEEK_END, BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast
from unicodedata import normalize
from zipfile import BadZipFile, ZipFile, ZipInfo

from hrag.cli.input_documents import MAX_DOCUMENT_BYTES, Unreadable, check_size

EXTENSIONS = (".zip", ".tar", ".tgz", ".gz")

# Like the limits of a folder's documents, these are far beyond archives of documents: the source
# of Linux, for example, has 90,000 files of 1.4 GB, which are compressed to a sixth.
MAX_MEMBERS = 100_000
MAX_UNPACKED_BYTES = 4 << 30
# Text is compressed to a tenth, and logs to a hundredth at best. GZIP can reach 1 to 1,032.
MAX_RATIO = 200
RATIO_APPLIES_BYTES = 64 << 20
# An archive may be in an archive in an archive.
MAX_DEPTH = 3
# The headers of a member of a TAR with long names have some KB. `tarfile` would read them at any
# size.
_MAX_HEADER_BYTES = 1 << 20
# The directory of a ZIP ends with a record of 22 bytes and a comment of up to 64 KB. If its size
# does not fit in this record, it is in another record of 56 bytes. A record of 20 bytes between the
# two says where this one is.
_ZIP_END, _ZIP_END_BYTES, _ZIP_COMMENT_BYTES, _ZIP_SIZE_AT = b"PK\x05\x06", 22, 1 << 16, 12
_ZIP_LARGE_END, _ZIP_LARGE_END_BYTES, _ZIP_LARGE_SIZE_AT = b"PK\x06\x06", 56, 40
_ZIP_LARGE_PLACE_BYTES, _ZIP_IS_LARGE = 20, 0xFFFF_FFFF
_ZIP_ENTRY = b"PK\x01\x02"
_READ_BYTES = 1 << 20

_ZIP_MAGIC, _GZIP_MAGIC, _TAR_MAGIC, _TAR_MAGIC_AT = b"PK\x03\x04", b"\x1f\x8b", b"ustar", 257
_START_BYTES = 512
# A ZIP file with one of these members is a document of a format that consists of files. The indexer
# refuses some of them, for example documents of Pages (.iwa), and says what helps.
_DOCUMENT_MEMBERS = (
    "[Content_Types].xml",
    "mimetype",
    "META-INF/container.xml",
    "Index/Document.iwa",
)
_ENCRYPTED = 0x1
_UTF_8_NAME = 0x800
_DRIVE = re.compile(r"[A-Za-z]:")
# The errors of the libraries for damaged archives, and also for encrypted and unusual ones.
_DAMAGED = (BadZipFile, gzip.BadGzipFile, tarfile.TarError, zlib.error, struct.error, EOFError)
_BROKEN = (*_DAMAGED, OSError, ValueError, NotImplementedError, RuntimeError, OverflowError)

_Unpack = Callable[[BinaryIO], BinaryIO]

ESCAPES = "with a path that leads out of the archive"
"""The reason for which a member is skipped whose name has `..` or begins at the root."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive.

    `path` is its path in the archive, in NFC and with "/". `read` returns its bytes and raises
    Unreadable. `size_bytes` is None if it is not known.
    """

    path: str
    size_bytes: int | None
    read: Callable[[], bytes]


@dataclass(slots=True)
class ArchiveListing:
    """The files in an archive, also in the archives inside it, in the order of the archive.

    `problems` contains (path, reason) for each archive inside it that cannot be read. `escaping`
    contains the names of members that are not used, because their names lead out of the archive.
    """

    members: list[Member] = field(default_factory=list)
    escaping: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)


def is_archive_name(name: str) -> bool:
    """Returns True if a file's extension is the extension of an archive that can be opened."""
    return name.lower().endswith(EXTENSIONS)


def begins_like_archive(path: Path) -> bool:
    """Returns True if the first bytes of a file are those of an archive; False if unreadable.

    Bytes that are read from a pipe are lost, so only regular files are examined.
    """
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return bool(_kind_of(file.read(_START_BYTES)))
    except OSError:
        return False


def list_archive(path: Path) -> ArchiveListing | None:
    """Returns the files in an archive; None if the file is not an archive but a document.

    Hidden files are left out, as in folders. Raises Unreadable for a damaged or encrypted archive,
    or one that exceeds a limit.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    listing = ArchiveListing()
    opened = _OpenArchives()
    archive = _Archive(path.name, size, lambda: path.open("rb"), None, opened)
    return listing if _Lister(archive, listing, _Budget(size)).run() else None


# The following classes open archives and read their members.


@dataclass(slots=True)
class _Budget:
    """Counts the members of an archive and of the archives in it, and their bytes unpacked."""

    archive_bytes: int
    members: int = 0
    unpacked_bytes: int = 0

    def add(self, size: int) -> None:
        """Counts a member. Raises Unreadable if there are too many, or if they are too large."""
        if size < 0:
            raise Unreadable(f"the archive is damaged: it has a file of {size:,} bytes")
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise Unreadable(f"the archive has more than {MAX_MEMBERS:,} files")
        self.add_bytes(size)

    def add_bytes(self, size: int) -> None:
        """Counts bytes that are unpacked. Raises Unreadable if there are too many."""
        self.unpacked_bytes += size
        if self.unpacked_bytes > MAX_UNPACKED_BYTES:
            raise Unreadable(f"the archive has more than {MAX_UNPACKED_BYTES:,} bytes unpacked")
        if (
            self.unpacked_bytes > RATIO_APPLIES_BYTES
            and self.unpacked_bytes > MAX_RATIO * self.archive_bytes
        ):
            raise Unreadable(
                f"the archive unpacks to more than {MAX_RATIO} times its {self.archive_bytes:,} "
                "bytes; it may be made to use up memory"
            )


@dataclass(frozen=True, eq=False, slots=True)
class _Archive:
    """An archive: its name, its size in bytes, and a function that opens its bytes.

    `parent` is the archive that contains it, or None. `key` identifies the archive in `opened`.
    """

    name: str
    size_bytes: int
    open: Callable[[], BinaryIO]
    parent: "_Archive | None"
    opened: "_OpenArchives"
    key: object = field(default_factory=object)


class _OpenArchives:
    """Keeps the archive open from which members are read, and the archives that contain it.

    Members are read in the order of the listing. So each archive is opened once to be read.
    """

    def __init__(self) -> None:
        # For the key of each archive, its open handle, for example a ZipFile, and the file with its
        # bytes. With the archives themselves, which refer to this object, it would be part of a
        # reference cycle. Python might then close the files before `__del__` does, with a warning.
        self._stack: list[tuple[object, Any, BinaryIO]] = []

    def __del__(self) -> None:
        """Closes all archives, once no member of them is left."""
        self._close_down_to(())

    def get(self, archive: _Archive, make: Callable[[BinaryIO], Any]) -> Any:
        """Returns the open handle of an archive, and closes other archives.

        `make` opens the handle on the archive's bytes. Archives that contain this one stay open.
        """
        keys = []
        parent: _Archive | None = archive
        while parent is not None:
            keys.append(parent.key)
            parent = parent.parent
        self._close_down_to(keys)
        for key, handle, _ in self._stack:
            if key is archive.key:
                return handle
        file = archive.open()
        try:
            handle = make(file)
        except BaseException:
            file.close()
            raise
        self._stack.append((archive.key, handle, file))
        return handle

    def _close_down_to(self, keys: Sequence[object]) -> None:
        while self._stack and self._stack[-1][0] not in keys:
            _, handle, file = self._stack.pop()
            handle.close()
            file.close()


@dataclass(frozen=True, slots=True)
class _Lister:
    """Adds the members of an archive, and of the archives in it, to a listing.

    `prefix` is the path of the archive in the outermost archive, with "/" at its end, or empty.
    `depth` is 1 for the outermost archive.
    """

    archive: _Archive
    listing: ArchiveListing
    budget: _Budget
    prefix: str = ""
    depth: int = 1

    def run(self) -> bool:
        """Adds all members; returns False if the archive is a document. Raises Unreadable."""
        try:
            with self.archive.open() as file:
                kind = _kind_of(file.read(_START_BYTES))
            if kind == "zip":
                return self._add_zip()
            if kind == "gzip" and not _is_compressed_tar(self.archive):
                self._add_gzip()
            elif kind:
                self._add_tar(_unpacked if kind == "gzip" else _plain)
            else:
                hint = "; --as text reads it as text" if self.depth == 1 else ""
                raise Unreadable(
                    f"it is not an archive, although its name is the name of one{hint}"
                )
        except _BROKEN as error:
            problem = str(error) or type(error).__name__
            if isinstance(error, _DAMAGED):
                raise Unreadable(f"the archive is damaged or cut off: {problem}") from None
            raise Unreadable(f"the archive cannot be read: {problem}") from None
        return True

    def _add_zip(self) -> bool:
        with self.archive.open() as file:
            _check_zip_directory(file)
        with self.archive.open() as file, ZipFile(file) as unpacked:
            members = {_zip_name(member): member for member in unpacked.infolist()}
        if any(name in members for name in _DOCUMENT_MEMBERS):
            return False
        for name, member in members.items():
            self.budget.add(member.file_size)
            if not member.is_dir():
                self._add(name, member.file_size, partial(_read_zip, self.archive, member))
        return True

    def _add_gzip(self) -> None:
        name = PurePosixPath(self.archive.name)
        self.budget.add(0)
        stem = name.stem if name.suffix.lower() == ".gz" else f"{name.name}.content"
        self._add(stem, None, _GzipReader(self.archive, self.budget))

    def _add_tar(self, unpack: _Unpack) -> None:
        positions: dict[str, tuple[int, int]] = {}
        with self.archive.open() as packed, unpack(packed) as file:
            headers = _HeaderReader(file)
            with tarfile.open(fileobj=cast("BinaryIO", headers), mode="r:") as tar:
                while (member := tar.next()) is not None:
                    # The next header comes after the bytes of this member. So the size is counted
                    # before these bytes are unpacked.
                    self.budget.add(member.size)
                    self.budget.add_bytes(headers.take_count())
                    if member.isreg() and not member.issparse():
                        positions[member.name] = member.offset_data, member.size
                    # `tarfile` would keep all headers in memory.
                    tar.members.clear()  # type: ignore[attr-defined]
        for name, (offset, size) in positions.items():
            self._add(name, size, partial(_read_tar, self.archive, unpack, offset, size))

    def _add(self, name: str, size: int | None, read: Callable[[], bytes]) -> None:
        """Adds a member, or the members of an archive inside the archive."""
        # Bytes that are not valid UTF-8 are lone surrogates in names of a TAR.
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        parts = [part for part in normalize("NFC", name).split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or _DRIVE.match(name):
            self.listing.escaping.append(f"{self.prefix}{name}")
            return
        if not parts or any(part.startswith(".") or part == "__MACOSX" for part in parts):
            return
        path = self.prefix + "/".join(parts)
        member = Member(path, size, partial(_read_or_refuse, read))
        if not (is_archive_name(path) and self._add_inner(member)):
            self.listing.members.append(member)

    def _add_inner(self, member: Member) -> bool:
        """Adds the members of an archive inside the archive; returns False for a document."""
        opened = _Archive(
            PurePosixPath(member.path).name,
            member.size_bytes or 0,
            lambda: BytesIO(member.read()),
            self.archive,
            self.archive.opened,
        )
        prefix = f"{member.path}/"
        try:
            if self.depth == MAX_DEPTH:
                raise Unreadable(f"it is an archive inside {MAX_DEPTH} archives")
            return _Lister(opened, self.listing, self.budget, prefix, self.depth + 1).run()
        except Unreadable as error:
            self.listing.problems.append((member.path, str(error)))
            return True


def _kind_of(start: bytes) -> str:
    if start.startswith(_ZIP_MAGIC):
        return "zip"
    if start.startswith(_GZIP_MAGIC):
        return "gzip"
    return "tar" if start.startswith(_TAR_MAGIC, _TAR_MAGIC_AT) else ""


def _is_compressed_tar(archive: _Archive) -> bool:
    with archive.open() as file, _unpacked(file) as unpacked:
        return _kind_of(unpacked.read(_START_BYTES)) == "tar"


def _unpacked(file: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", gzip.GzipFile(fileobj=file))


def _plain(file: BinaryIO) -> BinaryIO:
    return file


def _zip_name(member: ZipInfo) -> str:
    """Returns the name of a member.

    Many programs write names in UTF-8 without saying so; `zipfile` decodes them as cp437. Programs
    of Windows write backslashes.
    """
    name = member.filename
    if not member.flag_bits & _UTF_8_NAME:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode()
    return name if "/" in name else name.replace("\\", "/")


def _check_zip_directory(file: BinaryIO) -> None:
    """Raises Unreadable if the directory of a ZIP has more than MAX_MEMBERS entries.

    `ZipFile` would make an object of each entry first. The count that the archive itself declares
    may be wrong, so the entries are counted.
    """
    file_bytes = file.seek(0, SEEK_END)
    searched_at = max(file_bytes - _ZIP_END_BYTES - _ZIP_COMMENT_BYTES, 0)
    file.seek(searched_at)
    last = file.read()
    at = len(last) - _ZIP_END_BYTES
    if not (at >= 0 and last.startswith(_ZIP_END, at) and last.endswith(b"\0\0")):
        at = last.rfind(_ZIP_END)  # The record is followed by a comment.
    if at < 0 or len(last) < at + _ZIP_END_BYTES:
        return  # `ZipFile` reports the damage.
    (size,) = struct.unpack_from("<I", last, at + _ZIP_SIZE_AT)
    end_at = searched_at + at
    file.seek(max(end_at - _ZIP_LARGE_PLACE_BYTES - _ZIP_LARGE_END_BYTES, 0))
    large_end = file.read(_ZIP_LARGE_END_BYTES)
    starts = [] if size == _ZIP_IS_LARGE else [end_at - size]
    if large_end.startswith(_ZIP_LARGE_END) and len(large_end) == _ZIP_LARGE_END_BYTES:
        (size,) = struct.unpack_from("<Q", large_end, _ZIP_LARGE_SIZE_AT)
        starts.append(end_at - _ZIP_LARGE_PLACE_BYTES - _ZIP_LARGE_END_BYTES - size)
    file.seek(max(min(starts, default=end_at), 0))
    count = 0
    rest = b""
    while part := file.read(_READ_BYTES):
        count += (rest + part).count(_ZIP_ENTRY)
        if count > MAX_MEMBERS:
            raise Unreadable(f"the archive has more than {MAX_MEMBERS:,} files")
        rest = part[-len(_ZIP_ENTRY) + 1 :]


class _HeaderReader:
    """The bytes of a TAR, from which `tarfile` reads only headers."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._count = 0
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """Returns bytes of a header. Raises Unreadable if one member has too many of them."""
        if size < 0 or self._count + size > _MAX_HEADER_BYTES:
            raise Unreadable(f"the archive has a header of more than {_MAX_HEADER_BYTES:,} bytes")
        self._count += size
        return self._file.read(size)

    def take_count(self) -> int:
        """Returns how many bytes were read since the last call."""
        count, self._count = self._count, 0
        return count


def _read_or_refuse(read: Callable[[], bytes]) -> bytes:
    """Returns the bytes of a member. Raises Unreadable if they are damaged."""
    try:
        return read()
    except _BROKEN as error:
        problem = str(error) or type(error).__name__
        raise Unreadable(f"it cannot be unpacked: {problem}") from None


def _read_zip(archive: _Archive, member: ZipInfo) -> bytes:
    if member.flag_bits & _ENCRYPTED:
        raise Unreadable("it is encrypted in the archive")
    unpacked: ZipFile = archive.opened.get(archive, ZipFile)
    with unpacked.open(member) as file:
        return _read_limited(cast("BinaryIO", file))


class _GzipReader:
    """Reads the bytes in a GZIP file. Their number is known only when they are read.

    They count once in the budget of the outermost archive.
    """

    def __init__(self, archive: _Archive, budget: _Budget) -> None:
        self._archive = archive
        self._budget = budget
        self._is_counted = False

    def __call__(self) -> bytes:
        """Returns the bytes. Raises Unreadable if they exceed a limit."""
        with self._archive.open() as file, _unpacked(file) as unpacked:
            content = _read_limited(unpacked)
        _Budget(self._archive.size_bytes).add_bytes(len(content))
        if not self._is_counted:
            self._budget.add_bytes(len(content))
            self._is_counted = True
        return content


def _read_tar(archive: _Archive, unpack: _Unpack, offset: int, size: int) -> bytes:
    check_size(size, MAX_DOCUMENT_BYTES)
    file: BinaryIO = archive.opened.get(archive, unpack)
    file.seek(offset)
    content = file.read(size)
    if len(content) < size:
        raise Unreadable("the archive is cut off")
    return content


def _read_limited(file: BinaryIO) -> bytes:
    content = file.read(MAX_DOCUMENT_BYTES + 1)
    check_size(len(content), MAX_DOCUMENT_BYTES)
    return content
