"""`python -m benchmarks.plots [FIGURES]`: draws a run's plots as SVG next to its figures.

The axes of a plot determine its kind. Names on the x axis give stacked bars. Percentiles give a
scale by rarity, and numbers of leaves a logarithmic scale. Equal results give equal bytes. Needs
matplotlib (`pip install 'hrag[bench]'`).
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.figures import LATEST, BadResults, Plot, Results

_STYLE: dict[Any, Any] = {
    # Text instead of outlines makes the files ten times smaller.
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
}
_NO_DATE = {"Date": None, "Creator": None}
# The size in inches, without the legend.
_WIDTH, _HEIGHT = 7.0, 3.2
_LEGEND_ROW = 0.2
_PERCENTILES = (50, 90, 99, 99.9)


def write_all(results: Results, folder: Path) -> Iterator[Path]:
    """Draws each plot into a file `NAME.svg` in the folder and yields the path of the file.

    Deletes earlier plots first.
    """
    for earlier in folder.glob("*.svg"):
        earlier.unlink()
    for name, plot in results.plots.items():
        path = folder / f"{name}.svg"
        with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
            _draw(plot).savefig(path, metadata=_NO_DATE)
        yield path


def _draw(plot: Plot) -> Figure:
    rows = (len(plot.lines) + 1) // 2
    figure = Figure((_WIDTH, _HEIGHT + rows * _LEGEND_ROW), layout="constrained")
    axes = figure.subplots()
    axes.set_title(plot.title, loc="left")
    if _has_names(plot):
        _draw_bars(axes, plot)
    else:
        _draw_lines(axes, plot)
    return figure


def _has_names(plot: Plot) -> bool:
    return any(isinstance(x, str) for points in plot.lines.values() for x, _ in points)


def _draw_bars(axes: Axes, plot: Plot) -> None:
    """Draws a stacked bar for each line."""
    stages = dict.fromkeys(str(x) for points in plot.lines.values() for x, _ in points)
    names = list(plot.lines)
    ends = np.zeros(len(names))
    for stage in stages:
        lengths = [sum(y for x, y in points if x == stage) for points in plot.lines.values()]
        axes.barh(names, lengths, left=ends.tolist(), label=stage, height=0.6)
        ends += lengths
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(plot.y)
    axes.figure.legend(loc="outside lower center", ncols=len(stages))


def _draw_lines(axes: Axes, plot: Plot) -> None:
    for name, points in plot.lines.items():
        xs, ys = np.array([(float(x), y) for x, y in points]).T
        axes.plot(_rarity(xs) if plot.x == "percentile" else xs, ys, marker=".", label=name)
    if plot.x == "percentile":
        axes.set_xticks(
            _rarity(np.array(_PERCENTILES)), [f"p{percentile:g}" for percentile in _PERCENTILES]
        )
    elif plot.x == "leaves":
        axes.set_xscale("log")
        counts = sorted({float(x) for points in plot.lines.values() for x, _ in points})
        axes.set_xticks(counts, [f"{count:,.0f}" for count in counts])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    axes.figure.legend(loc="outside lower left", ncols=2)


def _rarity(percentiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the positions of percentiles on a scale with equal steps from p90 to p99 to p99.9."""
    rarity: NDArray[np.float64] = -np.log10(1 - percentiles / 100)
    return rarity


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 2 if the results cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plots", description=__doc__)
    parser.add_argument("figures", type=Path, nargs="?", default=LATEST)
    path = parser.parse_args(arguments).figures
    try:
        results = Results.read(path)
    except BadResults as error:
        print(error, file=sys.stderr)
        return 2
    for written in write_all(results, path.parent):
        print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
