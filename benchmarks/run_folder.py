"""The folder of the runs of a benchmark: the latest one, and the one stored with the code."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare import Verdict, compare, comparison_table, failures
from benchmarks.figures import Results

LATEST, STORED = "latest", "stored"
FIGURES, TABLES = "figures.json", "TABLES.md"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder of runs. `tables` yields the lines of the Markdown tables of a run."""

    path: Path
    tables: Callable[[Results], Iterator[str]]

    def judge(
        self, latest: Results, store_command: str, *, partial: bool, compares: bool = True
    ) -> int:
        """Writes the latest run. Prints its tables, its missed targets, and what has changed.

        The figures are compared with those of the stored run, except if `compares` is False. If
        `partial`, the latest run may lack figures of the stored one. Returns the exit code: 1 if a
        target is missed or a figure is worse.
        """
        latest.write(self.path / LATEST / FIGURES)
        print("\n".join(self.tables(latest)))
        missed = [figure for figure in latest.figures.values() if figure.met is False]
        for figure in missed:
            print(f"missed: {figure.what} is {figure.value:.3f}; the target is {figure.limit}")
        stored = self.path / STORED / FIGURES
        if not compares:
            return 1 if missed else 0
        if not stored.exists():
            print(f"no stored run to compare with; `{store_command}` stores this one")
            return 1 if missed else 0
        compared = compare(Results.read(stored), latest)
        differing = [figure for figure in compared if figure.verdict is not Verdict.SAME]
        print("\n".join(comparison_table(differing)) if differing else "equal to the stored run")
        worse = failures(compared, partial=partial)
        print(f"\n{len(compared)} figures compared, {len(worse)} worse, missing or not comparable")
        return 1 if missed or worse else 0

    def store(self) -> None:
        """Makes the latest run the stored one, with its tables.

        Raises BadResults if there is no latest run.
        """
        latest = Results.read(self.path / LATEST / FIGURES)
        shutil.rmtree(self.path / STORED, ignore_errors=True)
        latest.write(self.path / STORED / FIGURES)
        (self.path / STORED / TABLES).write_text("\n".join(self.tables(latest)) + "\n", "utf-8")
