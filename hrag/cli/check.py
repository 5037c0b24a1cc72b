"""`hrag check`: proves a store's invariants, beside the services or without them."""

from typing import TYPE_CHECKING

import typer

from hrag.cli.console import output, printable, show_error
from hrag.cli.options import DEFAULT_DATA_DIR, DataDir

if TYPE_CHECKING:
    from hrag.engine.embedded.admin.check import Report

CANNOT_CHECK = 2


def check(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Check a whole store: every document, tree, vector and index file.

    Opens the store read only, so it can run beside the services. It finds and never
    mends: each problem is one line that names the collection and the document or segment.
    Segments can be made anew with `hrag rebuild`; for all else there is `hrag restore`.
    Exit code 0: sound; 1: problems; 2: there is no store, or it cannot be opened.

    \b
    Example:
      hrag check --data-dir /var/lib/hrag
    """
    # Storage is slow to import, and only this command needs it.
    from hrag.engine.embedded.admin.check import check as check_store  # noqa: PLC0415
    from hrag.engine.embedded.store.environment import open_for_reading  # noqa: PLC0415
    from hrag.errors import StoreUnavailable  # noqa: PLC0415

    try:
        store = open_for_reading(data_dir)
    except StoreUnavailable as error:
        show_error(error.message)
        raise typer.Exit(CANNOT_CHECK) from None
    try:
        report = check_store(store)
    finally:
        store.close()
    _show(report)
    if report.problems:
        raise typer.Exit(1)


def _show(report: "Report") -> None:
    console = output()
    console.print(
        f"looked at {report.collections:,} collections, {report.documents:,} documents, "
        f"{report.leaves:,} leaves, {report.segments:,} segments"
    )
    for problem in report.problems:
        console.print(printable(problem), style="red", markup=False, soft_wrap=True)
    if report.problems:
        console.print(f"{len(report.problems):,} problems", style="bold red")
    else:
        console.print("the store is sound", style="green")
