"""A reserve of disk blocks for deletions, allocated inside LMDB's file in advance.

LMDB never changes a page in place, so even a deletion first writes new pages. Other files cannot
use blocks that LMDB's file already has, and writing into these blocks never fails with a full disk.
So before a write that may grow the store, the file gets the blocks for all pages in use, for that
write, and for the reserve. Deletions use blocks of the reserve, and the pages that they free
are used again.

This works on file systems that write in place, for example ext4, XFS and tmpfs. Btrfs and ZFS
copy blocks when they write, so there the reserve helps only in most cases. On a file system that
cannot allocate blocks there is no reserve.
"""

import errno
import os
from pathlib import Path

import structlog

from hrag.engine.embedded.store.disk import FULL_DISK
from hrag.values.errors import StorageFull

_log = structlog.get_logger()

MAX_RESERVE_BYTES = 64 << 20
"""More than hundreds of deletions need while a read transaction keeps their old pages in use."""
# Allocating in larger steps avoids a system call for every small document.
_STEP_BYTES = 1 << 20
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)


class Reserve:
    """Blocks of LMDB's file, allocated up to `reserve_bytes` after the pages in use.

    With 0 `reserve_bytes` nothing is allocated. Only the process that has opened the store for
    writing may use a reserve. Its methods are called inside a write transaction, or before there
    can be one. The reason: where a file system cannot allocate, the C library writes zeros
    instead, and no transaction may write there meanwhile.
    """

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._allocated = 0

    def allocate(self, used_bytes: int, extra_bytes: int = 0) -> None:
        """Allocates blocks for the `used_bytes`, for `extra_bytes` more, and for the reserve.

        Raises StorageFull if the disk does not have enough. Before the first call, the part of the
        file that is in use may have holes; afterwards it has none.
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
                f"the disk of {self._path.parent} is full: this write would use some of the "
                f"{self._reserve_bytes:,} bytes that HRAG_DISK_RESERVE_BYTES keeps for deletions"
            ) from error

    def _fallocate(self, end: int) -> None:
        os.posix_fallocate(self._descriptor, self._allocated, end - self._allocated)
        self._allocated = end

    def close(self) -> None:
        """Closes the file; the blocks stay allocated."""
        os.close(self._descriptor)
