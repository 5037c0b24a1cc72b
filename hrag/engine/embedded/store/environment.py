"""Opens a store and begins its transactions.

A process has one LMDB environment for a store, and a forked child must not use it. LMDB syncs at
every commit, so a transaction is on disk before the reply to its write is sent. Knows nothing of
documents.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import lmdb
import structlog

from hrag.engine.embedded.store import disk, location, page_probe, privacy, schema, store_locks
from hrag.engine.embedded.store.checksums import SUM_BYTES
from hrag.engine.embedded.store.commit_cache import CommitCache
from hrag.engine.embedded.store.lmdb_file import (
    MAX_READERS,
    damaged_pages,
    explained,
    open_database,
    open_lmdb,
)
from hrag.engine.embedded.store.owners import owner_of
from hrag.engine.embedded.store.reserve import MAX_RESERVE_BYTES, Reserve
from hrag.engine.embedded.store.tables import Database, RawTxn
from hrag.engine.embedded.store.transactions import Txn
from hrag.host.private_files import FILE_MODE, make_folder, opener
from hrag.values.errors import StorageFull, StoreMissing, StoreUnavailable

# The unfinished copy of a restore, in the store's folder.
RESTORE = "restore.tmp"

_log = structlog.get_logger()

# Each reader has an entry of 64 bytes in lock.mdb.
_LOCK_BYTES = (MAX_READERS + 64) * 64


class Store:
    """An open environment with its databases, by name.

    The files `locks` stay open, and so locked, until the store is closed.
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
        self.databases: dict[str, Database] = {}
        self._data = directory / location.DATA
        self._identity = location.identity(self._data)
        self._reserve_bytes = reserve_bytes
        self._reserve: Reserve | None = None
        self._locks = locks
        self._cache = CommitCache(0)

    def read(self) -> AbstractContextManager[Txn]:
        """Begins a read transaction, which sees one snapshot of the store.

        Keep it short: while it is open, the file grows. Raises StorageFull, StoreUnavailable or
        TooBusy for errors that LMDB reports, and DataLoss if a value differs from what was stored.
        """
        return self._transaction(write=False)

    def write(self) -> AbstractContextManager[Txn]:
        """Begins a write transaction, which commits durably at its end.

        On an exception it changes nothing. Raises the same errors as `read`, and StoreUnavailable
        if the store's folder was moved, replaced or removed; see `require_place`.
        """
        self.require_place()
        return self._transaction(write=True)

    @contextmanager
    def growing_write(self, extra_bytes: int) -> Iterator[Txn]:
        """Begins a write transaction that makes the store grow by about `extra_bytes`.

        Works like `write`, but does not use the disk space reserved for deletions: if there is no
        other space, raises StorageFull before anything is written.
        """
        self.require_place()
        self.require_space()
        with self.write() as txn:
            if self._reserve is not None:
                self._reserve.allocate(self.used_bytes, extra_bytes)
            yield txn

    @property
    def used_bytes(self) -> int:
        """The size of LMDB's pages, free pages included, without the reserve after them."""
        pages: int = self.env.info()["last_pgno"] + 1
        return pages * int(self.env.stat()["psize"])

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Txn]:
        try:
            with self.env.begin(write=write, buffers=True) as raw:
                yield Txn(raw, self.databases, owner_of) if write else self._reader(raw)
        except lmdb.Error as error:
            domain_error = explained(error, self.directory)
            if domain_error is None:
                raise
            raise domain_error from error

    def _reader(self, raw: RawTxn) -> Txn:
        cache, txn_id = self._cache, raw.id()
        if cache.txn_id != txn_id:
            cache = CommitCache(txn_id)
            # A transaction on an older commit must not replace the cache of a newer commit.
            if txn_id > self._cache.txn_id:
                self._cache = cache
        return Txn(raw, self.databases, owner_of, cache)

    def require_place(self) -> None:
        """Raises StoreUnavailable if the folder was moved, replaced or removed meanwhile.

        Without this check, LMDB would keep writing to the old file. That file may be lost, or may
        be deleted when it is closed. Earlier commits stay in the moved folder, and reads continue.
        """
        if location.identity(self._data) != self._identity:
            raise StoreUnavailable(
                f"{self.directory} was moved, replaced or removed while it was in use, so nothing "
                "more is written; move it back, or restart the services with HRAG_DATA_DIR set "
                "to its new path: the folder contains everything that was acknowledged"
            )

    def require_space(self, extra_bytes: int = 0) -> None:
        """Raises StorageFull unless `extra_bytes` fit on the disk without touching the reserve.

        Besides the blocks that `Reserve` allocates for deletions, the same number of bytes stays
        free on the disk for other programs.
        """
        free = disk.free_bytes(self.directory)
        if free < self._reserve_bytes + extra_bytes:
            raise StorageFull(
                f"the disk of {self.directory} has {free:,} bytes free; this write needs "
                f"{extra_bytes:,} and HRAG_DISK_RESERVE_BYTES keeps {self._reserve_bytes:,}"
            )

    def copy_to(self, folder: Path) -> None:
        """Writes a compact, durable copy of LMDB's file into `folder`, from one snapshot.

        During the copy, the original file grows by what is written to the store. Raises
        StorageFull or StoreUnavailable.
        """
        try:
            self.env.copy(str(folder), compact=True)
        except lmdb.Error as error:
            domain_error = explained(error, folder)
            raise domain_error or StoreUnavailable(f"cannot copy to {folder}: {error}") from error
        (folder / location.DATA).chmod(FILE_MODE)
        disk.sync(folder / location.DATA)

    def reserve_disk(self) -> None:
        """Allocates the reserve for deletions.

        If the disk has not enough space, logs a warning; each later write tries again.
        """
        if not self._reserve_bytes:
            return
        reserve_bytes = min(self._reserve_bytes, MAX_RESERVE_BYTES)
        self._reserve = Reserve(self.directory / location.DATA, reserve_bytes)
        try:
            self._reserve.allocate(self.used_bytes)
        except StorageFull as error:
            _log.warning("disk_reserve_missing", problem=error.message)

    def close(self) -> None:
        """Closes the environment, then releases the locks."""
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None
        self.env.close()
        for lock in self._locks:
            lock.close()


# Opening a store.


def open_for_writing(directory: Path, reserve_bytes: int = 0) -> Store:
    """Opens or creates a store for the only process that writes to it.

    Writing documents leaves `reserve_bytes` of the disk free. For deletions, the same number of
    bytes, but at most MAX_RESERVE_BYTES, is allocated inside the store's file. Raises
    StoreUnavailable if another process is the writer or the store cannot be opened, and
    StorageFull if it cannot be created.
    """
    location.refuse_network(directory)
    with ExitStack() as undo:
        with location.explained_errors(directory):
            make_folder(directory, exist_ok=True)
            make_folder(directory / location.SEGMENTS, exist_ok=True)
            privacy.tighten(directory)
            users = undo.enter_context(_join(directory))
            indexer = undo.enter_context(store_locks.lock_for_writing(directory))
            shutil.rmtree(directory / location.VACUUM, ignore_errors=True)
        _refuse_lost_data(directory)
        env = _open_env(directory, readonly=False)
        store = Store(env, directory, reserve_bytes, (indexer, users))
        undo.callback(store.close)
        _create_databases(store)
        with location.explained_errors(directory):
            store.reserve_disk()
        undo.pop_all()
    return store


def open_for_reading(directory: Path) -> Store:
    """Opens an existing store for reading; a writer may have it open.

    Raises StoreMissing if there is no store, and StoreUnavailable if it cannot be opened.
    """
    location.require_data(directory, "; an indexer creates one when it starts")
    location.refuse_network(directory)
    privacy.tighten(directory)
    with ExitStack() as undo:
        users = undo.enter_context(_join(directory))
        store = Store(_open_env(directory, readonly=True), directory, locks=(users,))
        undo.callback(store.close)
        _find_databases(store)
        undo.pop_all()
    return store


def open_alone(directory: Path) -> Store:
    """Opens for reading a store that no other process changes.

    It must be a copy, or locked exclusively. Creates no file in the folder. Raises StoreMissing or
    StoreUnavailable.
    """
    location.require_data(directory)
    with ExitStack() as undo:
        store = Store(_open_env(directory, readonly=True, lock=False), directory)
        undo.callback(store.close)
        _find_databases(store)
        undo.pop_all()
    return store


def _create_databases(store: Store) -> None:
    """Creates all databases in a new store; opens the databases of an existing one."""
    if store.env.stat()["entries"]:
        _find_databases(store)
        return
    if any(store.segments.iterdir()):
        raise damaged_pages(store.directory, "it has segments and no database")
    with store.write() as txn:
        for name in schema.DATABASES:
            store.databases[name] = Database.of(name, open_database(store.env, name, txn.raw))
        txn.put_number(schema.SCHEMA, schema.SCHEMA_VERSION)
        txn.meta.put(schema.STORE_ID, uuid.uuid4().hex.encode())


def _find_databases(store: Store) -> None:
    """Opens all databases.

    The schema version is in the first one. It is checked before the others are opened, because
    another version may have other databases.
    """
    is_empty = not store.env.stat()["entries"]
    for name in schema.DATABASES:
        try:
            store.databases[name] = Database.of(name, open_database(store.env, name))
        except lmdb.NotFoundError:
            if is_empty:
                raise StoreMissing(f"{store.directory} holds no complete store yet") from None
            raise damaged_pages(store.directory, f"no database {name!r} is found") from None
        except lmdb.Error as error:
            raise damaged_pages(store.directory, f"opening {name!r}: {error}") from error
        if name == "meta":
            with store.read() as txn:
                _check_schema(store, txn)


def _check_schema(store: Store, txn: Txn) -> None:
    # The value has a checksum or none, depending on the version.
    value = txn.raw.get(schema.SCHEMA, db=store.databases["meta"].handle)
    if value is not None and len(value) == schema.NUMBER_BYTES + SUM_BYTES:
        version = txn.number(schema.SCHEMA)
    else:
        version = 0 if value is None else schema.read_u64(value[: schema.NUMBER_BYTES])
    if version != schema.SCHEMA_VERSION:
        raise StoreUnavailable(
            f"the store in {store.directory} has schema version {version}; this hrag reads "
            f"version {schema.SCHEMA_VERSION} only; ingest the documents into a new store, or use "
            "the hrag that wrote it"
        )


def _open_env(directory: Path, *, readonly: bool, lock: bool = True) -> lmdb.Environment:
    env = open_lmdb(directory, readonly=readonly, lock=lock)
    try:
        env.reader_check()
        _refuse_truncated(env, directory, lock=lock)
    except BaseException:
        env.close()
        raise
    return env


def _join(directory: Path) -> IO[bytes]:
    return store_locks.join(
        directory, when_alone=lambda: _fill_lock_file(directory / location.LOCK)
    )


def _fill_lock_file(path: Path) -> None:
    """Allocates LMDB's whole table of readers on the disk before LMDB maps it.

    LMDB leaves the file sparse, so on a full disk the 60th reader would be killed by SIGBUS. Call
    this only while no process has the file open: closing it drops this process's locks on it.
    """
    if not path.exists() or path.stat().st_blocks * 512 < _LOCK_BYTES:
        with open(path, "ab", opener=opener) as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, _LOCK_BYTES)


def _refuse_lost_data(directory: Path) -> None:
    """Raises StoreUnavailable if creating a store here would hide the loss of an old one."""
    if location.has_data(directory):
        return
    if (directory / RESTORE).exists():
        raise StoreUnavailable(
            f"a restore into {directory} was interrupted; run `hrag restore` again, or name an "
            "empty folder"
        )
    if any((directory / location.SEGMENTS).iterdir()):
        raise StoreUnavailable(
            f"{directory} has segments but no {location.DATA}, which contains the documents: it "
            "was lost, or a restore was interrupted; run `hrag restore`, or name an empty folder"
        )


def _refuse_truncated(env: lmdb.Environment, directory: Path, *, lock: bool) -> None:
    """Raises StoreUnavailable if the end of the data file is missing.

    A file that is too short may still be complete: a transaction may have allocated pages at its
    end and freed them without writing them. So a child process, which may die, reads all pages.
    """
    needed = Store(env, directory).used_bytes
    file_bytes = (directory / location.DATA).stat().st_size
    if file_bytes < needed and not page_probe.every_page_is_readable(directory, lock=lock):
        raise StoreUnavailable(
            f"cannot open the store in {directory}: {location.DATA} is damaged: it has "
            f"{file_bytes:,} of {needed:,} bytes; restore a backup"
        )
