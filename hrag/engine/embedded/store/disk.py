"""Free space on a store's disk, and syncing files to it."""

import errno
import os
from pathlib import Path

# The operating system reports these errors when the disk, a quota or a file is full.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_bytes(directory: Path) -> int:
    """Returns the free bytes on the disk of `directory`, without bytes reserved for root."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def sync(path: Path) -> None:
    """Makes a file's bytes, or a folder's entries, durable with fsync. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
