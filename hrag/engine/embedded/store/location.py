"""The names of a store's files, checks of its file system, and errors about access to the files.

A store is a folder on a local disk. LMDB maps files of the store into memory, and on a network file
system two processes could see different bytes in these maps. This module knows nothing of the
contents of files.
"""

import errno
import os
import pwd
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hrag.engine.embedded.store.disk import FULL_DISK, no_space
from hrag.host.file_errors import with_cause
from hrag.values.errors import StorageFull, StoreMissing, StoreUnavailable

DATA = "data.mdb"
LOCK = "lock.mdb"
SEGMENTS = "segments"
INDEXER_LOCK = "indexer.lock"
USERS_LOCK = "users.lock"
# The name of the folder in which a vacuum writes the compact copy of LMDB's file.
VACUUM = "vacuum.tmp"
BACKUP_LOCK = "backup.lock"
FILES = (DATA, LOCK, USERS_LOCK, INDEXER_LOCK, BACKUP_LOCK, SEGMENTS)

# The types of network file systems. Linux lists the type of a file system in user space as "fuse."
# and a name.
_NETWORK = re.compile(
    r"(fuse\.)?("
    "9p|acfs|afs|beegfs|ceph|ceph-fuse|cifs|coda|davfs|glusterfs|gpfs|lustre|mfs|ncp|ncpfs|"
    "nfs|nfs4|orangefs|pvfs2|smb2|smb3|smbfs|smbnetfs|sshfs|"
    "blobfuse2?|curlftpfs|gcsfuse|goofys|juicefs|moosefs|mount-s3|rclone|s3fs|s3ql|seaweedfs"
    ")"
)
# The numbers of the errors with which access to a file of another user is refused.
_DENIED = (errno.EACCES, errno.EPERM)
_OCTAL = re.compile(r"\\([0-7]{3})")


# Functions about the file system of a store.


def file_system(mountinfo: str, path: Path) -> str:
    """Returns the type of the file system that contains `path`, or "" if the type is unknown.

    `mountinfo` is the text of `/proc/self/mountinfo`. `path` is absolute and contains no symbolic
    links.
    """
    kind, longest = "", -1
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        # If two lines name the same mount point, the later mount hides the earlier one.
        if path.is_relative_to(point) and len(point.parts) >= longest:
            kind, longest = after.split(" ")[0], len(point.parts)
    return kind


def refuse_network(directory: Path) -> None:
    """Raises StoreUnavailable if `directory` is on a network file system.

    The folder need not exist yet.
    """
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return  # Without /proc, the type of the file system is unknown.
    kind = file_system(mountinfo, directory.resolve())
    if _NETWORK.fullmatch(kind):
        raise StoreUnavailable(
            f"{directory} lies on a network file system ({kind}), where LMDB would damage "
            "the store; use a local disk"
        )


def has_data(directory: Path) -> bool:
    """Returns True if `directory` contains a store, which means: an LMDB file that is not empty.

    An empty LMDB file belongs to a store that is being created.
    """
    path = directory / DATA
    return path.exists() and path.stat().st_size > 0


def identity(path: Path) -> tuple[int, int] | None:
    """Returns the device and the inode of a file, or None if it does not exist.

    Two results for the same path differ if another file has replaced the earlier file.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def require_data(directory: Path, hint: str = "") -> None:
    """Raises StoreMissing if `directory` contains no store. The error message ends with `hint`.

    Raises StoreUnavailable if this process may not access the folder.
    """
    with explained_errors(directory):
        if not has_data(directory):
            raise StoreMissing(f"{directory} holds no store{hint}")


# Functions that explain errors of the file system.


@contextmanager
def explained_errors(directory: Path) -> Iterator[None]:
    """If the `with` block raises an OSError, raises StorageFull or StoreUnavailable instead.

    Raises StorageFull if the disk of `directory` is full, and StoreUnavailable for other errors.
    """
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        if code in FULL_DISK:
            raise StorageFull(no_space(code, directory)) from error
        reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        raise StoreUnavailable(explanation(directory, code, reason)) from error


def explanation(directory: Path, code: int, reason: str) -> str:
    """Returns a message that says why the store in `directory` cannot be used.

    `code` is the number of the error (errno), and `reason` what the operating system says about it.
    If access was denied because this process may not access one of the store's files, the message
    names that file and its owner. Otherwise the message contains `reason` and its likely cause.
    """
    denied = _denied_access(directory) if code in _DENIED else ""
    return denied or f"cannot use {directory}: {with_cause(reason, code)}"


def _denied_access(directory: Path) -> str:
    """Returns a message about a file that this process may not access; "" if there is none."""
    existing = next(path for path in (directory, *directory.absolute().parents) if _exists(path))
    for path in (existing, *(directory / name for name in FILES)):
        if _exists(path) and not _may_use(path):
            status = path.stat()
            return (
                f"cannot use {path}: it belongs to {_user(status.st_uid)} with mode "
                f"{status.st_mode & 0o7777:04o}, and this process runs as "
                f"{_user(os.geteuid())}; run as the owner, or give this user the whole "
                f"folder {directory}"
            )
    return ""


def _exists(path: Path) -> bool:
    """Returns True if this process can see that `path` exists.

    Returns False for a file in a folder that this process may not enter.
    """
    with suppress(OSError):
        path.stat()
        return True
    return False


def _may_use(path: Path) -> bool:
    mode = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return os.access(path, mode, effective_ids=True)


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
