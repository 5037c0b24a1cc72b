"""The measurement of figures: how they are measured, judged and recorded.

Alternatives that are compared are measured in turn within one run. Their order changes from round
to round, so a slow period of the machine affects all of them. A figure is a median or percentile
over rounds.

A figure's noise is its standard error, estimated by the block bootstrap. The statistic is computed
many times on rounds that are resampled with replacement. The noise is half the range of the middle
two thirds of these values: a standard deviation that is robust to outliers. The method serves a
ratio of medians as well as a difference of p99s. Neighbouring rounds are resampled in blocks,
because a slow period lasts longer than a round. The noise does not contain the variation between
runs, for example of memory layout. `benchmarks.compare` allows for that variation.
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
_PLOTTED_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9)
# The rounds are resampled in this many blocks of neighbouring rounds.
_BLOCKS = 25
_KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")


def seconds(work: Callable[[], object]) -> float:
    """Returns the seconds that one call of `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(measures: Sequence[Callable[[int], float]], rounds: int) -> Samples:
    """Calls every measure in each round and returns the results: `float64[rounds, measures]`.

    A measure gets the index of the round. Even rounds call the measures in order, odd rounds in
    reverse order.
    """
    samples = np.empty((rounds, len(measures)))
    columns = range(len(measures))
    for number in range(rounds):
        for column in reversed(columns) if number % 2 else columns:
            samples[number, column] = measures[column](number)
    return samples


def interleaved_ms(
    searches: Sequence[Callable[[int], object]], warm_up: int, rounds: int
) -> Samples:
    """Returns the milliseconds of each search in each round: `float64[rounds, searches]`.

    The `warm_up` rounds before them are not measured.
    """

    def timed(search: Callable[[int], object]) -> Callable[[int], float]:
        return lambda number: seconds(lambda: search(number))

    measures = list(map(timed, searches))
    interleaved(measures, warm_up)
    return interleaved(measures, rounds) * 1e3


@dataclass(frozen=True, slots=True)
class Measured:
    """A value and its noise, both in the same unit. A single round has the noise None."""

    value: float
    noise: float | None


def measured(rounds: Samples, statistic: Callable[[Samples], float]) -> Measured:
    """Returns the statistic of `float64[rounds, ...]`, with its noise.

    The statistic must not depend on the order of the rounds.
    """
    value = float(statistic(rounds))
    if len(rounds) == 1:
        return Measured(value, None)
    blocks = np.array_split(np.arange(len(rounds)), min(_BLOCKS, len(rounds)))
    random = np.random.default_rng(0)
    resampled = [
        statistic(rounds[np.concatenate([blocks[block] for block in chosen])])
        for chosen in random.integers(len(blocks), size=(_RESAMPLES, len(blocks)))
    ]
    low, high = np.percentile(resampled, [100 / 6, 500 / 6])
    return Measured(value, float(high - low) / 2)


def ratio(rounds: Samples, column: int, baseline: int, percentile: float = 50) -> Measured:
    """Returns the percentile of one column, divided by that of the column `baseline`.

    `rounds` is `float64[rounds, measures]`.
    """

    def statistic(resampled: Samples) -> float:
        numerator, denominator = np.percentile(resampled[:, [column, baseline]], percentile, axis=0)
        return float(numerator / denominator)

    return measured(rounds, statistic)


def _percentile(percentile: float, rounds: Samples) -> float:
    return float(np.percentile(rounds, percentile))


class Report:
    """The figures of one test. They are printed as they are recorded, and added to the run.

    Keys are stable, for example `baseline.one_caller.ratio`. A unit is one of `UNITS`. `missed`
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
        description: str,
        unit: str,
        better: Better | None = None,
    ) -> None:
        """Records a figure without a target. If `better` is None, runs are not compared by it."""
        self._record(key, figure, description, unit, better, None)

    def at_most(
        self, key: str, figure: float | Measured, description: str, unit: str, target: float
    ) -> None:
        """Records a figure that meets its target if it is not greater than `target`."""
        self._record(key, figure, description, unit, "lower", target)

    def at_least(
        self, key: str, figure: float | Measured, description: str, unit: str, target: float
    ) -> None:
        """Records a figure that meets its target if it is not smaller than `target`."""
        self._record(key, figure, description, unit, "higher", target)

    def percentiles(self, key: str, took_ms: Samples, description: str) -> None:
        """Records the p50 and the p99 of `float64[calls]`, in milliseconds."""
        for percent in (50, 99):
            figure = measured(took_ms, partial(_percentile, percent))
            self.record(f"{key}.p{percent}", figure, f"{description}, p{percent}", "ms")

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
        """Appends points to a line of a plot; `x` and `y` are the labels of the axes.

        The x of a point is a number or a name. Raises ValueError if the plot exists with another
        title or with other axes.
        """
        drawn = self._run.plots.setdefault(plot, Plot(title=title, x=x, y=y, lines={}))
        if (drawn.title, drawn.x, drawn.y) != (title, x, y):
            raise ValueError(f"plot {plot} exists as {drawn.title}, {drawn.x}, {drawn.y}")
        drawn.lines.setdefault(line, []).extend(
            (at if isinstance(at, str) else float(at), float(value)) for at, value in points
        )

    def draw_percentiles(self, plot: str, line: str, took_ms: Samples, title: str) -> None:
        """Draws the distribution of `float64[calls]` as a line of a plot."""
        points = zip(
            _PLOTTED_PERCENTILES, np.percentile(took_ms, _PLOTTED_PERCENTILES).tolist(), strict=True
        )
        self.draw(plot, line, points, title=title, x="percentile", y="ms")

    def _record(
        self,
        key: str,
        figure: float | Measured,
        description: str,
        unit: str,
        better: Better | None,
        target: float | None,
    ) -> None:
        noise = figure.noise if isinstance(figure, Measured) else None
        value = float(figure.value if isinstance(figure, Measured) else figure)
        recorded = Figure(
            what=description,
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
            self.missed.append(f"{description}: {line}")
        self._show(f"\n{description}\n  {line}")


class Run:
    """The results that all tests of a session have recorded."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}
        self.plots: dict[str, Plot] = {}
        self.micro: dict[str, Micro] = {}
        self.took_s: dict[str, float] = {}

    def add(self, key: str, figure: Figure) -> None:
        """Adds a figure.

        Raises ValueError if the key is invalid or already used, if the unit is unknown, or if the
        value is not finite.
        """
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
    """True if the figure differs from its target by at most one standard deviation.

    If so, another run may meet the target although this one has missed it.
    """
    assert figure.target is not None
    return figure.noise is not None and abs(figure.value - figure.target) <= figure.noise


def _line(figure: Figure) -> str:
    if figure.target is None:
        return f"figure {figure}"
    return f"target {figure.limit} / figure {figure} / {'met' if figure.met else 'MISSED'}"
