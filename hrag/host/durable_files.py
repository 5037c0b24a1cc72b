"""Makes changes of files and folders durable, so that they remain after a power loss.

The content of a file is durable after a sync of the file. Its name is durable only after a sync of
the folder that contains the file. So whoever creates, renames or removes a file syncs the folder
too, before reporting success.
"""

import os
from pathlib import Path

from hrag.host import private_files


def sync(path: Path) -> None:
    """Calls fsync for a file or a folder, so that what was written to it is durable.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Creates a private folder, and missing parent folders, durably.

    If the folder exists, raises FileExistsError; with `exist_ok`, does nothing instead. Raises
    OSError if a folder cannot be created or synced.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    private_files.make_folder(path, exist_ok=exist_ok)
    for folder in missing:
        sync(folder.parent)
