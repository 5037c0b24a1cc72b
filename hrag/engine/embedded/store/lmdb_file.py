"""How is LMDB's file opened, and what do LMDB's errors mean?

Knows which options and databases an environment has; nothing of locks or of what is stored.
"""

import errno
from pathlib import Path
from typing import Any

import lmdb

from hrag.engine.embedded.store import location, schema
from hrag.engine.embedded.store.disk import FULL_DISK
from hrag.host.private_files import FILE_MODE
from hrag.values.errors import DataLoss, HragError, StorageFull, StoreUnavailable, TooBusy

# Read transactions open at once, over all processes: 256 workers of 16 threads and more.
MAX_READERS = 6144

_LMDB_0_9 = 0  # lmdb 3 bundles two formats that cannot read each other; this is the older.
# A map cannot grow under open readers, so it is larger than any disk; it is sparse, and
# real use is bounded by the disk.
_MAP_BYTES = 1 << 44
_SPARE_READ_TXNS = 64  # Kept for reuse, so that a read transaction costs a fraction of a us.

_DAMAGED = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.CursorFullError)
_FOREIGN = (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError)


def open_lmdb(directory: Path, *, readonly: bool, lock: bool) -> lmdb.Environment:
    """Returns the environment in `directory`, or raises StoreUnavailable.

    Does not notice a file whose end is missing; see `page_probe`.
    """
    try:
        return lmdb.open(
            str(directory),
            map_size=_MAP_BYTES,
            max_dbs=len(schema.DATABASES),
            max_readers=MAX_READERS,
            max_spare_txns=_SPARE_READ_TXNS,
            mode=FILE_MODE,
            readonly=readonly,
            lock=lock,
            lib_version=_LMDB_0_9,
        )
    except lmdb.Error as error:
        if isinstance(error, _FOREIGN):
            reason = f"{location.DATA} is damaged or not LMDB's ({error}); restore a backup"
        elif getattr(error, "code", 0) == errno.EACCES:
            reason = location.explanation(directory, str(error))
        else:
            reason = str(error)
        raise StoreUnavailable(f"cannot open the store in {directory}: {reason}") from error


def open_database(
    env: lmdb.Environment, name: str, creating: "lmdb.Transaction[memoryview] | None" = None
) -> Any:
    """Returns the database's handle; in the transaction `creating` it may be created.

    Raises lmdb.NotFoundError.
    """
    many = name in schema.MANY_VALUED
    return env.open_db(
        name.encode(), creating, create=creating is not None, dupsort=many, dupfixed=many
    )


def damaged_pages(directory: Path, reason: str) -> DataLoss:
    """The error for damage to what LMDB itself keeps in its file, which nothing mends."""
    return DataLoss(
        f"{directory / location.DATA} is damaged in LMDB's own pages ({reason}); "
        "`hrag check` finds what can still be read; restore a backup"
    )


def explained(error: lmdb.Error, directory: Path) -> HragError | None:
    """Returns the domain error that LMDB's error means for an operator; None if unknown."""
    code = getattr(error, "code", 0)
    if code in FULL_DISK or isinstance(error, (lmdb.DiskError, lmdb.MapFullError)):
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
        return damaged_pages(directory, str(error))
    if isinstance(error, lmdb.ReadersFullError):
        return TooBusy(f"{MAX_READERS:,} read transactions are open on {directory}")
    return None
