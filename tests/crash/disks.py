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
    """A file system of its own at `folder`; skips the test where none may be mounted."""
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
    """What may still be written there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class Ballast:
    """A file that takes what is free on a disk."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "ballast"

    def fill(self, leave_bytes: int = 0) -> None:
        """Leaves no more than so much free, though others write meanwhile."""
        with self._path.open("ab") as file:
            while (spare := free_bytes(self._path.parent) - leave_bytes) > 0:
                with suppress(OSError):  # Others were quicker.
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), spare)

    def remove(self) -> None:
        self._path.unlink()
