"""How figures are taken, told and kept.

What is compared is measured in turn in one run, the order changing from round to round:
a slow spell of the machine falls on both. Figures are medians or percentiles of rounds.

A figure's noise is how far it would be off had other rounds been drawn: the spread of the
same statistic over rounds drawn again with replacement (the bootstrap), which serves a
ratio of medians as well as a difference of p99s. It is half of what two thirds of the draws
span: a standard deviation that a few wild draws do not carry off. Neighbouring rounds are
drawn together, since a slow spell outlasts a round. What differs from run to run, such as
where memory lies, it cannot know: `benchmarks.compare` allows for that.
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

Figures = NDArray[np.float64]

_DRAWS = 200
_DRAWN = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9)  # Percentiles.
_BLOCKS = 25  # Of neighbouring rounds.
_KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(measures: Sequence[Callable[[int], float]], rounds: int) -> Figures:
    """Calls every measure with the number of each round: `float64[rounds, measures]`.

    Even rounds go through the measures forwards, odd ones backwards.
    """
    figures = np.empty((rounds, len(measures)))
    places = range(len(measures))
    for number in range(rounds):
        for place in reversed(places) if number % 2 else places:
            figures[number, place] = measures[place](number)
    return figures


def interleaved_ms(
    searches: Sequence[Callable[[int], object]], warm_up: int, rounds: int
) -> Figures:
    """The times of each search, given the numbers of the rounds: `float64[rounds, searches]`."""

    def timed(search: Callable[[int], object]) -> Callable[[int], float]:
        return lambda number: seconds(lambda: search(number))

    measures = list(map(timed, searches))
    interleaved(measures, warm_up)
    return interleaved(measures, rounds) * 1e3


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure and its noise, both in one unit. A single round knows of no noise."""

    value: float
    noise: float | None


def measured(rounds: Figures, statistic: Callable[[Figures], float]) -> Measured:
    """The statistic of `float64[rounds, ...]`, which must not depend on the rounds' order."""
    value = float(statistic(rounds))
    if len(rounds) == 1:
        return Measured(value, None)
    blocks = np.array_split(np.arange(len(rounds)), min(_BLOCKS, len(rounds)))
    random = np.random.default_rng(0)
    drawn = [
        statistic(rounds[np.concatenate([blocks[each] for each in chosen])])
        for chosen in random.integers(len(blocks), size=(_DRAWS, len(blocks)))
    ]
    low, high = np.percentile(drawn, [100 / 6, 500 / 6])
    return Measured(value, float(high - low) / 2)


def ratio(rounds: Figures, of: int, to: int, percentile: float = 50) -> Measured:
    """A percentile of one measure to that of another: `float64[rounds, measures]`."""

    def statistic(drawn: Figures) -> float:
        above, below = np.percentile(drawn[:, [of, to]], percentile, axis=0)
        return float(above / below)

    return measured(rounds, statistic)


def _percentile(percentile: float, rounds: Figures) -> float:
    return float(np.percentile(rounds, percentile))


class Report:
    """Figures of one test: printed as they are taken, and kept for the run's file.

    Keys stay the same from run to run, such as `floor.one_caller.to_bare`; units are those of
    `UNITS`. `missed` names the figures that broke their bar by more than their noise.
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

    def of(self, *, seed: int | None = None, **sizes: int) -> None:
        """What the figures that follow are of, such as `leaves=1000, dimension=64`."""
        self._seed = seed
        self._sizes = sizes

    def tell(
        self,
        key: str,
        figure: float | Measured,
        what: str,
        unit: str,
        better: Better | None = None,
    ) -> None:
        """A figure that has no bar. It is compared with other runs' where `better` is given."""
        self._keep(key, figure, what, unit, better, None)

    def at_most(self, key: str, figure: float | Measured, what: str, unit: str, bar: float) -> None:
        """A figure that must not pass `bar`."""
        self._keep(key, figure, what, unit, "lower", bar)

    def at_least(
        self, key: str, figure: float | Measured, what: str, unit: str, bar: float
    ) -> None:
        """A figure that must reach `bar`."""
        self._keep(key, figure, what, unit, "higher", bar)

    def percentiles(self, key: str, took_ms: Figures, what: str) -> None:
        """Tells p50 and p99 of `float64[calls]`."""
        for each in (50, 99):
            figure = measured(took_ms, partial(_percentile, each))
            self.tell(f"{key}.p{each}", figure, f"{what}, p{each}", "ms")

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
        """Adds points to a line of a plot; `x` and `y` name its axes. An x may be a name."""
        drawn = self._run.plots.setdefault(plot, Plot(title=title, x=x, y=y, lines={}))
        if (drawn.title, drawn.x, drawn.y) != (title, x, y):
            raise ValueError(f"plot {plot} is another one: {drawn.title}, {drawn.x}, {drawn.y}")
        drawn.lines.setdefault(line, []).extend(
            (each if isinstance(each, str) else float(each), float(value)) for each, value in points
        )

    def draw_percentiles(self, plot: str, line: str, took_ms: Figures, title: str) -> None:
        """Draws the distribution of `float64[calls]`."""
        points = zip(_DRAWN, np.percentile(took_ms, _DRAWN).tolist(), strict=True)
        self.draw(plot, line, points, title=title, x="percentile", y="ms")

    def _keep(
        self,
        key: str,
        figure: float | Measured,
        what: str,
        unit: str,
        better: Better | None,
        bar: float | None,
    ) -> None:
        noise = figure.noise if isinstance(figure, Measured) else None
        value = float(figure.value if isinstance(figure, Measured) else figure)
        kept = Figure(
            what=what,
            value=value,
            unit=unit,
            better=better,
            bar=bar,
            noise=noise,
            seed=self._seed,
            sizes=self._sizes,
            command=self._command,
            full=self._full,
            met=_met(value, better, bar),
        )
        self._run.keep(key, kept)
        told = _told(kept)
        if kept.met is False and not _might_be_met(kept):
            self.missed.append(f"{what}: {told}")
        self._show(f"\n{what}\n  {told}")


class Run:
    """What the tests of a session have kept."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}
        self.plots: dict[str, Plot] = {}
        self.micro: dict[str, Micro] = {}
        self.took_s: dict[str, float] = {}

    def keep(self, key: str, figure: Figure) -> None:
        """Raises ValueError for a figure that no other run could be compared with."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"key {key!r}: small letters, digits and _ between dots are allowed")
        if key in self.figures:
            raise ValueError(f"key {key!r} is that of another figure: {self.figures[key].what}")
        if figure.unit not in UNITS:
            raise ValueError(f"{key}: unit {figure.unit!r} is none of {', '.join(UNITS)}")
        if not math.isfinite(figure.value):
            raise ValueError(f"{key}: {figure.value} is not a figure")
        self.figures[key] = figure


def _met(value: float, better: Better | None, bar: float | None) -> bool | None:
    if bar is None:
        return None
    return value <= bar if better == "lower" else value >= bar


def _might_be_met(figure: Figure) -> bool:
    """Whether the bar is within one deviation, so that another run may well keep it."""
    assert figure.bar is not None
    return figure.noise is not None and abs(figure.value - figure.bar) <= figure.noise


def _told(figure: Figure) -> str:
    if figure.bar is None:
        return f"figure {figure}"
    return f"bar {figure.limit} / figure {figure} / {'met' if figure.met else 'MISSED'}"
