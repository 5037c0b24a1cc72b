"""The disk below a store: has it space, and are files on it durable?"""

import errno
import os
from pathlib import Path

# What the operating system reports when the disk, a quota or a file can take no more bytes.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_bytes(directory: Path) -> int:
    """Returns the free bytes on the disk of `directory`, without those reserved for root."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def sync(path: Path) -> None:
    """Makes a file's bytes, or a folder's entries, durable with fsync. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
