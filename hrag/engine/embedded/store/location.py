"""Where does a store lie, on what file system, and whose files are they?

A store is a folder on a local disk: LMDB maps its files into memory, which network file
systems do not keep coherent. Knows nothing of the contents of those files.
"""

import os
import pwd
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hrag.engine.embedded.store.disk import FULL_DISK
from hrag.values.errors import StorageFull, StoreMissing, StoreUnavailable

DATA = "data.mdb"
LOCK = "lock.mdb"
SEGMENTS = "segments"
INDEXER_LOCK = "indexer.lock"
USERS_LOCK = "users.lock"
VACUUM = "vacuum.tmp"  # The unfinished copy of a vacuum.
BACKUP_LOCK = "backup.lock"
FILES = (DATA, LOCK, USERS_LOCK, INDEXER_LOCK, BACKUP_LOCK, SEGMENTS)

# File systems in user space are listed as "fuse." and a name.
_NETWORK = re.compile(
    r"(fuse\.)?("
    "9p|acfs|afs|beegfs|ceph|ceph-fuse|cifs|coda|davfs|glusterfs|gpfs|lustre|mfs|ncp|ncpfs|"
    "nfs|nfs4|orangefs|pvfs2|smb2|smb3|smbfs|smbnetfs|sshfs|"
    "blobfuse2?|curlftpfs|gcsfuse|goofys|juicefs|moosefs|mount-s3|rclone|s3fs|s3ql|seaweedfs"
    ")"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


# The file system


def file_system(mountinfo: str, path: Path) -> str:
    """Returns the type of the file system that holds `path`, or "" if no mount does.

    `mountinfo` is the text of `/proc/self/mountinfo`; `path` is absolute and without links.
    """
    found, longest = "", -1
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        # Of two mounts at one point, the later one is seen.
        if path.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = after.split(" ")[0], len(point.parts)
    return found


def refuse_network(directory: Path) -> None:
    """Raises StoreUnavailable if `directory` lies, or would lie, on a network file system."""
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return  # Without /proc the type is unknown.
    kind = file_system(mountinfo, directory.resolve())
    if _NETWORK.fullmatch(kind):
        raise StoreUnavailable(
            f"{directory} lies on a network file system ({kind}), where LMDB would damage "
            "the store; use a local disk"
        )


def has_data(directory: Path) -> bool:
    """Whether `directory` holds a store: an empty LMDB file is one that is being created."""
    path = directory / DATA
    return path.exists() and path.stat().st_size > 0


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another that later has its path; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def require_data(directory: Path, hint: str = "") -> None:
    """Raises StoreMissing if `directory` holds no store; the message ends with `hint`.

    Raises StoreUnavailable if this process may not look.
    """
    with explained_errors(directory):
        if not has_data(directory):
            raise StoreMissing(f"{directory} holds no store{hint}")


# Errors of the file system


@contextmanager
def explained_errors(directory: Path) -> Iterator[None]:
    """Raises StorageFull or StoreUnavailable in place of an OSError about the store."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise StorageFull(f"the disk of {directory} is full") from error
        reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        raise StoreUnavailable(explanation(directory, reason)) from error


def explanation(directory: Path, reason: str) -> str:
    """Returns why the store in `directory` cannot be used.

    A file that this process may not access is named with its owner; otherwise the message
    gives `reason`.
    """
    held = next(path for path in (directory, *directory.absolute().parents) if _exists(path))
    for path in (held, *(directory / name for name in FILES)):
        if _exists(path) and not _may_use(path):
            status = path.stat()
            return (
                f"cannot use {path}: it belongs to {_user(status.st_uid)} with mode "
                f"{status.st_mode & 0o7777:04o}, and this process runs as "
                f"{_user(os.geteuid())}; run as the owner, or give this user the whole "
                f"folder {directory}"
            )
    return f"cannot use {directory}: {reason}"


def _exists(path: Path) -> bool:
    """False also for a file in a folder that this process may not look into."""
    with suppress(OSError):
        path.stat()
        return True
    return False


def _may_use(path: Path) -> bool:
    wanted = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return os.access(path, wanted, effective_ids=True)


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
