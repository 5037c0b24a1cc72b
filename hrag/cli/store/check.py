"""`hrag check`: verifies a store's invariants, with the services running or stopped."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hrag.cli.options.shared import DEFAULT_DATA_DIR, AsJson, DataDir
from hrag.cli.terminal.console import Failure, output, print_json
from hrag.cli.terminal.exit_codes import ExitCode
from hrag.cli.terminal.render import counted
from hrag.text.plain_text import printable

if TYPE_CHECKING:
    from hrag.engine import CheckReport, Engine

CANNOT_CHECK = ExitCode.USAGE


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
    counters, usage, logs, tombstones and the lists of segments. If the record of a segment is
    damaged, its collection loses all its segments, and the indexer builds them again. Documents
    and collections whose content is damaged are still reported.

    The exit code is 0 if the store is sound and 1 if there are problems. It is 2 if there is no
    store, or it cannot be opened or repaired.

    \b
    Example:
      hrag check --data-dir /var/lib/hrag
      hrag check --repair --data-dir /var/lib/hrag
    """
    # Settings and storage are slow to import, and only some commands need them.
    from hrag.cli.store.administration import open_store  # noqa: PLC0415
    from hrag.values.errors import DataLoss, HragError  # noqa: PLC0415

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
        _show(report)
    if report.problems:
        raise typer.Exit(1)


def _repair(store: "Engine") -> "CheckReport":
    from hrag.cli.store.audit_entry import audited  # noqa: PLC0415

    with audited("repair", store=store.location) as entry:
        report = store.administration().repair()
        entry.update(problems=len(report.problems))
    return report


def _show(report: "CheckReport") -> None:
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
