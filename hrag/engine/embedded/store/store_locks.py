"""Which processes may have a store open together?

LMDB shares memory between processes and identifies them by PID. So all processes that have
a store open must live in one PID namespace: two containers in two namespaces both have a
PID 1, and one would overwrite the other's slot in LMDB's table of readers. Every process
holds a shared lock on `users.lock` in the store's folder; the file names the namespace, and
only a process that holds it exclusively may change that name. One process at a time may
write: it holds `indexer.lock`.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from hrag.engine.embedded.store.location import INDEXER_LOCK, USERS_LOCK, explained_errors
from hrag.host.private_files import opener
from hrag.values.errors import StoreUnavailable

# A process tests the lock for microseconds; exclusive use lasts much longer.
_TRIES = 20
_PAUSE_S = 0.05


def join(directory: Path, when_alone: Callable[[], None]) -> IO[bytes]:
    """Takes part in the shared use of the store until the returned file is closed.

    Calls `when_alone` if no other process has the store; others wait until it returns.
    Raises StoreUnavailable while another PID namespace has the store, or one process has
    it exclusively.
    """
    ours = _namespace()
    with ExitStack() as undo:
        file = undo.enter_context(_open(directory))
        for _ in range(_TRIES):
            if _locked(file, fcntl.LOCK_EX):
                _write(file, ours)
                when_alone()
            refusal = _share(file, ours, directory)
            if not refusal:
                undo.pop_all()
                return file
            time.sleep(_PAUSE_S)
    raise StoreUnavailable(refusal)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Keeps every other process out of the store in `directory`, an existing folder.

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


def lock_for_writing(directory: Path) -> IO[bytes]:
    """Makes this process the store's only writer until the returned file is closed.

    Raises StoreUnavailable if another process writes.
    """
    descriptor = opener(directory / INDEXER_LOCK, os.O_RDWR | os.O_CREAT)
    lock = os.fdopen(descriptor, "ab")
    if not _locked(lock, fcntl.LOCK_EX):
        lock.close()
        raise StoreUnavailable(
            f"another indexer has the store in {directory}; only one may write to it, "
            "so stop that one first"
        )
    return lock


def _share(file: IO[bytes], ours: bytes, directory: Path) -> str:
    """Takes the shared lock and returns "", or returns why that is refused.

    Converting a lock releases it for a moment, in which another process may have written
    its own namespace. But nobody can write while the shared lock is held, so what is read
    under it stays true.
    """
    if not _locked(file, fcntl.LOCK_SH):
        return f"{directory} is being vacuumed or restored; wait until that has ended"
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


def _open(directory: Path) -> IO[bytes]:
    with explained_errors(directory):
        descriptor = opener(directory / USERS_LOCK, os.O_RDWR | os.O_CREAT)
    return os.fdopen(descriptor, "r+b", buffering=0)


def _locked(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: IO[bytes], namespace: bytes) -> None:
    """Writes in place, and only what differs, so that it also works on a full disk."""
    if os.pread(file.fileno(), 64, 0) != namespace:
        os.pwrite(file.fileno(), namespace, 0)
        os.ftruncate(file.fileno(), len(namespace))


def _namespace() -> bytes:
    """The name of this process's PID namespace, or b"" where it cannot be known."""
    try:
        return bytes(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return b""
