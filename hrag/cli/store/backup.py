"""`hrag backup` and `hrag restore`: copy a store, and create a store from a copy."""

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
    """Back a store up, also while the services are writing.

    The backup is the state of the store at one moment. It contains every document that was
    acknowledged before the backup began. The copy is written to DIR.partial, checked completely,
    and then renamed to DIR. DIR.partial is removed on failure; if it exists already and is not
    from an interrupted backup, the command refuses to run. DIR may be on a network file system.
    During the copy the store's file grows by everything that is written, because space is not
    reused.

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
        typer.Argument(
            metavar="DIR", help="The folder that `hrag backup` wrote.", show_default=False
        ),
    ],
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Create a store from a backup, in a data folder without a store.

    The backup's checksums and the whole store are checked before the store appears. DIR is not
    changed.

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
    """Does nothing; with --json the progress is not shown."""


def _show(action: str, report: "BackupReport", folder: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(folder), **asdict(report)})
        return
    print_line(
        f"{action} {report.documents:,} documents as of sequence {report.sequence:,} "
        f"({report.created}), {decimal(report.size_bytes)}, in {folder}",
        style="green",
    )
