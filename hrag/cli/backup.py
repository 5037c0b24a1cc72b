"""`hrag backup` and `hrag restore`: a copy of a store, and a store made of a copy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from hrag.cli.console import output
from hrag.cli.options import DEFAULT_DATA_DIR, DataDir
from hrag.plain_text import printable

if TYPE_CHECKING:
    from hrag.engine import BackupReport


def backup(
    target: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A new folder for the backup.", show_default=False),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Back a store up while the services keep writing.

    The backup is the store as of one moment, with every document acknowledged before it
    began. It is checked as a whole before DIR appears; until then the work is in
    DIR.partial, which is removed on failure. DIR may be on a network file system. While
    documents are copied, the store's own file grows by what is written meanwhile.

    \b
    Example:
      hrag backup /backups/monday --data-dir /var/lib/hrag
    """
    # Settings and storage are slow to import, and only some commands need them.
    from hrag.cli.administration import open_administration  # noqa: PLC0415
    from hrag.cli.audit_entry import audited  # noqa: PLC0415

    administration = open_administration(data_dir)
    with audited("backup", store=str(data_dir), target=str(target)) as entry:
        report = administration.backup(target, _print)
        entry.update(documents=report.documents, sequence=report.sequence)
    _show("backed up", report, target)


def restore(
    source: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What `hrag backup` made.", show_default=False),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Make a store of a backup, in a data folder that holds none.

    The backup's checksums and the whole store are checked before the store appears. DIR
    stays as it is.

    \b
    Example:
      hrag restore /backups/monday --data-dir /var/lib/hrag
    """
    from hrag.cli.administration import open_administration  # noqa: PLC0415
    from hrag.cli.audit_entry import audited  # noqa: PLC0415

    administration = open_administration(data_dir)
    with audited("restore", store=str(data_dir), source=str(source)) as entry:
        report = administration.restore(source, _print)
        entry.update(documents=report.documents, sequence=report.sequence)
    _show("restored", report, data_dir)


def _print(line: str) -> None:
    output().print(line, markup=False, soft_wrap=True)


def _show(done: str, report: "BackupReport", folder: Path) -> None:
    output().print(
        f"{done} {report.documents:,} documents as of sequence {report.sequence:,} "
        f"({report.created}), {decimal(report.size_bytes)}, in {printable(str(folder))}",
        style="green",
        markup=False,
        soft_wrap=True,
    )
