"""Opens LMDB's file and translates LMDB's errors into errors for operators.

Knows which options and databases an environment has. Knows nothing of locks or of stored values.
"""

import errno
from pathlib import Path
from typing import Any

import lmdb

from hrag.engine.embedded.store import location, schema
from hrag.engine.embedded.store.disk import FULL_DISK
from hrag.host.private_files import FILE_MODE
from hrag.values.errors import DataLoss, HragError, StorageFull, StoreUnavailable, TooBusy

# The limit for open read transactions in all processes together. It suffices for more than 256
# workers with 16 threads each.
MAX_READERS = 6144

# The package lmdb 3 supports two incompatible file formats; this number means the older one.
_LMDB_0_9 = 0
# A map cannot grow while readers have it open, so it is larger than any disk. The map is sparse,
# so only the disk limits the real size.
_MAP_BYTES = 1 << 44
# Read transactions are kept for reuse, so that beginning one takes a fraction of a microsecond.
_SPARE_READ_TXNS = 64

_DAMAGED = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.CursorFullError)
_FOREIGN = (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError)


def open_lmdb(directory: Path, *, readonly: bool, lock: bool) -> lmdb.Environment:
    """Opens the environment in `directory` and returns it. Raises StoreUnavailable.

    Does not detect that the end of a file is missing; `page_probe` does.
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
    """Returns the handle of a database.

    The database is created if it is missing and `creating`, a write transaction, is passed.
    Otherwise raises lmdb.NotFoundError if it is missing.
    """
    many_valued = name in schema.MANY_VALUED
    return env.open_db(
        name.encode(),
        creating,
        create=creating is not None,
        dupsort=many_valued,
        dupfixed=many_valued,
    )


def damaged_pages(directory: Path, reason: str) -> DataLoss:
    """Returns the error for damage to LMDB's page structure, which cannot be mended."""
    return DataLoss(
        f"{directory / location.DATA} is damaged in LMDB's own pages ({reason}); "
        "`hrag check` finds what can still be read; restore a backup"
    )


def explained(error: lmdb.Error, directory: Path) -> HragError | None:
    """Returns an error that explains LMDB's error to an operator.

    Returns None for an error that this function does not know.
    """
    code = getattr(error, "code", 0)
    if code in FULL_DISK or isinstance(error, (lmdb.DiskError, lmdb.MapFullError)):
        return StorageFull(f"the disk of {directory} is full; nothing of this write was kept")
    # LMDB also reports EIO when the disk accepted only a part of a write.
    if code == errno.EIO:
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
