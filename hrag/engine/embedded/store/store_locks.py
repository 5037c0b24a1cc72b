"""File locks that decide which processes may have a store open at the same time.

LMDB shares memory between processes and identifies each process by its PID. So all processes that
have a store open must be in one PID namespace. For example, two containers with separate namespaces
both have a process with PID 1, and one of these processes would overwrite the other's entry in
LMDB's table of readers.

Every process that has a store open holds a shared lock on the file `users.lock` in the store's
folder. The file contains the name of the PID namespace, and only a process with an exclusive lock
on the file may change this name. Only one process at a time may write to the store: the process
that holds a lock on the file `indexer.lock`.
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

# How often a process tries to acquire a lock, and the pause in seconds between two tries. A process
# that opens the store holds an exclusive lock for microseconds, so 20 tries are enough. A vacuum or
# a restore holds an exclusive lock much longer, so more tries would not help.
_TRIES = 20
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Patience:
    """Says how long to wait for a lock that another process holds.

    `tries` says how often a process tries to acquire the lock. `pause_s` is the pause in seconds
    between two tries.
    """

    tries: int = _TRIES
    pause_s: float = _PAUSE_S


_PATIENCE = Patience()


def join(
    directory: Path,
    when_alone: Callable[[], None],
    namespace: bytes | None = None,
    patience: Patience = _PATIENCE,
) -> IO[bytes]:
    """Acquires a shared lock on the store; closing the returned file releases the lock.

    `namespace` is the name of this process's PID namespace; None means that it is read from /proc.
    Calls `when_alone` if no other process has the store open. Other processes cannot open the store
    before `when_alone` has returned. Raises StoreUnavailable while a process in another PID
    namespace has the store open, or while a process has locked the store exclusively.
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
    """Locks the store, so that no other process can open it during the `with` block.

    `directory` is the store's folder, which must exist. Raises StoreUnavailable if another process
    has the store open.
    """
    with _open(directory) as file:
        tries = 0
        while not _try_lock(file, fcntl.LOCK_EX):
            tries += 1
            if tries == patience.tries:
                raise StoreUnavailable(
                    f"the store in {directory} is in use by a running service; "
                    "stop the indexer and the retriever first"
                )
            time.sleep(patience.pause_s)
        yield


def lock_for_writing(directory: Path) -> IO[bytes]:
    """Acquires the lock that a process must hold to write to the store.

    Returns the locked file; closing it releases the lock. Raises StoreUnavailable if another
    process holds the lock.
    """
    descriptor = opener(directory / INDEXER_LOCK, os.O_RDWR | os.O_CREAT)
    lock = os.fdopen(descriptor, "ab")
    if not _try_lock(lock, fcntl.LOCK_EX):
        lock.close()
        raise StoreUnavailable(
            f"another indexer has the store in {directory} open; only one indexer may write to "
            "it, so stop the other indexer first"
        )
    return lock


def _share(file: IO[bytes], ours: bytes, directory: Path) -> str:
    """Acquires the shared lock and returns "", or returns the reason why it cannot be acquired.

    `ours` is the name of this process's PID namespace.

    If this process holds the exclusive lock on the file, the lock is converted to a shared lock.
    This releases the lock for a moment, in which another process may write the name of its
    namespace into the file. So the name in the file is read only after the shared lock has been
    acquired. From then on, no other process can change the name.
    """
    if not _try_lock(file, fcntl.LOCK_SH):
        return (
            f"the store in {directory} is being vacuumed or restored; wait until the vacuum or "
            "restore has ended"
        )
    theirs = os.pread(file.fileno(), 64, 0)
    if not ours or not theirs or theirs == ours:
        return ""
    fcntl.flock(file, fcntl.LOCK_UN)
    return (
        f"the store in {directory} is in use from another PID namespace, and LMDB would confuse "
        "processes of the two namespaces; let all processes that use the store share one namespace "
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
    """Writes the name of the namespace into the file, if the file contains another name.

    This works even when the disk is full, because the name is written in place.
    """
    if os.pread(file.fileno(), 64, 0) != namespace:
        os.pwrite(file.fileno(), namespace, 0)
        os.ftruncate(file.fileno(), len(namespace))


def _namespace() -> bytes:
    """Returns the name of this process's PID namespace, or b"" if it is unknown."""
    try:
        return bytes(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return b""
