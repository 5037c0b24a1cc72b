"""`python -m benchmarks.compare [STORED] [LATEST]`: is a run worse than the one that is stored?

Ratios, shares and sizes are compared, which carry over to other machines; times are not.
A figure is worse where it has moved to the worse side by more than three standard
deviations of both runs' noise together, so that one in a thousand is by chance alone, and
by the spread that two runs of the same code have even where each knows its own figure
well (`SPREAD`). Where that is more than half of the figure, the comparison says little and
says so. Ends with 1 where one is worse or was not taken, with 2 where a file cannot be read.
`--partial` forgives what was not taken.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.figures import LATEST, SPREAD, STORED, BadResults, Figure, Results, number
from benchmarks.table import head, row

_DEVIATIONS = 3
_SAYS_LITTLE = 0.5


class Verdict(StrEnum):
    SAME = "same"
    BETTER = "better"
    WORSE = "WORSE"
    MISSING = "NOT TAKEN"
    CHANGED = "OF ANOTHER KIND"  # Other sizes, another seed or unit: nothing to compare with.
    NOISY = "too noisy to say"
    FULL = "of the full run"
    NEW = "new"


_FAILS = (Verdict.WORSE, Verdict.MISSING, Verdict.CHANGED)
_FORGIVEN = (Verdict.MISSING,)  # Where the run is a part of all.


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of two runs. `allowed` is how far they may lie apart."""

    key: str
    stored: Figure | None
    latest: Figure | None
    allowed: float
    verdict: Verdict


def compare(stored: Results, latest: Results) -> list[Compared]:
    """What carries over and is in either of them."""
    keys = dict.fromkeys([*stored.figures, *latest.figures])
    pairs = [(key, stored.figures.get(key), latest.figures.get(key)) for key in keys]
    is_full = latest.about.get("mode") == "full"
    return [
        _compared(key, was, now, is_full=is_full)
        for key, was, now in pairs
        if any(each.is_compared for each in (was, now) if each)
    ]


def _compared(key: str, was: Figure | None, now: Figure | None, *, is_full: bool) -> Compared:
    if was is None:
        return Compared(key, was, now, 0, Verdict.NEW)
    if now is None:
        verdict = Verdict.FULL if was.full and not is_full else Verdict.MISSING
        return Compared(key, was, now, 0, verdict)
    if _kind(was) != _kind(now):
        return Compared(key, was, now, 0, Verdict.CHANGED)
    noise = math.hypot(was.noise or 0, now.noise or 0)
    allowed = _DEVIATIONS * noise + SPREAD[was.unit] * abs(was.value)
    worse_by = (now.value - was.value) * (1 if was.better == "lower" else -1)
    if worse_by > allowed:
        verdict = Verdict.WORSE
    elif worse_by < -allowed:
        verdict = Verdict.BETTER
    elif allowed > _SAYS_LITTLE * abs(was.value):
        verdict = Verdict.NOISY
    else:
        verdict = Verdict.SAME
    return Compared(key, was, now, allowed, verdict)


def _kind(figure: Figure) -> tuple[object, ...]:
    return figure.unit, figure.better, figure.seed, figure.sizes


def failures(compared: Sequence[Compared], *, partial: bool) -> list[Compared]:
    forgiven = _FORGIVEN if partial else ()
    return [each for each in compared if each.verdict in _FAILS and each.verdict not in forgiven]


def comparison_table(compared: Sequence[Compared]) -> Iterator[str]:
    """The comparison in Markdown. Failures come last, where they are seen."""
    yield from head("figure", "what", "stored", "now", "may differ by", "verdict")
    for each in sorted(compared, key=lambda each: each.verdict in _FAILS):
        figure = each.latest or each.stored
        assert figure
        cells = [_value(each.stored), _value(each.latest), number(each.allowed)]
        yield row(each.key, figure.what, *cells, each.verdict)


def _value(figure: Figure | None) -> str:
    return str(figure) if figure else "none"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("stored", type=Path, nargs="?", default=STORED)
    parser.add_argument("latest", type=Path, nargs="?", default=LATEST)
    parser.add_argument("--partial", action="store_true", help="forgive what was not taken")
    options = parser.parse_args(arguments)
    try:
        compared = compare(Results.read(options.stored), Results.read(options.latest))
    except BadResults as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(comparison_table(compared)))
    failed = failures(compared, partial=options.partial)
    print(f"\n{len(compared)} figures compared, {len(failed)} worse or not to be compared")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
