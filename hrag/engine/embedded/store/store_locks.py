"""File locks that decide which processes may have a store open at the same time.

LMDB shares memory between processes and identifies them by PID. So all processes that have
a store open must be in one PID namespace: two containers in two namespaces both have a
PID 1, and one would overwrite the other's entry in LMDB's table of readers. Every process
holds a shared lock on the file `users.lock` in the store's folder. The file contains the name of
the namespace, and only a process with an exclusive lock on the file may change that name. One
process at a time may write: it holds a lock on `indexer.lock`.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hrag.engine.embedded.store.location import INDEXER_LOCK, USERS_LOCK, explained_errors
from hrag.host.private_files import opener
from hrag.values.errors import StoreUnavailable

# A process that tests the lock holds it for microseconds, so a few retries get past it. Exclusive
# use lasts much longer, so waiting for its end is useless.
_TRIES = 20
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a lock that is taken is tried, and the pause between two tries in seconds."""

    tries: int = _TRIES
    pause_s: float = _PAUSE_S


_PATIENCE = Patience()


def join(
    directory: Path,
    when_alone: Callable[[], None],
    namespace: bytes | None = None,
    patience: Patience = _PATIENCE,
) -> IO[bytes]:
    """Joins the processes that use the store, until the returned file is closed.

    `namespace` is the name of the PID namespace, by default that of this process. Calls
    `when_alone` if no other process has the store open; other processes wait until it
    returns. Raises StoreUnavailable while processes in another PID namespace have the store open,
    or one process has locked it exclusively.
    """
    ours = _namespace() if namespace is None else namespace
    with ExitStack() as undo:
        file = undo.enter_context(_open(directory))
        for _ in range(patience.tries):
            if _try_lock(file, fcntl.LOCK_EX):
                _write(file, ours)
                when_alone()
            refusal = _share(file, ours, directory)
            if not refusal:
                undo.pop_all()
                return file
            time.sleep(patience.pause_s)
    raise StoreUnavailable(refusal)


@contextmanager
def exclusive(directory: Path, patience: Patience = _PATIENCE) -> Iterator[None]:
    """Keeps every other process out of the store in `directory`, an existing folder.

    Raises StoreUnavailable if another process has the store open.
    """
    with _open(directory) as file:
        tries = 0
        while not _try_lock(file, fcntl.LOCK_EX):
            tries += 1
            if tries == patience.tries:
                raise StoreUnavailable(
                    f"the store in {directory} is in use by a running service; "
                    "stop both services first"
                )
            time.sleep(patience.pause_s)
        yield


def lock_for_writing(directory: Path) -> IO[bytes]:
    """Makes this process the store's only writer until the returned file is closed.

    Raises StoreUnavailable if another process is the writer.
    """
    descriptor = opener(directory / INDEXER_LOCK, os.O_RDWR | os.O_CREAT)
    lock = os.fdopen(descriptor, "ab")
    if not _try_lock(lock, fcntl.LOCK_EX):
        lock.close()
        raise StoreUnavailable(
            f"another indexer has the store in {directory}; only one may write to it, "
            "so stop that one first"
        )
    return lock


def _share(file: IO[bytes], ours: bytes, directory: Path) -> str:
    """Takes the shared lock and returns "", or returns the reason why it cannot be taken.

    Converting a lock releases it for a moment, and in that moment another process may write
    its namespace. But no process can write while this one holds the shared lock, so the name
    that is read under it stays valid.
    """
    if not _try_lock(file, fcntl.LOCK_SH):
        return f"{directory} is being vacuumed or restored; wait until that has ended"
    theirs = os.pread(file.fileno(), 64, 0)
    if not ours or not theirs or theirs == ours:
        return ""
    fcntl.flock(file, fcntl.LOCK_UN)
    return (
        f"the store in {directory} is in use from another PID namespace, and LMDB would confuse "
        "processes of the two namespaces; let all processes that use it share one namespace "
        '(docker-compose: `pid: "service:indexer"`; Kubernetes: one Pod with '
        "`shareProcessNamespace: true`), and run commands in a container of the services, for "
        "example with `docker compose exec`"
    )


def _open(directory: Path) -> IO[bytes]:
    with explained_errors(directory):
        descriptor = opener(directory / USERS_LOCK, os.O_RDWR | os.O_CREAT)
    return os.fdopen(descriptor, "r+b", buffering=0)


def _try_lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: IO[bytes], namespace: bytes) -> None:
    """Writes the namespace in place, and only if it differs, so that a full disk is no problem."""
    if os.pread(file.fileno(), 64, 0) != namespace:
        os.pwrite(file.fileno(), namespace, 0)
        os.ftruncate(file.fileno(), len(namespace))


def _namespace() -> bytes:
    """Returns the name of this process's PID namespace, or b"" if it is unknown."""
    try:
        return bytes(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return b""
