"""Free space on a store's disk, and syncing files to it."""

import errno
import os
from pathlib import Path

# The error numbers that mean: the disk is full, a disk quota is used up, or a file is too large.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_bytes(directory: Path) -> int:
    """Returns the free bytes on the disk of `directory`, without bytes reserved for root."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def sync(path: Path) -> None:
    """Calls fsync for a file or a folder, so that its bytes or entries are durable.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
