"""Vacuum: gives the disk back what deleted documents took.

LMDB's file never shrinks: freed pages wait in it for later writes. A compact copy leaves
them out. No process may have the store open meanwhile, for the copy replaces the file. If
it is interrupted, the store is either as before or vacuumed.
"""

import os
import shutil
from contextlib import closing
from pathlib import Path

from hrag.engine.embedded.store import disk, location, schema, store_locks
from hrag.engine.embedded.store.environment import Store, open_alone
from hrag.engine.reports import VacuumReport
from hrag.host.private_files import make_folder
from hrag.values.errors import StoreUnavailable


def vacuum(directory: Path) -> VacuumReport:
    """Replaces LMDB's file by a compact copy; needs disk space for both meanwhile.

    Raises StoreMissing, StorageFull, or StoreUnavailable while a service runs; then the
    store is as before.
    """
    location.require_data(directory)
    data = directory / location.DATA
    folder = directory / location.VACUUM
    with store_locks.exclusive(directory), location.explained_errors(directory):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            make_folder(folder)
            before_bytes = _copy(directory, folder)
            report = VacuumReport(before_bytes, (folder / location.DATA).stat().st_size)
            # lock.mdb may stay: the first process to open a store writes its contents anew.
            (folder / location.DATA).replace(data)
            disk.sync(directory)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return report


def _copy(directory: Path, folder: Path) -> int:
    """Makes a durable, verified copy with the owner of the file.

    Returns the size of what is copied, without the reserve for deletions.
    """
    with closing(open_alone(directory)) as store:
        store.copy_to(folder)
        used_bytes = store.used_bytes
        with closing(open_alone(folder)) as copy:
            if _contents(copy) != _contents(store):
                raise StoreUnavailable(
                    f"the compact copy of {directory} lacks entries; the store is as before"
                )
    old = (directory / location.DATA).stat()
    new = folder / location.DATA
    os.chown(new, old.st_uid, old.st_gid)
    disk.sync(new)
    return used_bytes


def _contents(store: Store) -> dict[str, int]:
    """The number of entries of each database, and of the last commit."""
    with store.read() as txn:
        counted = {name: txn.stat(database)["entries"] for name, database in store.db.items()}
        return {**counted, "sequence": store.number(txn, schema.COMMIT_CURSOR)}
