"""Where a store may lie, and which processes may have it together.

LMDB shares memory between processes and tells them apart by PID. So a store lies on a
local disk, and all who have it open live in one PID namespace: two containers in two
namespaces both have a PID 1, and one would overwrite the other's place in LMDB's table of
readers. Whoever opens a store holds `users.lock` in its folder together with the others;
the file names their namespace, and only one who has it alone may change that name. Knows
nothing of LMDB's own files but their names.
"""

import errno
import fcntl
import os
import pwd
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from hrag.errors import StorageFull, StoreUnavailable

DATA = "data.mdb"
SEGMENTS = "segments"
INDEXER_LOCK = "indexer.lock"
_USERS_LOCK = "users.lock"
_FILES = (DATA, "lock.mdb", _USERS_LOCK, INDEXER_LOCK, SEGMENTS)

# Another's wrong guess lasts microseconds, an exclusive use much longer.
_TRIES = 20
_PAUSE_S = 0.05

# Programs in user space call theirs "fuse." and a name.
_NETWORK = re.compile(
    r"(fuse\.)?("
    "9p|acfs|afs|beegfs|ceph|ceph-fuse|cifs|coda|davfs|glusterfs|gpfs|lustre|mfs|ncp|ncpfs|"
    "nfs|nfs4|orangefs|pvfs2|smb2|smb3|smbfs|smbnetfs|sshfs|"
    "blobfuse2?|curlftpfs|gcsfuse|goofys|juicefs|moosefs|mount-s3|rclone|s3fs|s3ql|seaweedfs"
    ")"
)
_OCTAL = re.compile(r"\\([0-7]{3})")
_FULL = (errno.ENOSPC, errno.EDQUOT)


# The file system


def file_system(mountinfo: str, path: Path) -> str:
    """The type of the file system that holds `path`, or "" where no mount does.

    `mountinfo` is the text of `/proc/self/mountinfo`, `path` absolute and without links.
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
        return  # Without /proc nothing can be said.
    kind = file_system(mountinfo, directory.resolve())
    if _NETWORK.fullmatch(kind):
        raise StoreUnavailable(
            f"{directory} lies on a network file system ({kind}), where LMDB would damage "
            "the store; use a local disk"
        )


def free_bytes(directory: Path) -> int:
    """What the disk of `directory` still takes, without what is kept back for root."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def sync(path: Path) -> None:
    """Makes a file's bytes, or the names in a folder, outlast a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Files of others


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Turns an OSError about the store in `directory` into one that says what to do.

    Raises StorageFull or StoreUnavailable.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"the disk of {directory} is full") from error
        reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        raise StoreUnavailable(denial(directory, reason)) from error


def denial(directory: Path, reason: str) -> str:
    """Why the store in `directory` cannot be used: whose file it is and who we are.

    `reason` is told where no file of it is denied to this process.
    """
    held = next(path for path in (directory, *directory.absolute().parents) if _exists(path))
    for path in (held, *(directory / name for name in _FILES)):
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
    """Also of a file whose folder may not be looked into, as far as can be said."""
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


# Who has it


def join(directory: Path, when_alone: Callable[[], None]) -> IO[bytes]:
    """Shares the store in `directory` with others for as long as the file stays open.

    Calls `when_alone` if nobody else has it; others wait until that is done. Raises
    StoreUnavailable while another PID namespace has the store, or one process has it for
    itself.
    """
    ours = _namespace()
    with ExitStack() as undo:
        file = undo.enter_context(_open(directory))
        for _ in range(_TRIES):
            if _locked(file, fcntl.LOCK_EX):
                _write(file, ours)
                when_alone()
            refusal = _shared(file, ours, directory)
            if not refusal:
                undo.pop_all()
                return file
            time.sleep(_PAUSE_S)
    raise StoreUnavailable(refusal)


def _shared(file: IO[bytes], ours: bytes, directory: Path) -> str:
    """Takes part in the lock, or says why not.

    To change a lock lets go of it for a moment, in which another may have written its own
    name. But nobody can write while we take part, so what is read now stays true.
    """
    if not _locked(file, fcntl.LOCK_SH):
        return f"{directory} is being compacted or restored; wait until that has ended"
    theirs = os.pread(file.fileno(), 64, 0)
    if not ours or not theirs or theirs == ours:
        return ""
    fcntl.flock(file, fcntl.LOCK_UN)
    return (
        f"the store in {directory} is in use from another PID namespace, and LMDB would take "
        "processes of the two for one another; let all who use it share one namespace "
        '(docker-compose: `pid: "service:indexer"`; Kubernetes: one Pod with '
        "`shareProcessNamespace: true`), and run commands beside the services, as with "
        "`docker compose exec`"
    )


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Keeps everybody else out of the store in `directory`, a folder that exists.

    Raises StoreUnavailable if a process has it open.
    """
    with _open(directory) as file:
        tries = 0
        while not _locked(file, fcntl.LOCK_EX):
            tries += 1
            if tries == _TRIES:
                raise StoreUnavailable(
                    f"the store in {directory} is in use by a running service; "
                    "stop both services first"
                )
            time.sleep(_PAUSE_S)
        yield


def _open(directory: Path) -> IO[bytes]:
    with explained(directory):
        descriptor = os.open(directory / _USERS_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    return os.fdopen(descriptor, "r+b", buffering=0)


def _locked(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: IO[bytes], namespace: bytes) -> None:
    """In place, and only what differs, so that it also works on a full disk."""
    if os.pread(file.fileno(), 64, 0) != namespace:
        os.pwrite(file.fileno(), namespace, 0)
        os.ftruncate(file.fileno(), len(namespace))


def _namespace() -> bytes:
    """The name of this process's PID namespace, or nothing where it cannot be known."""
    try:
        return bytes(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return b""
