"""`python -m benchmarks.documents [DATA]`: prints documents, reads them and compares.

Measures documents and generated tables, and, if DATA is a folder of development sets, the recall of
the printed sets. Writes benchmarks/results/documents/latest, prints the tables and prints the
differences from the stored run. `--store` makes the latest run the stored one. Exits with 1 if a
target is missed or if a figure is worse than the stored one, and with 2 if nothing can be measured.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.documents.corpora import DOCUMENTS, TABLES, documents, table_documents
from benchmarks.documents.print_reader import open_print_reader
from benchmarks.documents.printed_sets import measure_sets
from benchmarks.documents.printer import NoPrinter
from benchmarks.documents.run import (
    FigureList,
    ReadingFailed,
    add_document_figures,
    add_table_figures,
    misses,
    read_documents,
    read_tables,
)
from benchmarks.documents.tables import tables
from benchmarks.figures import RESULTS, BadResults, Results
from benchmarks.machine import commit, machine, versions
from benchmarks.quality.run import CallsFailed
from benchmarks.quality.services import default_settings, serving
from benchmarks.quality.sets import NoSets, QualitySet, read_sets
from benchmarks.run_folder import RunFolder
from hrag.cli.terminal import Failure
from hrag.errors import HragError

_COMMAND = "make bench-documents DATA=folder"
# Recognising a page takes seconds, so sets with more pages than this are not recognised.
_MAX_RECOGNISED_PAGES = 120
# What is found in recognised pages must not depend on the speed of the machine.
_SETTINGS = {"HRAG_OCR_TIMEOUT_S": "600"}


def run(options: argparse.Namespace, sets: Sequence[QualitySet]) -> Results:
    """Measures documents, tables and sets, prints the progress, and returns the results."""
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": "documents",
        "commit": commit(),
        "machine": machine(),
        "versions": {**versions(), "weasyprint": version("weasyprint")},
        "documents": options.documents,
        "tables": options.tables,
        "sets": [quality_set.name for quality_set in sets],
    }
    with open_print_reader() as reader:
        read = list(read_documents(reader, documents(options.documents), _say))
        with_tables = list(read_tables(reader, table_documents(options.tables), _say))
    sizes = {"documents": options.documents, "tables": options.tables}
    figures = FigureList(_COMMAND, sizes)
    if read:
        add_document_figures(figures, read)
    add_table_figures(figures, with_tables)
    left_out: list[str] = []
    set_misses: list[dict[str, Any]] = []
    if sets:
        set_figures = FigureList(_COMMAND, {"recognised_pages": options.recognised_pages})
        with serving(default_settings("builtin") | _SETTINGS) as client:
            left_out, set_misses = measure_sets(
                client, sets, set_figures, _say, options.recognised_pages
            )
        figures.figures |= set_figures.figures
        figures.intervals |= set_figures.intervals
    all_read = [*read, *(table for table, _ in with_tables)]
    about |= {
        "pages": sum(document.page_count for document in all_read),
        "sets": [name for name in about["sets"] if name not in left_out],
        "sets_left_out": ", ".join(left_out),
        "intervals": figures.intervals,
        "misses": [*misses(all_read), *set_misses],
    }
    return Results(about=about, figures=figures.figures)


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of the development sets")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="how many documents")
    parser.add_argument("--tables", type=int, default=TABLES, help="how many generated tables")
    parser.add_argument(
        "--sets", nargs="+", default=[], help="names of the sets to print; all if none is given"
    )
    parser.add_argument(
        "--recognised-pages",
        type=int,
        default=_MAX_RECOGNISED_PAGES,
        help="sets with at most this many printed pages are recognised too",
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS / "documents", help="folder of the results"
    )
    parser.add_argument("--store", action="store_true", help="make the latest run the stored one")
    options = parser.parse_args(arguments)
    folder = RunFolder(options.results, tables)
    try:
        sets = read_sets(options.data, options.sets) if options.data else []
        results = run(options, sets)
        is_whole = (options.documents, options.tables) == (DOCUMENTS, TABLES)
        code = folder.judge(
            results,
            f"python -m {__package__} --store",
            partial=not sets or bool(options.sets),
            compares=is_whole,
        )
        if options.store:
            folder.store()
    except (NoPrinter, NoSets, ReadingFailed, BadResults, CallsFailed, Failure, HragError) as error:
        print(error, file=sys.stderr)
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
