"""Measures the free space on a store's disk, and syncs files to the disk."""

import errno
import os
from pathlib import Path

# The error numbers for a full disk, for a disk quota that is used up, and for a file that is larger
# than the file system allows.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_bytes(directory: Path) -> int:
    """Returns how many bytes are free on the disk of `directory`.

    Bytes that the file system reserves for root are not counted.
    """
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def sync(path: Path) -> None:
    """Calls fsync for a file or a folder, so that what was written to it is durable.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
