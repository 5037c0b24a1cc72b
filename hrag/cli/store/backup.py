"""`hrag backup` and `hrag restore`: a copy of a store, and a store made of a copy."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from hrag.cli.options.shared import DEFAULT_DATA_DIR, AsJson, DataDir
from hrag.cli.terminal.console import print_json, print_line

if TYPE_CHECKING:
    from hrag.engine import BackupReport


def backup(
    target: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A new folder for the backup.", show_default=False),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Back a store up while the services keep writing.

    The backup is the store as of one moment, with every document acknowledged before it
    began. It is checked as a whole before DIR appears; until then the work is in
    DIR.partial, which is removed on failure; one that is not of an interrupted backup is
    refused. DIR may be on a network file system. While documents are copied, the store's own
    file grows by what is written meanwhile.

    \b
    Example:
      hrag backup /backups/monday --data-dir /var/lib/hrag
    """
    # Settings and storage are slow to import, and only some commands need them.
    from hrag.cli.store.administration import open_store  # noqa: PLC0415
    from hrag.cli.store.audit_entry import audited  # noqa: PLC0415

    store = open_store(data_dir)
    with audited("backup", store=store.location, target=str(target)) as entry:
        report = store.administration().backup(target, _ignore if as_json else print_line)
        entry.update(documents=report.documents, sequence=report.sequence)
    _show("backed up", report, target, as_json=as_json)


def restore(
    source: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What `hrag backup` made.", show_default=False),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Make a store of a backup, in a data folder that holds none.

    The backup's checksums and the whole store are checked before the store appears. DIR
    stays as it is.

    \b
    Example:
      hrag restore /backups/monday --data-dir /var/lib/hrag
    """
    from hrag.cli.store.administration import open_store  # noqa: PLC0415
    from hrag.cli.store.audit_entry import audited  # noqa: PLC0415

    store = open_store(data_dir)
    with audited("restore", store=store.location, source=str(source)) as entry:
        report = store.administration().restore(source, _ignore if as_json else print_line)
        entry.update(documents=report.documents, sequence=report.sequence)
    _show("restored", report, data_dir, as_json=as_json)


def _ignore(_line: str) -> None:
    """Progress is not shown with --json."""


def _show(done: str, report: "BackupReport", folder: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(folder), **asdict(report)})
        return
    print_line(
        f"{done} {report.documents:,} documents as of sequence {report.sequence:,} "
        f"({report.created}), {decimal(report.size_bytes)}, in {folder}",
        style="green",
    )
