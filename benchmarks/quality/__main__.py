"""`python -m benchmarks.quality DATA`: measures the development sets and compares the figures.

Writes benchmarks/results/quality/latest, prints the table and prints the differences from the
stored run. `--store` makes the latest run the stored one. Exits with 1 if a target is missed or if
a figure is worse than the stored one, and with 2 if there is nothing to measure.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from os import environ
from pathlib import Path

from benchmarks.compare import Verdict, compare, comparison_table, failures
from benchmarks.figures import RESULTS, BadResults, Figure, Results
from benchmarks.machine import commit, machine, versions
from benchmarks.quality.run import (
    SYSTEMS,
    CallsFailed,
    below_dense,
    figures,
    ingest,
    measure,
    systems_of,
)
from benchmarks.quality.sets import NEEDED, NoSets, QualitySet, read_sets
from benchmarks.quality.tables import tables
from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.cli.terminal import Failure
from hrag.client import Client
from hrag.errors import HragError

QUALITY = RESULTS / "quality"
LATEST, STORED, TABLES = "latest", "stored", "TABLES.md"
FIGURES = "figures.json"

# The prefixes of the environment variables that the services read.
_PREFIXES = ("HRAG_", "HIERARCHICAL_", "SMALL_TO_BIG_", "OPENAI_", "OTEL_")
_START_S = 120.0
_STOP_S = 30.0


def default_settings(embedder: str) -> dict[str, str]:
    """Returns variables with which the services have the default settings and this embedder.

    Variables of this process's environment are set to an empty text, which means "not set".
    """
    unset = {name: "" for name in environ if name.startswith(_PREFIXES)}
    return unset | {"HRAG_EMBEDDER": embedder}


@contextmanager
def serving(settings: Mapping[str, str]) -> Iterator[Client]:
    """Runs both services on an empty store and yields a client.

    The services inherit this process's environment, except for `settings`. If a call fails, the end
    of the services' log is printed.
    """
    with tempfile.TemporaryDirectory(prefix="hrag-quality-") as folder:
        path = Path(folder)
        indexer, retriever = free_addresses(2)
        services = ServiceProcesses(
            path / "data", indexer, retriever, logs=path, settings=settings, stop_s=_STOP_S
        )
        try:
            with services:
                services.wait_until_serving(_START_S)
                with Client(indexer, retriever) as client:
                    yield client
        except (Failure, HragError):
            print(services.log_tail(), file=sys.stderr)
            raise


def run(client: Client, sets: Sequence[QualitySet], compared: str, command: str) -> Results:
    """Measures the sets one after the other, prints the progress, and returns the results."""
    systems = systems_of(compared)
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": "quality",
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "embedder": client.server_info().embedder,
        "sets": [dev_set.name for dev_set in sets],
        "systems": [system.name for system in systems],
    }
    all_figures: dict[str, Figure] = {}
    ingest(client, sets, print)
    for dev_set in sets:
        measured = measure(client, dev_set, systems)
        all_figures |= figures(dev_set, measured, command)
        print(
            f"{dev_set.name}: {len(dev_set.questions):,} questions in {len(systems)} systems",
            flush=True,
        )
        for line in below_dense(measured):
            print(f"  {line}")
    return Results(about=about, figures=all_figures)


def judge(latest: Results, folder: Path, *, partial: bool) -> int:
    """Prints the table, the missed targets, and the differences from the stored run.

    Returns the exit code: 1 if a target is missed or a figure is worse.
    """
    print("\n".join(tables(latest)))
    missed = [figure for figure in latest.figures.values() if figure.met is False]
    for figure in missed:
        print(f"missed: {figure.what} is {figure.value:.3f}; the target is {figure.limit}")
    stored = folder / STORED / FIGURES
    if not stored.exists():
        print(f"no stored run to compare with; `python -m {__package__} --store` stores this one")
        return 1 if missed else 0
    compared = compare(Results.read(stored), latest)
    differing = [comparison for comparison in compared if comparison.verdict is not Verdict.SAME]
    print("\n".join(comparison_table(differing)) if differing else "equal to the stored run")
    worse = failures(compared, partial=partial)
    print(f"\n{len(compared)} figures compared, {len(worse)} worse, missing or not comparable")
    return 1 if missed or worse else 0


def store(folder: Path) -> None:
    """Makes the latest run the stored one, with its tables.

    Raises BadResults if there is no latest run.
    """
    latest = Results.read(folder / LATEST / FIGURES)
    shutil.rmtree(folder / STORED, ignore_errors=True)
    latest.write(folder / STORED / FIGURES)
    (folder / STORED / TABLES).write_text("\n".join(tables(latest)) + "\n", "utf-8")


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
    parser.add_argument("--results", type=Path, default=QUALITY, help="folder of the results")
    parser.add_argument("--store", action="store_true", help="make the latest run the stored one")
    options = parser.parse_args(arguments)
    try:
        if options.data is not None:
            code = _measure(options)
        elif options.store:
            code = 0
        else:
            raise NoSets(f"Name the folder: make bench-quality DATA=folder. {NEEDED}")
        if options.store:
            store(options.results)
    except (NoSets, BadResults, CallsFailed, Failure, HragError) as error:
        print(error, file=sys.stderr)
        return 2
    return code


def _measure(options: argparse.Namespace) -> int:
    sets = read_sets(options.data, options.sets)
    with serving(default_settings(options.embedder)) as client:
        latest = run(client, sets, options.compare, "make bench-quality DATA=folder")
    latest.write(options.results / LATEST / FIGURES)
    # The stored run has figures of all sets and systems.
    partial = bool(options.sets) or options.compare != SYSTEMS
    return judge(latest, options.results, partial=partial)


if __name__ == "__main__":
    sys.exit(main())
