"""Creates files and folders that only their owner may use, even if the umask allows more.

Services and commands also set the umask, for files that libraries create. The functions of this
module do not rely on the umask.
"""

import os
import stat
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
OTHERS = 0o077
"""The permission bits of everybody except the owner."""


def set_umask() -> None:
    """Makes all files private that this process and its children create.

    Call it at the start of a program.
    """
    os.umask(OTHERS)


def opener(path: str | Path, flags: int) -> int:
    """Opens the file at `path` and returns its file descriptor. A new file gets the mode 0600.

    Pass this function as the argument `opener` of Python's `open`. Raises OSError.
    """
    return os.open(path, flags, FILE_MODE)


def read_secret(path: Path) -> str:
    """Returns the text of a file that contains a secret, without surrounding white space.

    Raises OSError. Raises ValueError if the file is empty, or if its mode allows anybody except the
    owner to use it.
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
    """Creates a folder with the mode 0700. Missing parent folders get the mode that the umask sets.

    If the folder exists, raises FileExistsError; with `exist_ok`, does nothing instead. Raises
    OSError if the folder cannot be created.
    """
    path.mkdir(FOLDER_MODE, parents=True, exist_ok=exist_ok)
