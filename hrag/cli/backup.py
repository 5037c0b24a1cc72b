"""`hrag backup` and `hrag restore`: a copy of a store, and a store of a copy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from hrag.cli.console import output, printable
from hrag.cli.options import DEFAULT_DATA_DIR, DataDir

if TYPE_CHECKING:
    from hrag.engine.embedded.admin.backup import Backup


def backup(
    target: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A new folder for the backup.", show_default=False),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Back a store up, while the services go on writing.

    The backup is the store as it was at one moment, with every document acknowledged
    before it began. It is checked as a whole before DIR appears; until then the work is in
    DIR.partial, which is removed on failure. DIR may be on a network file system. While
    documents are copied, the store's own file grows by what is written meanwhile.

    \b
    Example:
      hrag backup /backups/monday --data-dir /var/lib/hrag
    """
    # Storage is slow to import, and only some commands need it.
    from hrag.engine.embedded.admin.backup import backup as back_up  # noqa: PLC0415
    from hrag.engine.embedded.store.environment import open_for_reading  # noqa: PLC0415

    store = open_for_reading(data_dir)
    try:
        made = back_up(store, target, _tell)
    finally:
        store.close()
    _show("backed up", made, target)


def restore(
    source: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What `hrag backup` made.", show_default=False),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Make a store of a backup, in a data folder that holds none.

    The backup's checksums and the whole store are checked before it comes into being.
    DIR stays as it is.

    \b
    Example:
      hrag restore /backups/monday --data-dir /var/lib/hrag
    """
    from hrag.engine.embedded.admin.backup import restore as restore_from  # noqa: PLC0415

    _show("restored", restore_from(source, data_dir, _tell), data_dir)


def _tell(line: str) -> None:
    output().print(line, markup=False, soft_wrap=True)


def _show(done: str, made: "Backup", folder: Path) -> None:
    output().print(
        f"{done} {made.documents:,} documents as of sequence {made.sequence:,} "
        f"({made.created}), {decimal(made.size_bytes)}, in {printable(str(folder))}",
        style="green",
        markup=False,
        soft_wrap=True,
    )
