"""Are a store's files for their owner alone?

What hrag creates has the mode 0600, folders 0700. A store of an earlier version, or one that
was copied or mounted with wider modes, is tightened when it is opened. The data folder itself
may be an operator's, such as the root of a volume: then it stays as it is.
"""

from collections.abc import Iterator
from pathlib import Path

import structlog

from hrag.engine.embedded.store import location
from hrag.host.private_files import OTHERS

_log = structlog.get_logger()

_MODES = 0o7777


def tighten(directory: Path) -> None:
    """Takes everybody else's access from the store's files and logs what was changed, once.

    Logs a warning that names a file whose mode may not be changed.
    """
    changed, refused = 0, list[Path]()
    for path in _open_to_others(directory):
        try:
            path.chmod(path.stat().st_mode & _MODES & ~OTHERS)
            changed += 1
        except FileNotFoundError:
            continue  # A segment that was replaced meanwhile.
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
    """Yields what others may use: the content of a folder before the folder itself.

    The content of a folder that others cannot enter is not looked at.
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
