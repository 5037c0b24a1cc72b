"""Vacuum: frees the disk space of deleted documents.

LMDB's file never shrinks, because LMDB keeps the pages of deleted documents for later writes. A
compact copy of the file has no free pages, and the vacuum replaces the file by this copy. During
the vacuum, no process may have the store open. If the vacuum is interrupted, the store is either
unchanged or completely vacuumed.
"""

import os
import shutil
from contextlib import closing
from pathlib import Path

from hrag.engine.embedded.store import location, schema, store_locks
from hrag.engine.embedded.store.environment import Store, open_alone
from hrag.engine.reports import VacuumReport
from hrag.host import durable_files
from hrag.host.private_files import make_folder
from hrag.values.errors import StoreUnusable


def vacuum(directory: Path) -> VacuumReport:
    """Replaces LMDB's file by a compact copy. Needs additional disk space for the copy.

    Raises StoreMissing or StorageFull. Raises StoreUnavailable, for example if a service is
    running. After an error, the store is unchanged.
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
            # The file lock.mdb need not be replaced: the next process to open the store resets it.
            (folder / location.DATA).replace(data)
            durable_files.sync(directory)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return report


def _copy(directory: Path, folder: Path) -> int:
    """Writes a durable copy of LMDB's file to `folder`, with the same owner as the original file.

    Verifies that the copy has as many entries as the original. Returns the size of the original
    file in bytes, without the space at the end of the file that is reserved for deletions.
    """
    with closing(open_alone(directory)) as store:
        store.copy_to(folder, compact=True)
        used_bytes = store.used_bytes
        with closing(open_alone(folder)) as copy:
            if _entry_counts(copy) != _entry_counts(store):
                raise StoreUnusable(
                    f"the compact copy of {directory} lacks entries; the store is unchanged"
                )
    old = (directory / location.DATA).stat()
    new = folder / location.DATA
    os.chown(new, old.st_uid, old.st_gid)
    durable_files.sync(new)
    return used_bytes


def _entry_counts(store: Store) -> dict[str, int]:
    """Returns a dictionary from the name of each LMDB database to its count of entries.

    The additional key `sequence` has the count of all commits of the store.
    """
    with store.read() as txn:
        return {**txn.entry_counts(), "sequence": txn.number(schema.COMMIT_CURSOR)}
