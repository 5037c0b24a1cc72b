"""Measuring, judging and recording figures.

Alternatives that are compared are measured in turn within one run, in an order that changes
from round to round, so that a slow spell of the machine affects all of them. A figure is a
median or percentile over rounds.

A figure's noise is its standard error, estimated by the block bootstrap: the statistic
is computed on rounds resampled with replacement, and the noise is half the range of the
middle two thirds of those values, a standard deviation that is robust to outliers. The method
serves a ratio of medians as well as a difference of p99s. Neighbouring rounds are resampled
in blocks, since a slow spell outlasts a round. Variation between runs, such as memory layout,
is not in it: `benchmarks.compare` allows for that.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import UNITS, Better, Figure, Micro, Plot

Samples = NDArray[np.float64]

_RESAMPLES = 200
_PLOTTED = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9)  # Percentiles.
_BLOCKS = 25  # Of neighbouring rounds.
_KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")


def seconds(work: Callable[[], object]) -> float:
    """Returns how many seconds one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(measures: Sequence[Callable[[int], float]], rounds: int) -> Samples:
    """Calls every measure with each round's number; returns `float64[rounds, measures]`.

    Even rounds call the measures in order, odd ones in reverse order.
    """
    samples = np.empty((rounds, len(measures)))
    places = range(len(measures))
    for number in range(rounds):
        for place in reversed(places) if number % 2 else places:
            samples[number, place] = measures[place](number)
    return samples


def interleaved_ms(
    searches: Sequence[Callable[[int], object]], warm_up: int, rounds: int
) -> Samples:
    """Returns the milliseconds of each search in each round: `float64[rounds, searches]`."""

    def timed(search: Callable[[int], object]) -> Callable[[int], float]:
        return lambda number: seconds(lambda: search(number))

    measures = list(map(timed, searches))
    interleaved(measures, warm_up)
    return interleaved(measures, rounds) * 1e3


@dataclass(frozen=True, slots=True)
class Measured:
    """A value and its noise, both in the same unit. The noise of a single round is None."""

    value: float
    noise: float | None


def measured(rounds: Samples, statistic: Callable[[Samples], float]) -> Measured:
    """Returns the statistic of `float64[rounds, ...]`; it must not depend on their order."""
    value = float(statistic(rounds))
    if len(rounds) == 1:
        return Measured(value, None)
    blocks = np.array_split(np.arange(len(rounds)), min(_BLOCKS, len(rounds)))
    random = np.random.default_rng(0)
    resampled = [
        statistic(rounds[np.concatenate([blocks[each] for each in chosen])])
        for chosen in random.integers(len(blocks), size=(_RESAMPLES, len(blocks)))
    ]
    low, high = np.percentile(resampled, [100 / 6, 500 / 6])
    return Measured(value, float(high - low) / 2)


def ratio(rounds: Samples, of: int, to: int, percentile: float = 50) -> Measured:
    """Returns the ratio of one column's percentile to another's: `float64[rounds, measures]`."""

    def statistic(resampled: Samples) -> float:
        above, below = np.percentile(resampled[:, [of, to]], percentile, axis=0)
        return float(above / below)

    return measured(rounds, statistic)


def _percentile(percentile: float, rounds: Samples) -> float:
    return float(np.percentile(rounds, percentile))


class Report:
    """The figures of one test: printed as they are recorded, and collected in the run.

    Keys are stable, such as `baseline.one_caller.ratio`; a unit is one of `UNITS`. `missed`
    lists the figures that miss their target by more than their noise.
    """

    def __init__(
        self, run: "Run", command: str, *, full: bool, show: Callable[[str], None]
    ) -> None:
        self._run = run
        self._command = command
        self._full = full
        self._show = show
        self._seed: int | None = None
        self._sizes: dict[str, int] = {}
        self.missed: list[str] = []

    def parameters(self, *, seed: int | None = None, **sizes: int) -> None:
        """Sets the parameters of the figures that follow, such as `leaves=1000, dimension=64`."""
        self._seed = seed
        self._sizes = sizes

    def record(
        self,
        key: str,
        figure: float | Measured,
        what: str,
        unit: str,
        better: Better | None = None,
    ) -> None:
        """Records a figure without a target. Runs are compared by it if `better` is given."""
        self._record(key, figure, what, unit, better, None)

    def at_most(
        self, key: str, figure: float | Measured, what: str, unit: str, target: float
    ) -> None:
        """Records a figure that meets its target if it is not greater."""
        self._record(key, figure, what, unit, "lower", target)

    def at_least(
        self, key: str, figure: float | Measured, what: str, unit: str, target: float
    ) -> None:
        """Records a figure that meets its target if it is not smaller."""
        self._record(key, figure, what, unit, "higher", target)

    def percentiles(self, key: str, took_ms: Samples, what: str) -> None:
        """Records p50 and p99 of `float64[calls]`."""
        for each in (50, 99):
            figure = measured(took_ms, partial(_percentile, each))
            self.record(f"{key}.p{each}", figure, f"{what}, p{each}", "ms")

    def draw(
        self,
        plot: str,
        line: str,
        points: Iterable[tuple[float | str, float]],
        *,
        title: str,
        x: str,
        y: str,
    ) -> None:
        """Appends points to a line of a plot; `x` and `y` are the axes' labels.

        A point's x is a number or a name. Raises ValueError if the plot exists with another
        title or other axes.
        """
        drawn = self._run.plots.setdefault(plot, Plot(title=title, x=x, y=y, lines={}))
        if (drawn.title, drawn.x, drawn.y) != (title, x, y):
            raise ValueError(f"plot {plot} exists as {drawn.title}, {drawn.x}, {drawn.y}")
        drawn.lines.setdefault(line, []).extend(
            (each if isinstance(each, str) else float(each), float(value)) for each, value in points
        )

    def draw_percentiles(self, plot: str, line: str, took_ms: Samples, title: str) -> None:
        """Draws the distribution of `float64[calls]`."""
        points = zip(_PLOTTED, np.percentile(took_ms, _PLOTTED).tolist(), strict=True)
        self.draw(plot, line, points, title=title, x="percentile", y="ms")

    def _record(
        self,
        key: str,
        figure: float | Measured,
        what: str,
        unit: str,
        better: Better | None,
        target: float | None,
    ) -> None:
        noise = figure.noise if isinstance(figure, Measured) else None
        value = float(figure.value if isinstance(figure, Measured) else figure)
        recorded = Figure(
            what=what,
            value=value,
            unit=unit,
            better=better,
            target=target,
            noise=noise,
            seed=self._seed,
            sizes=self._sizes,
            command=self._command,
            full=self._full,
            met=_is_met(value, better, target),
        )
        self._run.add(key, recorded)
        line = _line(recorded)
        if recorded.met is False and not _is_within_noise(recorded):
            self.missed.append(f"{what}: {line}")
        self._show(f"\n{what}\n  {line}")


class Run:
    """The results that the tests of a session have recorded."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}
        self.plots: dict[str, Plot] = {}
        self.micro: dict[str, Micro] = {}
        self.took_s: dict[str, float] = {}

    def add(self, key: str, figure: Figure) -> None:
        """Raises ValueError for an invalid or repeated key, an unknown unit, or no number."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"key {key!r}: must be lower case letters, digits and _ between dots")
        if key in self.figures:
            raise ValueError(f"key {key!r} belongs to another figure: {self.figures[key].what}")
        if figure.unit not in UNITS:
            raise ValueError(f"{key}: unit {figure.unit!r} is not one of {', '.join(UNITS)}")
        if not math.isfinite(figure.value):
            raise ValueError(f"{key}: {figure.value} is not finite")
        self.figures[key] = figure


def _is_met(value: float, better: Better | None, target: float | None) -> bool | None:
    if target is None:
        return None
    return value <= target if better == "lower" else value >= target


def _is_within_noise(figure: Figure) -> bool:
    """True if the target is within one standard deviation: another run may well meet it."""
    assert figure.target is not None
    return figure.noise is not None and abs(figure.value - figure.target) <= figure.noise


def _line(figure: Figure) -> str:
    if figure.target is None:
        return f"figure {figure}"
    return f"target {figure.limit} / figure {figure} / {'met' if figure.met else 'MISSED'}"
