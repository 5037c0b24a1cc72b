"""`python -m benchmarks.compare [STORED] [LATEST]`: is a run worse than the stored one?

Compares ratios, shares and sizes, because they are about the same on other machines. Times are not
compared, because they depend on the machine.

A figure is worse if it has moved to the worse side by more than an allowance. The allowance is the
sum of two parts: three standard deviations of the combined noise of both runs, which one figure in
about a thousand exceeds by chance; and the tolerance of the figure's unit (`TOLERANCE`), by which
two runs of equal code differ. If the allowance is over half of the figure, the comparison is
inconclusive.

Exits with 1 if a figure is worse or missing, and with 2 if a file cannot be read. `--partial`
accepts missing figures.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.figures import LATEST, STORED, TOLERANCE, BadResults, Figure, Results, number
from benchmarks.table import head, row

_DEVIATIONS = 3
# A comparison is inconclusive if its allowance is over this share of the figure.
_INCONCLUSIVE = 0.5


class Verdict(StrEnum):
    """The result of comparing a figure of the latest run with the stored one.

    A verdict in capital letters makes the comparison fail.
    """

    SAME = "same"
    BETTER = "better"
    WORSE = "WORSE"
    MISSING = "MISSING"
    # Both runs measured the figure with different sizes or seeds, in different units, or disagree
    # about which direction is better.
    CHANGED = "NOT COMPARABLE"
    NOISY = "inconclusive: too noisy"
    FULL = "full run only"
    NEW = "new"


_FAILS = (Verdict.WORSE, Verdict.MISSING, Verdict.CHANGED)
_FAILS_OF_PARTIAL_RUN = (Verdict.WORSE, Verdict.CHANGED)


@dataclass(frozen=True, slots=True)
class Compared:
    """The stored and the latest value of a figure, and the verdict.

    A difference of at most `allowed` is treated as noise. `allowed` has the unit of the figure.
    """

    key: str
    stored: Figure | None
    latest: Figure | None
    allowed: float
    verdict: Verdict


def compare(stored: Results, latest: Results) -> list[Compared]:
    """Returns the comparison of every comparable figure that is in either run."""
    keys = dict.fromkeys([*stored.figures, *latest.figures])
    pairs = [(key, stored.figures.get(key), latest.figures.get(key)) for key in keys]
    is_full = latest.about.get("mode") == "full"
    return [
        _compared(key, was, now, is_full=is_full)
        for key, was, now in pairs
        if any(figure.is_compared for figure in (was, now) if figure)
    ]


def _compared(key: str, was: Figure | None, now: Figure | None, *, is_full: bool) -> Compared:
    if was is None:
        return Compared(key, was, now, 0, Verdict.NEW)
    if now is None:
        verdict = Verdict.FULL if was.full and not is_full else Verdict.MISSING
        return Compared(key, was, now, 0, verdict)
    if _measured_with(was) != _measured_with(now):
        return Compared(key, was, now, 0, Verdict.CHANGED)
    noise = math.hypot(was.noise or 0, now.noise or 0)
    allowed = _DEVIATIONS * noise + TOLERANCE[was.unit] * abs(was.value)
    worse_by = (now.value - was.value) * (1 if was.better == "lower" else -1)
    if worse_by > allowed:
        verdict = Verdict.WORSE
    elif worse_by < -allowed:
        verdict = Verdict.BETTER
    elif allowed > _INCONCLUSIVE * abs(was.value):
        verdict = Verdict.NOISY
    else:
        verdict = Verdict.SAME
    return Compared(key, was, now, allowed, verdict)


def _measured_with(figure: Figure) -> tuple[object, ...]:
    return figure.unit, figure.better, figure.seed, figure.sizes


def failures(compared: Sequence[Compared], *, partial: bool) -> list[Compared]:
    """Returns the comparisons that fail. If `partial`, missing figures do not fail."""
    fails = _FAILS_OF_PARTIAL_RUN if partial else _FAILS
    return [comparison for comparison in compared if comparison.verdict in fails]


def comparison_table(compared: Sequence[Compared]) -> Iterator[str]:
    """Yields the lines of a Markdown table, failures last."""
    yield from head("figure", "what", "stored", "latest", "allowed difference", "verdict")
    for comparison in sorted(compared, key=lambda comparison: comparison.verdict in _FAILS):
        figure = comparison.latest or comparison.stored
        assert figure
        cells = [_value(comparison.stored), _value(comparison.latest), number(comparison.allowed)]
        yield row(comparison.key, figure.what, *cells, comparison.verdict)


def _value(figure: Figure | None) -> str:
    return str(figure) if figure else "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the comparison and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("stored", type=Path, nargs="?", default=STORED)
    parser.add_argument("latest", type=Path, nargs="?", default=LATEST)
    parser.add_argument(
        "--partial", action="store_true", help="accept that the latest run lacks figures"
    )
    options = parser.parse_args(arguments)
    try:
        compared = compare(Results.read(options.stored), Results.read(options.latest))
    except BadResults as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(comparison_table(compared)))
    failed = failures(compared, partial=options.partial)
    print(f"\n{len(compared)} figures compared, {len(failed)} worse, missing or not comparable")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
