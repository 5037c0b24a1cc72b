"""`python -m benchmarks.quality DATA`: measures the development sets and compares the figures.

Writes benchmarks/results/quality/latest, prints the table and prints the differences from the
stored run. `--store` makes the latest run the stored one. Exits with 1 if a target is missed or if
a figure is worse than the stored one, and with 2 if there is nothing to measure. The generated set
of reports needs no folder: `--sets reports`.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import RESULTS, BadResults, Figure, Results
from benchmarks.machine import commit, machine, versions
from benchmarks.quality import reports
from benchmarks.quality.oracle import Oracle, oracle_serving
from benchmarks.quality.run import (
    SYSTEMS,
    TENANT,
    CallsFailed,
    below_dense,
    eligible_shares,
    figures,
    ingest,
    search,
    summary,
    systems_for,
    systems_of,
)
from benchmarks.quality.services import default_settings, serving
from benchmarks.quality.sets import NEEDED, NoSets, QualitySet, read_sets
from benchmarks.quality.tables import tables
from benchmarks.run_folder import RunFolder
from hrag.cli.terminal import Failure
from hrag.client import Client
from hrag.errors import HragError

QUALITY = RESULTS / "quality"


def run(client: Client, sets: Sequence[QualitySet], compared: str, command: str) -> Results:
    """Measures the sets one after the other, prints the progress, and returns the results."""
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": "quality",
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "embedder": client.server_info().embedder,
        "sets": [dev_set.name for dev_set in sets],
        "systems": [system.name for system in systems_of(compared)],
    }
    all_figures: dict[str, Figure] = {}
    ingest(client, sets, print)
    for dev_set in sets:
        systems = systems_for(dev_set, compared)
        outcomes = search(client, dev_set, systems)
        measured = summary(dev_set, systems, outcomes)
        leaf_count = client.index_status(TENANT, collection=dev_set.collection).leaf_count
        eligible = eligible_shares(systems, outcomes, leaf_count)
        all_figures |= figures(dev_set, measured, command, eligible)
        print(
            f"{dev_set.name}: {len(dev_set.questions):,} questions in {len(systems)} systems",
            flush=True,
        )
        for line in below_dense(measured):
            print(f"  {line}")
    return Results(about=about, figures=all_figures)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of the development sets")
    parser.add_argument(
        "--sets", nargs="+", default=[], help="names of the sets to measure; all if none is given"
    )
    parser.add_argument(
        "--compare",
        default=SYSTEMS,
        help="systems to measure, separated by commas, as in `hrag eval`",
    )
    parser.add_argument("--embedder", default="builtin", help="HRAG_EMBEDDER of the services")
    parser.add_argument(
        "--oracle",
        type=float,
        metavar="NOISE",
        help="use a simulated reranker that knows the gold and guesses for this share of the texts",
    )
    parser.add_argument(
        "--report-seed",
        type=int,
        default=reports.SEED,
        help="generate other reports, whose figures are not compared with the stored run",
    )
    parser.add_argument("--results", type=Path, default=QUALITY, help="folder of the results")
    parser.add_argument("--store", action="store_true", help="make the latest run the stored one")
    options = parser.parse_args(arguments)
    try:
        if options.data is not None or options.sets:
            code = _measure(options)
        elif options.store:
            code = 0
        else:
            raise NoSets(f"Name the folder: make bench-quality DATA=folder. {NEEDED}")
        if options.store:
            _folder(options).store()
    except (NoSets, BadResults, CallsFailed, Failure, HragError) as error:
        print(error, file=sys.stderr)
        return 2
    return code


def _measure(options: argparse.Namespace) -> int:
    sets = _sets(options.data, options.sets, options.report_seed)
    settings = default_settings(options.embedder)
    has_oracle = options.oracle is not None
    is_comparable = not has_oracle and options.report_seed == reports.SEED
    with ExitStack() as stack:
        if has_oracle:
            url = stack.enter_context(oracle_serving(Oracle(sets, options.oracle)))
            # The benchmark measures what the order is worth, so the reranker may take its time.
            settings |= {"HRAG_RERANK_BASE_URL": url, "HRAG_RERANK_TIMEOUT_S": "60"}
        client = stack.enter_context(serving(settings))
        latest = run(client, sets, options.compare, "make bench-quality DATA=folder")
    # The stored run has all sets and systems, the reports of SEED, and no reranker.
    partial = bool(options.sets) or options.compare != SYSTEMS
    store_command = f"python -m {__package__} --store"
    return _folder(options).judge(latest, store_command, partial=partial, compares=is_comparable)


def _sets(
    folder: Path | None, only: Sequence[str], report_seed: int = reports.SEED
) -> list[QualitySet]:
    """Returns the sets in the folder and the reports, or those of them that `only` names."""
    in_folder = [name for name in only if name != reports.NAME]
    sets: list[QualitySet] = []
    if in_folder or not only:
        if folder is None:
            raise NoSets(f"Name the folder of {', '.join(in_folder)}. {NEEDED}")
        sets = read_sets(folder, in_folder)
    if not only or reports.NAME in only:
        sets.append(reports.report_set(report_seed))
    return sets


def _folder(options: argparse.Namespace) -> RunFolder:
    return RunFolder(options.results, tables)


if __name__ == "__main__":
    sys.exit(main())
