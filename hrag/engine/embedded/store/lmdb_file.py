"""Opens LMDB's file and translates LMDB's errors into errors for operators.

This module knows the options and the databases of an LMDB environment. It knows nothing of locks or
of stored values.
"""

import errno
from pathlib import Path
from typing import Any

import lmdb

from hrag.engine.embedded.store import location, schema
from hrag.engine.embedded.store.disk import FULL_DISK, no_space
from hrag.host.private_files import FILE_MODE
from hrag.values.errors import DataLoss, HragError, StorageFull, StoreUnavailable, TooBusy

# The maximum count of open read transactions in all processes together. It is enough for 256
# worker processes with 16 threads each, and some more.
MAX_READERS = 6144

# Version 3 of the package lmdb supports two incompatible file formats. This value selects the older
# format.
_LMDB_0_9 = 0
# The size of LMDB's memory map, 16 TiB. A map cannot grow while readers have it open, so it is made
# larger than any disk. LMDB's file is sparse, so only the disk limits its real size.
_MAP_BYTES = 1 << 44
# The package lmdb keeps at most this many ended read transactions and reuses them. Beginning a read
# transaction that is reused takes a fraction of a microsecond.
_SPARE_READ_TXNS = 64

# The errors that LMDB raises when it reads a damaged page of an open file.
_DAMAGED = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.CursorFullError)
# The errors that LMDB raises when it opens a file that is damaged or is not an LMDB file.
_FOREIGN = (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError)


def open_lmdb(
    directory: Path, *, readonly: bool, lock: bool, sync: bool = True
) -> lmdb.Environment:
    """Opens the LMDB environment in `directory` and returns the environment.

    Without `sync`, a commit is not durable until the caller syncs the environment.

    Raises StorageFull if the disk is full, and StoreUnavailable if the environment cannot be
    opened. Does not detect that the end of LMDB's file is missing; the module `page_probe` detects
    this.
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
            sync=sync,
            lib_version=_LMDB_0_9,
        )
    except lmdb.Error as error:
        if getattr(error, "code", 0) in FULL_DISK:
            raise StorageFull(no_space(error.code, directory)) from error
        if isinstance(error, _FOREIGN):
            reason = f"{location.DATA} is damaged or no LMDB file ({error}); restore a backup"
        else:
            reason = location.explanation(directory, getattr(error, "code", 0), str(error))
        raise StoreUnavailable(f"cannot open the store in {directory}: {reason}") from error


def open_database(
    env: lmdb.Environment, name: str, creating: "lmdb.Transaction[memoryview] | None" = None
) -> Any:
    """Returns LMDB's handle of a database.

    If the database is missing, creates it in the write transaction `creating`. Without `creating`,
    raises lmdb.NotFoundError.
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
    """Returns the error to raise for damaged pages of LMDB, which hrag cannot repair.

    `reason` says how the damage was noticed.
    """
    return DataLoss(
        f"{directory / location.DATA} is damaged in LMDB's own pages ({reason}); "
        "`hrag check` finds what can still be read; restore a backup"
    )


def explained(error: lmdb.Error, directory: Path) -> HragError | None:
    """Returns an error of hrag that explains an error of LMDB to an operator.

    Returns None if LMDB's error is of an unexpected kind.
    """
    code = getattr(error, "code", 0)
    if code in FULL_DISK or isinstance(error, (lmdb.DiskError, lmdb.MapFullError)):
        problem = no_space(code if code in FULL_DISK else errno.ENOSPC, directory)
        return StorageFull(f"{problem}; nothing of this write was stored")
    # LMDB also reports EIO when the disk accepted only a part of a write, so the disk may be full.
    if code == errno.EIO:
        return StorageFull(
            f"the disk of {directory} is full or failing; nothing of this write was stored"
        )
    if isinstance(error, lmdb.PanicError):
        return StoreUnavailable(
            f"the disk of {directory} failed while the first pages of {location.DATA} were "
            "written; restart the services when the disk works again"
        )
    if isinstance(error, _DAMAGED):
        return damaged_pages(directory, str(error))
    if isinstance(error, lmdb.ReadersFullError):
        return TooBusy(
            f"{MAX_READERS:,} read transactions are open on the store in {directory}, "
            "and no more are allowed"
        )
    return None
