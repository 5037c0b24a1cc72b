"""Files and folders for their owner alone, whatever the process's umask is.

Services and commands set the umask too, for what libraries create themselves; these
functions are for where it matters that no umask was set.
"""

import os
import stat
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
OTHERS = 0o077
"""The permission bits of everybody but the owner."""


def set_umask() -> None:
    """Makes what this process and its children create private. For the start of a program."""
    os.umask(OTHERS)


def opener(path: str | Path, flags: int) -> int:
    """The argument `opener` of `open`, which then creates files with the mode 0600.

    Raises OSError.
    """
    return os.open(path, flags, FILE_MODE)


def read_secret(path: Path) -> str:
    """Returns the text of a file with a secret, without the blanks around it.

    Raises OSError, or ValueError if others than the owner may use the file or it is empty.
    """
    with path.open(encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & OTHERS:
            raise ValueError(f"its mode is {mode:04o}; a secret needs 0600: chmod 600 {path}")
        secret = file.read().strip()
    if not secret:
        raise ValueError("it is empty")
    return secret


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Creates a folder with the mode 0700, and its parents with those that the umask gives.

    Raises OSError, FileExistsError unless `exist_ok`.
    """
    path.mkdir(FOLDER_MODE, parents=True, exist_ok=exist_ok)
