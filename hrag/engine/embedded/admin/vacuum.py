"""Gives the disk back what deleted documents took.

LMDB's file never shrinks: freed pages wait in it for later writes. A compact copy leaves
them out. Nobody may have the store open meanwhile, for the copy takes the file's place.
Ended anywhere, the store is as before or compacted.
"""

import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hrag.engine.embedded.store import location, schema
from hrag.engine.embedded.store.environment import COMPACTING, Store, open_alone
from hrag.errors import StoreMissing, StoreUnavailable


@dataclass(frozen=True, slots=True)
class Compaction:
    """Bytes of LMDB's file."""

    before_bytes: int
    after_bytes: int


def compact(directory: Path) -> Compaction:
    """Replaces LMDB's file by a compact copy; needs the space of both meanwhile.

    Raises StoreMissing, StorageFull, or StoreUnavailable while a service runs; then the
    store is as before.
    """
    data = directory / location.DATA
    if not data.exists():
        raise StoreMissing(f"{directory} holds no store")
    folder = directory / COMPACTING
    with location.exclusive(directory), location.explained(directory):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
            _copy(directory, folder)
            done = Compaction(data.stat().st_size, (folder / location.DATA).stat().st_size)
            # lock.mdb may stay: who opens a store that nobody has makes its contents anew.
            (folder / location.DATA).replace(data)
            location.sync(directory)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return done


def _copy(directory: Path, folder: Path) -> None:
    """A durable, verified copy that belongs to whom the file belongs."""
    with closing(open_alone(directory)) as store:
        store.copy_to(folder)
        with closing(open_alone(folder)) as copy:
            if _contents(copy) != _contents(store):
                raise StoreUnavailable(
                    f"the compact copy of {directory} lacks entries; the store is as before"
                )
    old = (directory / location.DATA).stat()
    new = folder / location.DATA
    os.chown(new, old.st_uid, old.st_gid)
    new.chmod(old.st_mode & 0o7777)
    location.sync(new)


def _contents(store: Store) -> dict[str, int]:
    """How many entries each database has, and the last change."""
    with store.read() as txn:
        counted = {name: txn.stat(database)["entries"] for name, database in store.db.items()}
        return {**counted, "sequence": store.number(txn, schema.COMMIT_CURSOR)}
