"""The disk that deletions need: allocated inside LMDB's file before anybody needs it.

LMDB never changes a page in place: to delete, it first writes. Blocks that the file has
already cannot be taken by others, and writing into them never meets a full disk. So before a
write that may grow the store, the file has the blocks of all pages in use, of that write and
of the reserve; deletions take theirs from the reserve, and what they free is used again.

Holds for file systems that write in place, such as ext4, XFS and tmpfs; Btrfs and ZFS copy
what is written, so there the reserve is only likely to help. One that cannot allocate has no
reserve.
"""

import errno
import os
from pathlib import Path

import structlog

from hrag.engine.embedded.store.disk import FULL_DISK
from hrag.values.errors import StorageFull

_log = structlog.get_logger()

MAX_RESERVE_BYTES = 64 << 20
"""More than hundreds of deletions take while a reader keeps their old pages."""
_STEP_BYTES = 1 << 20  # So that not every small document asks the file system.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)


class Reserve:
    """Blocks of LMDB's file, allocated `reserve_bytes` past what is in use; 0 for none.

    Only for the process that has the store for writing. Its methods are called within a
    write transaction, or before there can be any: where a file system cannot allocate, the
    C library writes zeros instead, and nobody else may write there meanwhile.
    """

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._allocated = 0

    def allocate(self, used_bytes: int, extra_bytes: int = 0) -> None:
        """Has the blocks of `used_bytes`, of `extra_bytes` more and of the reserve allocated.

        Raises StorageFull if the disk does not have them. What is in use may have holes
        before the first call, none afterwards.
        """
        end = used_bytes + extra_bytes + self._reserve_bytes
        if not self._reserve_bytes or end <= self._allocated:
            return
        try:
            self._fallocate(end + _STEP_BYTES)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                _log.warning("disk_reserve_unsupported", problem=str(error), file=str(self._path))
                self._reserve_bytes = 0
            elif error.errno not in FULL_DISK:
                raise
            else:
                self._fallocate_last(end)

    def _fallocate_last(self, end: int) -> None:
        try:
            self._fallocate(end)
        except OSError as error:
            raise StorageFull(
                f"the disk of {self._path.parent} is full: this write would take of the "
                f"{self._reserve_bytes:,} bytes that HRAG_DISK_RESERVE_BYTES keeps for deletions"
            ) from error

    def _fallocate(self, end: int) -> None:
        os.posix_fallocate(self._descriptor, self._allocated, end - self._allocated)
        self._allocated = end

    def close(self) -> None:
        """Closes the file; the blocks stay allocated."""
        os.close(self._descriptor)
