"""Opens a store and begins its transactions.

A process opens only one LMDB environment for a store, and a forked child process must not use it.
LMDB syncs at every commit, so a change is on disk before the client receives the reply. This module
knows nothing of documents.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

import lmdb
import structlog

from hrag.engine.embedded.store import (
    disk,
    location,
    page_probe,
    privacy,
    schema,
    schema_upgrade,
    store_locks,
)
from hrag.engine.embedded.store.checksums import SUM_BYTES
from hrag.engine.embedded.store.commit_cache import CommitCache
from hrag.engine.embedded.store.compact_copy import write_copy
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
from hrag.host import durable_files
from hrag.host.private_files import FILE_MODE, make_folder, opener
from hrag.values.errors import StorageFull, StoreMissing, StoreUnavailable, StoreUnusable

# `hrag restore` first copies a backup into a folder with this name, inside the store's folder.
RESTORE = "restore.tmp"

_log = structlog.get_logger()

# The bytes of the pages that a small write replaces: LMDB copies each page before it changes it.
_REPLACED_BYTES = 256 << 10
# The disk space in bytes that is allocated for the file lock.mdb: 64 bytes for each open read
# transaction, and 4 KiB more.
_LOCK_BYTES = (MAX_READERS + 64) * 64


class Store:
    """A store that is open in this process: an LMDB environment and its LMDB databases.

    Writes leave `reserve_bytes` of the disk free. The files in `locks` stay open until the store is
    closed; closing these files releases the locks on them.
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

        Keep the transaction short: while it is open, LMDB cannot reuse pages, so writes make the
        file grow. Raises StorageFull, StoreUnavailable or TooBusy for errors that LMDB reports, and
        DataLoss if a value differs from what was stored.
        """
        return _Transaction(self, self._reader, write=False)

    def write(self) -> AbstractContextManager[Txn]:
        """Begins a write transaction, which commits durably at the end of the `with` block.

        If the block raises an exception, the store is unchanged. Raises the same errors as `read`.
        Also raises StoreUnavailable if the store's folder was moved, replaced or removed; see
        `require_place`.
        """
        self.require_place()
        return _Transaction(self, self._writer, write=True)

    @contextmanager
    def growing_write(self, extra_bytes: int) -> Iterator[Txn]:
        """Begins a write transaction that makes the store grow by about `extra_bytes`.

        Works like `write`, but does not use the disk space that is reserved for deletions. If the
        free disk space without this reserve is too small, and deletions have not freed enough pages
        of LMDB's file either, raises StorageFull before anything is written.
        """
        with self.write() as txn:
            if self._reserve is not None:
                self._require_room(self._reserve, txn, extra_bytes + _REPLACED_BYTES)
            yield txn

    def _require_room(self, reserve: Reserve, txn: Txn, extra_bytes: int) -> None:
        try:
            self.require_space(extra_bytes)
            reserve.allocate(self.used_bytes, extra_bytes)
        except StorageFull:
            # Free pages have disk blocks already. LMDB cannot use all of them: a read transaction
            # may see the old contents, and a large value needs neighbouring pages. Then the file
            # grows into the reserve, of which half is kept for deletions.
            free_page_bytes = self.used_bytes - txn.page_bytes()
            if free_page_bytes < extra_bytes or not reserve.half_remains(self.used_bytes):
                raise

    @property
    def used_bytes(self) -> int:
        """The total size of the pages in LMDB's file, in bytes.

        Includes free pages, but not the space after the last page that is reserved for deletions.
        """
        pages: int = self.env.info()["last_pgno"] + 1
        return pages * int(self.env.stat()["psize"])

    def _writer(self, raw: RawTxn) -> Txn:
        return Txn(raw, self.databases, owner_of)

    def _reader(self, raw: RawTxn) -> Txn:
        cache, txn_id = self._cache, raw.id()
        if cache.txn_id != txn_id:
            cache = CommitCache(txn_id)
            # A transaction that sees an older commit must not replace the cache of a newer commit.
            if txn_id > self._cache.txn_id:
                self._cache = cache
        return Txn(raw, self.databases, owner_of, cache)

    def require_place(self) -> None:
        """Raises StoreUnavailable if the store's folder was moved, replaced or removed.

        Without this check, LMDB would continue to write to the file that it has opened, even if the
        file was removed. The kernel deletes a removed file as soon as it is closed, so the new
        documents would be lost. Reads do not need this check and remain possible.
        """
        if location.identity(self._data) != self._identity:
            raise StoreUnavailable(
                f"{self.directory} was moved, replaced or removed while it was in use, so hrag no "
                "longer writes to the store; if the folder was moved, it contains every "
                "acknowledged change: move it back, or set HRAG_DATA_DIR to its new path and "
                "restart the services; if the folder was removed, restore a backup and restart the "
                "services"
            )

    def require_space(self, extra_bytes: int = 0) -> None:
        """Raises StorageFull if a write of `extra_bytes` would leave too little free disk space.

        The write must leave HRAG_DISK_RESERVE_BYTES free for other programs. In addition, the class
        `Reserve` allocates disk blocks for deletions; these blocks are not counted as free.
        """
        free = disk.free_bytes(self.directory)
        if free < self._reserve_bytes + extra_bytes:
            raise StorageFull(
                f"the disk of {self.directory} has {free:,} bytes free; this write needs "
                f"{extra_bytes:,} bytes and must leave {self._reserve_bytes:,} bytes free "
                "(HRAG_DISK_RESERVE_BYTES)"
            )

    def copy_to(self, folder: Path, *, compact: bool = False) -> None:
        """Writes a durable copy of LMDB's file into `folder`, from one snapshot.

        A compact copy has no free pages; damaged pages may end the process that writes it. During
        the copy, LMDB cannot reuse pages, so every write makes the original file grow.
        Raises StorageFull or StoreUnavailable.
        """
        try:
            if compact:
                write_copy(self.env, self.databases, folder)
            else:
                self.env.copy(str(folder))
        except lmdb.Error as error:
            domain_error = explained(error, folder)
            raise domain_error or StoreUnavailable(f"cannot copy to {folder}: {error}") from error
        (folder / location.DATA).chmod(FILE_MODE)
        durable_files.sync(folder / location.DATA)

    def reserve_disk(self) -> None:
        """Allocates the disk blocks that are reserved for deletions.

        If the disk does not have enough space, logs a warning. Each later write that makes the
        store grow tries again to allocate the blocks.
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


class _Transaction(AbstractContextManager[Txn]):
    """A transaction that begins and ends with a `with` block.

    It commits at the end of the block, or aborts if the block raises an exception. Errors of LMDB
    are replaced by errors of hrag. Each search begins a transaction, and a generator as a context
    manager would take twice as long.
    """

    __slots__ = ("_open", "_raw", "_store", "_write")

    def __init__(self, store: Store, open_: Callable[[RawTxn], Txn], *, write: bool) -> None:
        self._store = store
        self._open = open_
        self._write = write

    def __enter__(self) -> Txn:
        try:
            self._raw = raw = self._store.env.begin(write=self._write, buffers=True)
            try:
                return self._open(raw)
            except BaseException:
                # As long as the error refers to the transaction, nobody else could write.
                raw.abort()
                raise
        except lmdb.Error as error:
            self._explain(error)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._raw.__exit__(kind, error, traceback)
        except lmdb.Error as failure:
            self._explain(failure)
            raise
        if isinstance(error, lmdb.Error):
            self._explain(error)

    def _explain(self, error: lmdb.Error) -> None:
        """Raises the error of hrag that explains an error of LMDB, if there is one."""
        domain_error = explained(error, self._store.directory)
        if domain_error is not None:
            raise domain_error from error


# Functions that open a store.


def open_for_writing(directory: Path, reserve_bytes: int = 0, *, upgrades: bool = False) -> Store:
    """Opens a store for writing. Creates the store if it does not exist.

    `upgrades` says if a store of the schema version before this one is upgraded. If not, it is
    refused, because the version of hrag that wrote it could not open it any more.

    Only one process at a time may have a store open for writing. A write of documents is refused if
    it would leave less than `reserve_bytes` of the disk free. In addition, disk blocks inside
    LMDB's file are allocated for deletions: min(`reserve_bytes`, MAX_RESERVE_BYTES) bytes. Raises
    StoreUnavailable if another process has the store open for writing, or if the store cannot be
    opened. Raises StorageFull if the disk is too full to create the store.
    """
    location.refuse_network(directory)
    with ExitStack() as undo:
        with location.explained_errors(directory):
            durable_files.make_folder(directory, exist_ok=True)
            make_folder(directory / location.SEGMENTS, exist_ok=True)
            privacy.make_private(directory)
            users = undo.enter_context(_join(directory))
            indexer = undo.enter_context(store_locks.lock_for_writing(directory))
            shutil.rmtree(directory / location.VACUUM, ignore_errors=True)
        _refuse_lost_data(directory)
        env = _open_env(directory, readonly=False)
        store = Store(env, directory, reserve_bytes, (indexer, users))
        undo.callback(store.close)
        _create_databases(store, upgrades=upgrades)
        with location.explained_errors(directory):
            store.reserve_disk()
        undo.pop_all()
    return store


def open_for_reading(directory: Path) -> Store:
    """Opens an existing store for reading. Another process may have it open for writing.

    Raises StoreMissing if there is no store, and StoreUnavailable if it cannot be opened.
    """
    location.require_data(directory, "; an indexer creates one when it starts")
    location.refuse_network(directory)
    privacy.make_private(directory)
    with ExitStack() as undo:
        users = undo.enter_context(_join(directory))
        store = Store(_open_env(directory, readonly=True), directory, locks=(users,))
        undo.callback(store.close)
        _find_databases(store)
        undo.pop_all()
    return store


def open_alone(directory: Path) -> Store:
    """Opens a store for reading, without LMDB's lock file.

    While the store is open, no other process may change it: the store must be a private copy, or
    the caller must have locked it with `store_locks.exclusive`. Creates no file in the folder.
    Raises StoreMissing or StoreUnavailable.
    """
    location.require_data(directory)
    with ExitStack() as undo:
        store = Store(_open_env(directory, readonly=True, lock=False), directory)
        undo.callback(store.close)
        _find_databases(store)
        undo.pop_all()
    return store


def _create_databases(store: Store, *, upgrades: bool) -> None:
    """Creates all LMDB databases if the store is new; otherwise opens the existing databases.

    If `upgrades`, upgrades a store of the schema version before this one.
    """
    if store.env.stat()["entries"]:
        version = _find_databases(store, upgrades=upgrades)
        if version != schema.SCHEMA_VERSION:
            _log.info("store_upgrading", from_version=version, to_version=schema.SCHEMA_VERSION)
            with store.write() as txn:
                schema_upgrade.upgrade(txn)
            _log.info("store_upgraded", schema_version=schema.SCHEMA_VERSION)
        return
    if any(store.segments.iterdir()):
        raise damaged_pages(store.directory, "the file has no database, but the store has segments")
    # LMDB syncs its file, but not the folder that contains the file. Without a sync of the folder,
    # a power loss could remove the file after writes to it were acknowledged.
    with location.explained_errors(store.directory):
        durable_files.sync(store.directory)
    with store.write() as txn:
        for name in schema.DATABASES:
            store.databases[name] = Database.of(name, open_database(store.env, name, txn.raw))
        txn.put_number(schema.SCHEMA, schema.SCHEMA_VERSION)
        txn.meta.put(schema.STORE_ID, uuid.uuid4().hex.encode())


def _find_databases(store: Store, *, upgrades: bool = False) -> int:
    """Opens all LMDB databases of the store, and returns its schema version.

    Opens the database `meta` first and checks the schema version in it, because a store of another
    version may have other databases. `upgrades` says if the caller upgrades a store of the version
    before this one. Raises StoreMissing, StoreUnavailable or DataLoss.
    """
    version = schema.SCHEMA_VERSION
    is_empty = not store.env.stat()["entries"]
    for name in schema.DATABASES:
        try:
            store.databases[name] = Database.of(name, open_database(store.env, name))
        except lmdb.NotFoundError:
            if is_empty:
                raise StoreMissing(f"{store.directory} holds no complete store yet") from None
            raise damaged_pages(store.directory, f"the database {name!r} is missing") from None
        except lmdb.Error as error:
            raise damaged_pages(
                store.directory, f"the database {name!r} cannot be opened: {error}"
            ) from error
        if name == "meta":
            with store.read() as txn:
                version = _schema_version(store, txn)
            if not (upgrades and version == schema_upgrade.UPGRADED_VERSION):
                _require_version(store, version)
    return version


def _schema_version(store: Store, txn: Txn) -> int:
    # In stores of early schema versions, no checksum follows the version number. Then the number
    # cannot be verified.
    value = txn.raw.get(schema.SCHEMA, db=store.databases["meta"].handle)
    if value is not None and len(value) == schema.NUMBER_BYTES + SUM_BYTES:
        return txn.number(schema.SCHEMA)
    return 0 if value is None else schema.read_u64(value[: schema.NUMBER_BYTES])


def _require_version(store: Store, version: int) -> None:
    """Raises StoreMissing if an indexer upgrades the store, and StoreUnusable if nothing does."""
    if version == schema_upgrade.UPGRADED_VERSION:
        raise StoreMissing(
            f"the store in {store.directory} has schema version {version}; an indexer of this "
            f"version of hrag upgrades it to {schema.SCHEMA_VERSION} when it starts"
        )
    if version != schema.SCHEMA_VERSION:
        raise StoreUnusable(
            f"the store in {store.directory} has schema version {version}; this version of hrag "
            f"reads only schema version {schema.SCHEMA_VERSION}; ingest the documents into a new "
            "store, or use the version of hrag that wrote the store"
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
    """Allocates disk blocks for the whole file `path`, which contains LMDB's table of readers.

    LMDB creates a sparse file and maps it into memory. The first disk block has space for the
    entries of about 60 readers. Without this function, the kernel would kill the next reader with
    SIGBUS if the disk is full, because no disk block can be allocated for the reader's entry.

    Call this function only while no process has the file open, this process included. Otherwise
    closing the file at the end of this function would release the locks that LMDB has on the file
    in this process.
    """
    if not path.exists() or path.stat().st_blocks * 512 < _LOCK_BYTES:
        with open(path, "ab", opener=opener) as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, _LOCK_BYTES)


def _refuse_lost_data(directory: Path) -> None:
    """Raises StoreUnusable if the folder has files of a store, but not LMDB's file.

    LMDB's file contains the documents. Creating a new store in the folder would hide that the
    documents were lost.
    """
    if location.has_data(directory):
        return
    if (directory / RESTORE).exists():
        raise StoreUnusable(
            f"a restore into {directory} was interrupted; run `hrag restore` again, or set "
            "HRAG_DATA_DIR to an empty folder"
        )
    if any((directory / location.SEGMENTS).iterdir()):
        raise StoreUnusable(
            f"{directory} has segments but no {location.DATA}, which contains the documents: this "
            "file was lost, or a restore was interrupted; run `hrag restore`, or set HRAG_DATA_DIR "
            "to an empty folder"
        )


def _refuse_truncated(env: lmdb.Environment, directory: Path, *, lock: bool) -> None:
    """Raises StoreUnusable if the end of the data file is missing.

    A file that is shorter than the size that LMDB has recorded may still have all data: a
    transaction may have allocated pages at the end of the file, and freed them without writing
    them. So if the file is shorter, a child process tries to read all pages in use. If one of these
    pages is past the end of the file, the kernel kills the child, which shows that data is missing.
    """
    needed = Store(env, directory).used_bytes
    file_bytes = (directory / location.DATA).stat().st_size
    if file_bytes < needed and not page_probe.every_page_is_readable(directory, lock=lock):
        raise StoreUnusable(
            f"cannot open the store in {directory}: {location.DATA} is damaged: it has "
            f"{file_bytes:,} of {needed:,} bytes; restore a backup"
        )
