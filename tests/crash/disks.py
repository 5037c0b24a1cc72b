"""A disk so small that a test can fill it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

KIB = 1024
MIB = 1024 * KIB


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mounts a file system of this size at `folder`; skips the test if that is not permitted."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    """Returns how many bytes may still be written to the file system of `folder`."""
    statistics = os.statvfs(folder)
    return statistics.f_bavail * statistics.f_frsize


class Ballast:
    """A file that occupies the free space of a disk."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "ballast"

    def fill(self, leave_bytes: int = 0) -> None:
        """Grows the file until at most `leave_bytes` of the disk are free.

        Other processes may write at the same time.
        """
        with self._path.open("ab") as file:
            while (spare := free_bytes(self._path.parent) - leave_bytes) > 0:
                with suppress(OSError):  # Another process has used the space first.
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), spare)

    def remove(self) -> None:
        """Deletes the file, so that the disk has free space again."""
        self._path.unlink()
