"""The LMDB environment: opening, refusing, transactions, the store's own numbers.

One Environment per process, never across a fork. The reply to a write is sent after its
transaction is on disk: LMDB syncs at every commit. Knows nothing of documents.
"""

import fcntl
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import lmdb

from hrag.engine.embedded import keys
from hrag.errors import StorageFull, StoreMissing, StoreUnavailable

Txn: TypeAlias = "lmdb.Transaction[memoryview]"

_LMDB_0_9 = 0  # lmdb 3 bundles two formats that cannot read each other; this is the older.
# A map cannot grow under open readers, so it is larger than any disk; it is sparse, and
# real use is bounded by the disk.
_MAP_BYTES = 1 << 44
_MAX_READERS = 1024  # Read transactions open at once, over all processes.
_SPARE_READ_TXNS = 64  # Kept for reuse, so that a read transaction costs a fraction of a us.


class Store:
    """An open environment with its databases; `store.db["texts"]` is one of them."""

    def __init__(self, env: lmdb.Environment, directory: Path, lock: IO[bytes] | None) -> None:
        self.env = env
        self.directory = directory
        self.segments = directory / "segments"
        self._lock = lock
        self.db: dict[str, Any] = {}

    @contextmanager
    def read(self) -> Iterator[Txn]:
        """One consistent view; keep it short, or the file grows."""
        with self.env.begin(buffers=True) as txn:
            yield txn

    @contextmanager
    def write(self) -> Iterator[Txn]:
        """Commits durably at the end, or, on any exception, changes nothing."""
        try:
            with self.env.begin(write=True, buffers=True) as txn:
                yield txn
        except (lmdb.DiskError, lmdb.MapFullError) as error:
            raise StorageFull(
                f"the disk of {self.directory} is full; nothing of this write was kept"
            ) from error

    def close(self) -> None:
        self.env.close()
        if self._lock is not None:
            self._lock.close()

    def number(self, txn: Txn, name: bytes) -> int:
        """One of the store's numbers, 0 before its first use."""
        value = txn.get(name, db=self.db["meta"])
        return 0 if value is None else keys.read_u64(value)

    def next_number(self, txn: Txn, name: bytes) -> int:
        """Counts `name` up by one and returns it."""
        number = self.number(txn, name) + 1
        txn.put(name, keys.u64(number), db=self.db["meta"])
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


def open_for_writing(directory: Path) -> Store:
    """Opens or creates a store. One writer process at a time.

    Raises StoreUnavailable if another writer has it, or it cannot be opened.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "segments").mkdir(exist_ok=True)
        lock = _take_lock(directory / "indexer.lock")
    except OSError as error:
        raise StoreUnavailable(f"cannot write to {directory}: {error.strerror}") from error
    with ExitStack() as undo:
        undo.callback(lock.close)
        store = Store(_open_env(directory, readonly=False), directory, lock)
        undo.callback(store.close)
        _create_databases(store)
        undo.pop_all()
    return store


def _create_databases(store: Store) -> None:
    """Creates what is missing, but nothing in a store of another version."""
    with store.write() as txn:
        for name in keys.DATABASES:
            store.db[name] = store.env.open_db(name.encode(), txn=txn)
        if txn.get(keys.SCHEMA, db=store.db["meta"]) is None:
            txn.put(keys.SCHEMA, keys.u64(keys.SCHEMA_VERSION), db=store.db["meta"])
            txn.put(keys.STORE_ID, uuid.uuid4().hex.encode(), db=store.db["meta"])
        _check_schema(store, txn)


def open_for_reading(directory: Path) -> Store:
    """Opens an existing store, beside a writer.

    Raises StoreMissing while there is none, StoreUnavailable if it cannot be opened.
    """
    if not (directory / "data.mdb").exists():
        raise StoreMissing(f"{directory} holds no store; an indexer creates one when it starts")
    with ExitStack() as undo:
        store = Store(_open_env(directory, readonly=True), directory, None)
        undo.callback(store.close)
        _find_databases(store)
        with store.read() as txn:
            _check_schema(store, txn)
        undo.pop_all()
    return store


def _find_databases(store: Store) -> None:
    for name in keys.DATABASES:
        try:
            store.db[name] = store.env.open_db(name.encode(), create=False)
        except lmdb.NotFoundError:
            raise StoreMissing(
                f"{store.directory} holds no complete store: it has no database {name!r}"
            ) from None


def _open_env(directory: Path, *, readonly: bool) -> lmdb.Environment:
    try:
        env = lmdb.open(
            str(directory),
            map_size=_MAP_BYTES,
            max_dbs=len(keys.DATABASES),
            max_readers=_MAX_READERS,
            max_spare_txns=_SPARE_READ_TXNS,
            readonly=readonly,
            lib_version=_LMDB_0_9,
        )
    except lmdb.Error as error:
        raise StoreUnavailable(f"cannot open the store in {directory}: {error}") from error
    env.reader_check()
    return env


def _take_lock(path: Path) -> IO[bytes]:
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StoreUnavailable(
            f"another indexer has the store in {path.parent}; only one may write to it"
        ) from None
    return lock


def _check_schema(store: Store, txn: Txn) -> None:
    version = store.number(txn, keys.SCHEMA)
    if version != keys.SCHEMA_VERSION:
        raise StoreUnavailable(
            f"the store in {store.directory} has schema version {version}; "
            f"this hrag reads version {keys.SCHEMA_VERSION}"
        )
