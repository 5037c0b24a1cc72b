"""Commands that administer a whole store, without the services.

`hrag backup` and `hrag restore` copy it, `hrag check` verifies it, and `hrag reindex` and
`hrag vacuum` rebuild parts of it. `hrag postgres migrate` changes the schema of a store in
PostgreSQL to that of the installed version of hrag. These commands open the store's engine
themselves. Their changes are recorded in the audit log, and so are the changes of `hrag migrate`
and `hrag keys`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from hrag.cli.options import DEFAULT_DATA_DIR, AsJson, DataDir
from hrag.cli.terminal import (
    ExitCode,
    Failure,
    interrupt_on_signals,
    output,
    print_json,
    print_line,
    show_note,
)
from hrag.text.noun_counts import counted
from hrag.text.plain_text import printable
from hrag.values.errors import DataLoss, HragError

if TYPE_CHECKING:
    from hrag.engine import BackupReport, CheckReport, Engine

CANNOT_CHECK = ExitCode.USAGE
"""The exit code of `hrag check` if the store cannot be checked or repaired."""


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
    During the copy, the store's file grows by everything that the services write, because they do
    not reuse the space of deleted data.

    \b
    Example:
      hrag backup /backups/monday --data-dir /var/lib/hrag
    """
    store = open_store(data_dir)
    with audited("backup", store=store.location, target=str(target)) as entry:
        report = store.administration().backup(target, _ignore if as_json else print_line)
        entry.update(documents=report.documents, sequence=report.sequence)
    _show_copy("backed up", report, target, as_json=as_json)


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
    store = open_store(data_dir)
    with audited("restore", store=store.location, source=str(source)) as entry:
        report = store.administration().restore(source, _ignore if as_json else print_line)
        entry.update(documents=report.documents, sequence=report.sequence)
    _show_copy("restored", report, data_dir, as_json=as_json)


def _ignore(_line: str) -> None:
    """Does nothing with a line about the progress. With --json, the commands show no progress."""


def _show_copy(action: str, report: "BackupReport", folder: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(folder), **asdict(report)})
        return
    print_line(
        f"{action} {report.documents:,} documents as of the store's sequence "
        f"{report.sequence:,} ({report.created}), {decimal(report.size_bytes)}, in {folder}",
        style="green",
    )


def check(
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="First repair the data that can be derived from the documents."
        ),
    ] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Check a whole store: every document, tree, vector and index file.

    The command compares all content with its checksums. Without --repair it opens the store read
    only and changes nothing, so the services may be running. Each problem is one line that names
    the collection and the document or segment.

    A damaged document can be ingested again or deleted. `hrag reindex` builds damaged segment
    files again. --repair repairs data that can be derived from the documents. For everything
    else, restore a backup with `hrag restore`.

    With --repair, both services must be stopped. The command first repairs filter values,
    counters, usage, change logs, tombstones and the lists of segments. If the record of a segment
    is damaged, its collection loses all its segments, and the indexer builds them again. Documents
    and collections whose content is damaged are still reported.

    The exit code is 0 if the store is sound and 1 if there are problems. It is 2 if there is no
    store, or it cannot be opened or repaired.

    \b
    Example:
      hrag check --data-dir /var/lib/hrag
      hrag check --repair --data-dir /var/lib/hrag
    """
    try:
        store = open_store(data_dir)
        report = _repair(store) if repair else store.administration().check()
    except DataLoss:
        raise
    except (Failure, HragError) as error:
        raise Failure(str(error), CANNOT_CHECK) from None
    if as_json:
        print_json(asdict(report))
    else:
        _show_check(report)
    if report.problems:
        raise typer.Exit(1)


def _repair(store: "Engine") -> "CheckReport":
    with audited("repair", store=store.location) as entry:
        report = store.administration().repair()
        entry.update(problems=len(report.problems))
    return report


def _show_check(report: "CheckReport") -> None:
    console = output()
    console.print(
        "checked "
        f"{counted(report.collections, 'collection')}, {counted(report.documents, 'document')}, "
        f"{counted(report.leaves, 'leaf', 'leaves')}, {counted(report.segments, 'segment')}"
    )
    for problem in report.problems:
        console.print(printable(problem), style="red", markup=False, soft_wrap=True)
    if report.problems:
        console.print(counted(len(report.problems), "problem"), style="bold red")
    else:
        console.print("the store is sound", style="green")


def reindex(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Rebuild the index of all collections, and upgrade their analyzers.

    Stop the indexer first. The command replaces all segments by new ones. A collection of an older
    version of its analyzer gets the newest version, so that searches also find its documents by
    the names of their files.

    Segments are derived from the documents, so nothing is lost. A collection's old segments are
    used until its new segment is complete. A retriever may run meanwhile, and loads the new
    segment automatically. If the command is interrupted, each collection has either its old
    segments or its new one. A collection without segments gets one if it has at least
    HRAG_SEGMENT_MIN_LEAVES leaves. A collection with a damaged document keeps its segments; the
    document is reported at the end, and the exit code is 1.

    With HRAG_ENGINE=postgres, the command rebuilds only the words of collections with an older
    version of their analyzer. The services may run; the writers of a tenant wait while one of its
    collections is rebuilt.

    \b
    Example:
      hrag reindex --data-dir /var/lib/hrag
    """
    store = open_store(data_dir)
    collections: list[dict[str, object]] = []
    try:
        with audited("reindex", store=store.location) as entry:
            for report in store.administration().reindex():
                collections.append(asdict(report))
                entry["collections"] = len(collections)
                if not as_json:
                    name = f"{report.tenant_id}/{report.name}"
                    hint = "" if report.leaves else "; a small collection needs no index"
                    print_line(f"collection {name}: {report.leaves:,} leaves indexed{hint}")
    except DataLoss:
        _show_reindexed(collections, as_json=as_json)
        raise
    _show_reindexed(collections, as_json=as_json)


def _show_reindexed(collections: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    if as_json:
        print_json({"collections": collections})
    else:
        print_line(f"reindexed {counted(len(collections), 'collection')}", style="green")


def vacuum(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Shrink a store's file, with both services stopped.

    New documents reuse the space of deleted and replaced documents, but the file never shrinks by
    itself. The command writes a compact copy of the file and then replaces the file by the copy, so
    the disk needs space for both. If the command is interrupted, the store is either unchanged or
    completely vacuumed.

    \b
    Example:
      hrag vacuum --data-dir /var/lib/hrag
    """
    store = open_store(data_dir)
    with audited("vacuum", store=store.location) as entry:
        report = store.administration().vacuum()
        entry.update(before_bytes=report.before_bytes, after_bytes=report.after_bytes)
    if as_json:
        print_json(asdict(report))
        return
    output().print(
        f"vacuumed from {decimal(report.before_bytes)} to {decimal(report.after_bytes)} "
        f"({report.before_bytes:,} to {report.after_bytes:,} bytes)",
        style="green",
        markup=False,
        soft_wrap=True,
    )


def migrate_schema(as_json: AsJson = False) -> None:
    """Bring the store in PostgreSQL to this version of hrag.

    The command creates the schema `hrag` and the extension `vector` if they do not exist. First
    stop the services of the older version; services of this version refuse an older store. The
    command may be interrupted and run again: it continues where it stopped. Only a backup can
    undo a migration.

    In a database with nodes of Citus, the command also distributes the tables over the nodes. It
    skips tables that are distributed already.

    Set HRAG_ENGINE=postgres; HRAG_POSTGRES_DSN names the database. The role that runs the
    command creates and owns the tables.

    \b
    Example:
      hrag postgres migrate
    """
    store = open_store()
    with audited("postgres migrate", store=store.location) as entry:
        report = store.administration().migrate()
        entry.update(asdict(report))
    if as_json:
        print_json(asdict(report))
        return
    if report.before == report.after:
        print_line(f"the store has schema version {report.after} already", style="green")
    else:
        print_line(f"migrated from schema version {report.before} to {report.after}", style="green")
    if report.distributed_tables:
        tables = counted(report.distributed_tables, "table")
        print_line(f"distributed {tables} over the nodes of Citus", style="green")
    if report.lacks_nodes:
        print_line(
            "the database has the extension citus, but no node for tables, so all tables stay on "
            "this server: add nodes with citus_add_node, then run this command again",
            style="yellow",
        )


def open_store(data_dir: Path | None = None) -> "Engine":
    """Returns the engine that the environment variables describe.

    `data_dir` is the folder of the store's files; None means the folder that HRAG_DATA_DIR names.
    The function opens no file yet. From this call on, SIGTERM and SIGHUP interrupt the command like
    Ctrl-C, so that the command can clean up and write its audit entry. Shows the settings that have
    no effect. Raises Failure if a variable has a wrong value.
    """
    # The modules of settings and storage are slow to import, so only commands that need them
    # import them.
    from hrag.config import EngineSettings, SettingsError, load  # noqa: PLC0415
    from hrag.engine import open_engine  # noqa: PLC0415
    from hrag.required_settings import pop_ineffective  # noqa: PLC0415

    interrupt_on_signals()
    overrides = {} if data_dir is None else {"HRAG_DATA_DIR": data_dir}
    try:
        settings = load(EngineSettings, **overrides)
    except SettingsError as error:
        raise Failure(str(error), ExitCode.USAGE) from None
    for ineffective in pop_ineffective(settings):
        show_note(f"warning: {ineffective}")
    return open_engine(settings)


@contextmanager
def audited(command: str, **fields: object) -> Iterator[dict[str, object]]:
    """Records `command` in the audit log when the `with` block ends.

    The outcome is `FAILED` if the block raises an error, otherwise `OK`. The entry also has
    `fields`. Yields a dictionary of these fields, to which the block may add fields. Raises Failure
    before the block runs if the audit log cannot be written.
    """
    # The modules of settings and logs are slow to import, so only commands that need them import
    # them.
    from hrag.config import AuditSettings, SettingsError, load  # noqa: PLC0415
    from hrag.observe import audit, log  # noqa: PLC0415

    try:
        settings = load(AuditSettings)
        log.configure("hrag", settings.log_format, "warning")
        audit.configure("hrag", settings)
    except SettingsError as error:
        raise Failure(str(error), ExitCode.USAGE) from None
    outcome = "FAILED"
    try:
        yield fields
        outcome = "OK"
    finally:
        common = {"method": command, "outcome": outcome, "uid": os.getuid()}
        audit.record(audit.Kind.ADMINISTRATION, **common, **fields)
        audit.close()
