"""The LMDB environment: opening, refusing, transactions, the store's own numbers.

One Environment per process, never across a fork. The reply to a write is sent after its
transaction is on disk: LMDB syncs at every commit. Knows nothing of documents.
"""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import lmdb

from hrag.engine.embedded.store import location, schema
from hrag.errors import HragError, StorageFull, StoreMissing, StoreUnavailable, TooBusy

Txn: TypeAlias = "lmdb.Transaction[memoryview]"

# Inside the folder of a store: what a compaction that was killed leaves.
COMPACTING = "compact.tmp"

_LMDB_0_9 = 0  # lmdb 3 bundles two formats that cannot read each other; this is the older.
# A map cannot grow under open readers, so it is larger than any disk; it is sparse, and
# real use is bounded by the disk.
_MAP_BYTES = 1 << 44
# Read transactions open at once, over all processes: 256 workers of 16 threads and more.
_MAX_READERS = 6144
_LOCK_BYTES = (_MAX_READERS + 64) * 64  # Each has a line of 64 bytes in lock.mdb.
_SPARE_READ_TXNS = 64  # Kept for reuse, so that a read transaction costs a fraction of a us.

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DAMAGED = (lmdb.CorruptedError, lmdb.PageNotFoundError)
_FOREIGN = (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError)

_TOUCH = """
import sys
directory, lock, *sys.path = sys.argv[1:]
from hrag.engine.embedded.store.environment import touch_every_page
touch_every_page(directory, lock=lock == "lock")
"""


class Store:
    """An open environment with its databases; `store.db["texts"]` is one of them.

    Holds `locks`, files, until it is closed.
    """

    def __init__(
        self,
        env: lmdb.Environment,
        directory: Path,
        reserve_bytes: int = 0,
        locks: Sequence[IO[bytes]] = (),
    ) -> None:
        self.env = env
        self.directory = directory
        self.segments = directory / location.SEGMENTS
        self.db: dict[str, Any] = {}
        self._reserve_bytes = reserve_bytes
        self._locks = locks

    def read(self) -> AbstractContextManager[Txn]:
        """One consistent view; keep it short, or the file grows."""
        return self._transaction(write=False)

    def write(self) -> AbstractContextManager[Txn]:
        """Commits durably at the end, or, on any exception, changes nothing."""
        return self._transaction(write=True)

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Txn]:
        try:
            with self.env.begin(write=write, buffers=True) as txn:
                yield txn
        except lmdb.Error as error:
            explained = _explained(error, self.directory)
            if explained is None:
                raise
            raise explained from error

    def require_space(self, extra_bytes: int = 0) -> None:
        """Raises StorageFull unless `extra_bytes` fit on the disk beside the reserve.

        The reserve keeps room for deletions, which must work to make room.
        """
        free = location.free_bytes(self.directory)
        if free < self._reserve_bytes + extra_bytes:
            raise StorageFull(
                f"the disk of {self.directory} has {free:,} bytes free; this write takes "
                f"{extra_bytes:,} and HRAG_DISK_RESERVE_BYTES keeps {self._reserve_bytes:,}"
            )

    def copy_to(self, folder: Path) -> None:
        """Puts a compact and durable copy of LMDB's file, of one moment, into `folder`.

        The file itself grows by what is written meanwhile. Raises StorageFull or
        StoreUnavailable.
        """
        try:
            self.env.copy(str(folder), compact=True)
        except lmdb.Error as error:
            explained = _explained(error, folder)
            raise explained or StoreUnavailable(f"cannot copy to {folder}: {error}") from error
        location.sync(folder / location.DATA)

    def close(self) -> None:
        self.env.close()
        for lock in self._locks:
            lock.close()

    def number(self, txn: Txn, name: bytes) -> int:
        """One of the store's numbers, 0 before its first use."""
        value = txn.get(name, db=self.db["meta"])
        return 0 if value is None else schema.read_u64(value)

    def next_number(self, txn: Txn, name: bytes) -> int:
        """Counts `name` up by one and returns it."""
        number = self.number(txn, name) + 1
        txn.put(name, schema.u64(number), db=self.db["meta"])
        return number

    def scan(
        self, txn: Txn, database: str, prefix: bytes, start: bytes = b""
    ) -> Iterator[tuple[memoryview, memoryview]]:
        """Entries whose key begins with `prefix`, in order, from key `start` on."""
        with txn.cursor(db=self.db[database]) as cursor:
            if not cursor.set_range(max(prefix, start)):
                return
            for key, value in cursor.iternext():
                if key[: len(prefix)] != prefix:
                    return
                yield key, value


# Opening


def open_for_writing(directory: Path, reserve_bytes: int = 0) -> Store:
    """Opens or creates a store. One writer process at a time.

    `reserve_bytes` of its disk stay free of documents. Raises StoreUnavailable if another
    writer has it, or it cannot be opened, and StorageFull if it cannot be created.
    """
    location.refuse_network(directory)
    with ExitStack() as undo:
        with location.explained(directory):
            (directory / location.SEGMENTS).mkdir(parents=True, exist_ok=True)
            users = undo.enter_context(_join(directory))
            indexer = undo.enter_context(_take_lock(directory / location.INDEXER_LOCK))
            shutil.rmtree(directory / COMPACTING, ignore_errors=True)
        _refuse_lost_data(directory)
        env = _open_env(directory, readonly=False)
        store = Store(env, directory, reserve_bytes, (indexer, users))
        undo.callback(store.close)
        _create_databases(store)
        undo.pop_all()
    return store


def open_for_reading(directory: Path) -> Store:
    """Opens an existing store, beside a writer.

    Raises StoreMissing while there is none, StoreUnavailable if it cannot be opened.
    """
    with location.explained(directory):
        if not _has_data(directory):
            raise StoreMissing(f"{directory} holds no store; an indexer creates one when it starts")
    location.refuse_network(directory)
    with ExitStack() as undo:
        users = undo.enter_context(_join(directory))
        store = Store(_open_env(directory, readonly=True), directory, locks=(users,))
        undo.callback(store.close)
        _find_databases(store)
        undo.pop_all()
    return store


def open_alone(directory: Path) -> Store:
    """Opens for reading what no other process changes: a copy, or an `exclusive` store.

    Leaves no file of its own there. Raises StoreMissing or StoreUnavailable.
    """
    with location.explained(directory):
        if not _has_data(directory):
            raise StoreMissing(f"{directory} holds no store")
    with ExitStack() as undo:
        store = Store(_open_env(directory, readonly=True, lock=False), directory)
        undo.callback(store.close)
        _find_databases(store)
        undo.pop_all()
    return store


def _has_data(directory: Path) -> bool:
    """An indexer that is just creating a store has made the file and not filled it."""
    path = directory / location.DATA
    return path.exists() and path.stat().st_size > 0


def _create_databases(store: Store) -> None:
    """Creates what is missing, but nothing in a store of another version."""
    with store.write() as txn:
        for name in schema.DATABASES:
            store.db[name] = _open_database(store.env, name, txn)
        if txn.get(schema.SCHEMA, db=store.db["meta"]) is None:
            txn.put(schema.SCHEMA, schema.u64(schema.SCHEMA_VERSION), db=store.db["meta"])
            txn.put(schema.STORE_ID, uuid.uuid4().hex.encode(), db=store.db["meta"])
        _check_schema(store, txn)


def _find_databases(store: Store) -> None:
    """Of another version, some may be missing; so the first one, with the version, decides."""
    for name in schema.DATABASES:
        try:
            store.db[name] = _open_database(store.env, name)
        except lmdb.NotFoundError:
            raise StoreMissing(
                f"{store.directory} holds no complete store: it has no database {name!r}"
            ) from None
        if name == "meta":
            with store.read() as txn:
                _check_schema(store, txn)


def _open_database(env: lmdb.Environment, name: str, creating: "Txn | None" = None) -> Any:
    many = name in schema.MANY_VALUED
    return env.open_db(
        name.encode(), creating, create=creating is not None, dupsort=many, dupfixed=many
    )


def _check_schema(store: Store, txn: Txn) -> None:
    version = store.number(txn, schema.SCHEMA)
    if version != schema.SCHEMA_VERSION:
        raise StoreUnavailable(
            f"the store in {store.directory} has schema version {version}; "
            f"this hrag reads version {schema.SCHEMA_VERSION}"
        )


def _open_env(directory: Path, *, readonly: bool, lock: bool = True) -> lmdb.Environment:
    env = _lmdb_open(directory, readonly=readonly, lock=lock)
    try:
        env.reader_check()
        _refuse_truncated(env, directory, lock=lock)
    except BaseException:
        env.close()
        raise
    return env


def _lmdb_open(directory: Path, *, readonly: bool, lock: bool) -> lmdb.Environment:
    try:
        return lmdb.open(
            str(directory),
            map_size=_MAP_BYTES,
            max_dbs=len(schema.DATABASES),
            max_readers=_MAX_READERS,
            max_spare_txns=_SPARE_READ_TXNS,
            readonly=readonly,
            lock=lock,
            lib_version=_LMDB_0_9,
        )
    except lmdb.Error as error:
        if isinstance(error, _FOREIGN):
            reason = f"{location.DATA} is damaged or not LMDB's ({error}); restore a backup"
        elif getattr(error, "code", 0) == errno.EACCES:
            reason = location.denial(directory, str(error))
        else:
            reason = str(error)
        raise StoreUnavailable(f"cannot open the store in {directory}: {reason}") from error


def _take_lock(path: Path) -> IO[bytes]:
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StoreUnavailable(
            f"another indexer has the store in {path.parent}; only one may write to it, "
            "so stop that one first"
        ) from None
    return lock


def _join(directory: Path) -> IO[bytes]:
    return location.join(directory, when_alone=lambda: _fill_lock_file(directory / "lock.mdb"))


def _fill_lock_file(path: Path) -> None:
    """Gives LMDB's table of readers its whole room on the disk, before LMDB maps it.

    LMDB leaves it sparse, and to be the 60th reader on a full disk would end the process.
    Only while nobody has it open: to close the file drops this process's locks on it.
    """
    if not path.exists() or path.stat().st_blocks * 512 < _LOCK_BYTES:
        with path.open("ab") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, _LOCK_BYTES)


# Damage


def _refuse_lost_data(directory: Path) -> None:
    """A new store in the place of a lost one would hide the loss."""
    if not _has_data(directory) and any((directory / location.SEGMENTS).iterdir()):
        raise StoreUnavailable(
            f"{directory} has segments but no {location.DATA}, which holds the documents: it was "
            "lost, or a restore was interrupted; run `hrag restore`, or name an empty folder"
        )


def _refuse_truncated(env: lmdb.Environment, directory: Path, *, lock: bool) -> None:
    """Refuses a data file whose end is missing: to read there would end the process.

    Pages that a transaction took at the end and gave back were never written, so a short
    file may be whole. Only a look at every page tells, in a process that may die of it.
    """
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    found = (directory / location.DATA).stat().st_size
    if found >= needed:
        return
    command = [sys.executable, "-c", _TOUCH, str(directory), "lock" if lock else "", *sys.path]
    looked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if looked.returncode != 0:
        raise StoreUnavailable(
            f"cannot open the store in {directory}: {location.DATA} is damaged: it has {found:,} "
            f"of {needed:,} bytes; restore a backup"
        )


def touch_every_page(directory: str, *, lock: bool) -> None:
    """Reads a byte of every page in use; past the end of the file the process dies."""
    with _lmdb_open(Path(directory), readonly=True, lock=lock) as env:
        databases = [_open_database(env, name) for name in schema.DATABASES]
        with env.begin(buffers=True) as txn:
            for database in databases:
                for _, value in txn.cursor(db=database):
                    bytes(value[-1:])


def _explained(error: lmdb.Error, directory: Path) -> HragError | None:
    """What LMDB's error means to whoever runs the store, if that is known."""
    code = getattr(error, "code", 0)
    if code in _FULL or isinstance(error, (lmdb.DiskError, lmdb.MapFullError)):
        return StorageFull(f"the disk of {directory} is full; nothing of this write was kept")
    if code == errno.EIO:  # Also what LMDB says when the disk took a write only in part.
        return StorageFull(
            f"the disk of {directory} is full or failing; nothing of this write was kept"
        )
    if isinstance(error, lmdb.PanicError):
        return StoreUnavailable(
            f"the disk of {directory} failed at the first pages of {location.DATA}; "
            "restart the services when it works again"
        )
    if isinstance(error, _DAMAGED):
        return StoreUnavailable(f"{directory / location.DATA} is damaged ({error})")
    if isinstance(error, lmdb.ReadersFullError):
        return TooBusy(f"{_MAX_READERS:,} read transactions are open on {directory}")
    return None
