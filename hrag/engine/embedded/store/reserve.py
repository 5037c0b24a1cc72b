"""A reserve of disk blocks for deletions, allocated inside LMDB's file in advance.

LMDB never changes a page in place, so even a deletion first writes new pages. On a full disk, the
deletion would fail. But even on a full disk, a process can write into disk blocks that are already
allocated for the file. So before a write that may make the store grow, `posix_fallocate` allocates
disk blocks of LMDB's file for all pages in use, for this write, and for the reserve. On a full
disk, deletions write into the blocks of the reserve. Later writes use the pages that the deletions
have freed, as long as half of the reserve remains.

This works on file systems that write in place, for example ext4, XFS and tmpfs. Btrfs and ZFS write
changed blocks to a new location, so a deletion may fail on them in spite of the reserve. On a file
system that cannot allocate blocks there is no reserve.
"""

import errno
import os
from pathlib import Path

import structlog

from hrag.engine.embedded.store.disk import FULL_DISK
from hrag.values.errors import StorageFull

_log = structlog.get_logger()

MAX_RESERVE_BYTES = 64 << 20
"""The maximum size of the reserve.

This is enough for hundreds of deletions, even if an open read transaction prevents LMDB from
reusing the pages that the deletions free."""
# Each allocation includes this many bytes more than needed, so that the next small writes need no
# system call.
_STEP_BYTES = 1 << 20
# The error numbers that `posix_fallocate` raises on a file system that cannot allocate blocks.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)


class Reserve:
    """Allocates disk blocks for the pages of LMDB's file, and for a reserve after the pages.

    The reserve has `reserve_bytes`. If `reserve_bytes` is 0, nothing is allocated. Only the process
    that has opened the store for writing may use this class.

    No other transaction may write during a call of `allocate`. So call it inside a write
    transaction, or before the first write transaction. The reason: on a file system that cannot
    allocate blocks, the C library writes zeros into the file instead, and these zeros could replace
    the bytes of another transaction.
    """

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._allocated = 0

    def allocate(self, used_bytes: int, extra_bytes: int = 0) -> None:
        """Allocates disk blocks for the pages in use, a write of `extra_bytes`, and the reserve.

        `used_bytes` is the size of the pages in use. Before the first call, parts of these pages
        may have no disk blocks. After the call, all of these pages have disk blocks. Raises
        StorageFull if the disk does not have enough free blocks.
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

    def half_remains(self, used_bytes: int) -> bool:
        """Returns True if at least half of the reserve is allocated after the pages in use.

        Returns False on a file system that cannot allocate blocks.
        """
        if not self._reserve_bytes:
            return False
        return self._allocated >= used_bytes + self._reserve_bytes // 2

    def close(self) -> None:
        """Closes this object's descriptor of LMDB's file. The allocated blocks stay allocated."""
        os.close(self._descriptor)
