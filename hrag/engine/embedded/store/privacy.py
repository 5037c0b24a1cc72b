"""Restricts access to a store's files to their owner.

hrag creates files with mode 0600 and folders with mode 0700. The modes of a store's files may give
access to other users if an earlier version of hrag created the files, or if the files were copied
or mounted. Opening the store removes the access of other users. The store's folder itself may
belong to another user, for example if it is the root of a volume. Then the mode of this folder
stays unchanged, and no warning is logged.
"""

from collections.abc import Iterator
from pathlib import Path

import structlog

from hrag.engine.embedded.store import location
from hrag.host.private_files import OTHERS

_log = structlog.get_logger()

_MODES = 0o7777


def make_private(directory: Path) -> None:
    """Removes the access of other users to the store's files, and logs the count of changed files.

    If this process may not change the mode of some files, logs a warning that names one of them.
    """
    changed, refused = 0, list[Path]()
    for path in _open_to_others(directory):
        try:
            path.chmod(path.stat().st_mode & _MODES & ~OTHERS)
            changed += 1
        except FileNotFoundError:
            continue  # Another process has deleted the file, because its segment was replaced.
        except OSError:
            refused.append(path)
    if changed:
        _log.info("files_made_private", folder=str(directory), files=changed)
    refused = [path for path in refused if path != directory]
    if refused:
        _log.warning(
            "files_not_private",
            problem=f"{refused[0]} can be used by others, and this process may not change that",
            files=len(refused),
            remedy=f"as its owner, run chmod -R go= {directory}",
        )


def _open_to_others(directory: Path) -> Iterator[Path]:
    """Yields the files and folders that other users may access.

    The files in a folder are yielded before the folder. A folder that other users cannot enter is
    skipped with all its files.
    """
    for name in location.FILES:
        path = directory / name
        if _is_open(path):
            if path.is_dir():
                yield from filter(_is_open, path.rglob("*"))
            yield path
    if _is_open(directory):
        yield directory


def _is_open(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & OTHERS) and not path.is_symlink()
    except OSError:
        return False
