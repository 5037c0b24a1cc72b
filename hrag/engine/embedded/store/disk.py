"""Measures the free space on a store's disk, and explains the errors of a full disk."""

import errno
import os
from pathlib import Path

# What the errors mean that a write causes when there is no space for it.
_FULL = {
    errno.ENOSPC: "the disk of {} is full",
    errno.EDQUOT: "the disk quota of the user of this process is used up in {}",
    errno.EFBIG: "a file in {} is as large as the file system, or ulimit -f, allows",
}
FULL_DISK = frozenset(_FULL)
"""The numbers of the errors (errno) that mean that there is no space for a write."""


def no_space(code: int, directory: Path) -> str:
    """Returns what the error with the number `code` means, which must be one of FULL_DISK."""
    return _FULL[code].format(directory)


def free_bytes(directory: Path) -> int:
    """Returns how many bytes are free on the disk of `directory`.

    Bytes that the file system reserves for root are not counted.
    """
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
