"""`hrag postgres`: commands that only the engine on PostgreSQL needs."""

from dataclasses import asdict

import typer

from hrag.cli.options.shared import AsJson
from hrag.cli.terminal.console import print_json, print_line


def migrate(as_json: AsJson = False) -> None:
    """Bring the store in PostgreSQL to this version of hrag.

    The command creates the schema `hrag` and the extension `vector` if they do not exist. First
    stop the services of the older version; services of this version refuse an older store. The
    command may be interrupted and run again: it continues where it stopped. Only a backup can
    undo a migration.

    Set HRAG_ENGINE=postgres; HRAG_POSTGRES_DSN names the database. The role that runs the
    command creates and owns the tables.

    \b
    Example:
      hrag postgres migrate
    """
    # Settings and storage are slow to import, and only some commands need them.
    from hrag.cli.store.administration import open_store  # noqa: PLC0415
    from hrag.cli.store.audit_entry import audited  # noqa: PLC0415

    store = open_store()
    with audited("postgres migrate", store=store.location) as entry:
        report = store.administration().migrate()
        entry.update(before=report.before, after=report.after)
    if as_json:
        print_json(asdict(report))
    elif report.before == report.after:
        print_line(f"the store has schema version {report.after} already", style="green")
    else:
        print_line(f"migrated from schema version {report.before} to {report.after}", style="green")


postgres = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
