"""Draws small charts as inline SVG, without scripts, fonts or further files.

The style sheet of the HTML page defines a colour for each class, so that light and dark themes both
work. Colours are never needed to read a chart: labels and the shapes of marks show the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from hrag.evaluation.bootstrap import Estimate

COLOURS = 8  # The style sheet defines a colour for each of the classes c0 to c7.

_WIDTH = 760
_ROW = 26
_LABEL_WIDTH = 230
_LABEL_CHARS = 32
_RIGHT = 96
_PLOT_HEIGHT = 260
_TOP, _BOTTOM = 14, 34
# The axis of an interval chart extends at least this far to both sides of zero.
_SHORTEST_REACH = 0.01
# The marks of points: a circle, a square, a triangle and a diamond, as SVG paths.
_SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-4 -4h8v8h-8z",
    "M0 -5l5 8h-10z",
    "M0 -5l5 5l-5 5l-5 -5z",
)


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a chart: its name and one estimate for each position."""

    name: str
    points: Sequence[Estimate]


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a bar chart: its name, the lengths of its parts, and the text right of the bar."""

    name: str
    parts: Sequence[float]
    text: str


def line_chart(title: str, positions: Sequence[str], series: Sequence[Series]) -> str:
    """Returns a chart with one line for each series, as SVG.

    `positions` are the names below the horizontal axis. The vertical axis shows shares from 0 to 1.
    At each point of a line, a vertical bar shows the interval of the estimate.
    """
    plot = _WIDTH - 48 - _LABEL_WIDTH
    height = max(_TOP + _PLOT_HEIGHT + _BOTTOM, _TOP + 20 * len(series) + _BOTTOM)

    def x(position: float) -> float:
        return 40 + plot * (position + 0.5) / len(positions)

    def y(share: float) -> float:
        return _TOP + _PLOT_HEIGHT * (1 - share)

    parts = [_grid_line(40, y(fifths / 5), 40 + plot, f"{20 * fifths}") for fifths in range(6)]
    parts += [
        _text(x(index), _TOP + _PLOT_HEIGHT + 18, name, "middle")
        for index, name in enumerate(positions)
    ]
    for series_index, line in enumerate(series):
        # The lines are shifted sideways, because otherwise their intervals would cover each other.
        shift = (series_index - (len(series) - 1) / 2) * min(0.06, 0.5 / len(series))
        marks = [(x(index + shift), y(point.mean)) for index, point in enumerate(line.points)]
        corners = " ".join(f"{left:.1f},{top:.1f}" for left, top in marks)
        parts.append(f'<polyline class="line {_colour(series_index)}" points="{corners}"/>')
        for (left, top), point in zip(marks, line.points, strict=True):
            parts.append(_vertical(left, y(point.high), y(point.low), series_index))
            parts.append(_mark(left, top, series_index))
        legend_top = _TOP + 8 + 20 * series_index
        parts.append(_mark(40 + plot + 22, legend_top, series_index))
        parts.append(_text(40 + plot + 34, legend_top + 4, line.name, "start"))
    return _svg(title, height, parts)


def interval_chart(title: str, rows: Sequence[tuple[str, Estimate]], texts: Sequence[str]) -> str:
    """Returns a chart with one row for each estimate and a vertical line at zero, as SVG.

    A row shows a name, a point with its interval, and at the right the text from `texts` that has
    the same index as the row.
    """
    lowest = min([-_SHORTEST_REACH, *(estimate.low for _, estimate in rows)])
    highest = max([_SHORTEST_REACH, *(estimate.high for _, estimate in rows)])
    left, right = _LABEL_WIDTH, _WIDTH - _RIGHT

    def x(value: float) -> float:
        return left + (right - left) * (value - lowest) / (highest - lowest)

    bottom = _TOP + _ROW * len(rows)
    parts = [f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{_TOP}" y2="{bottom}"/>']
    for row, ((name, estimate), text) in enumerate(zip(rows, texts, strict=True)):
        middle = _TOP + _ROW * (row + 0.5)
        style = "beyond" if estimate.beyond_chance else "within"
        parts.append(_text(left - 12, middle + 4, name, "end"))
        parts.append(
            f'<line class="interval {style}" x1="{x(estimate.low):.1f}" '
            f'x2="{x(estimate.high):.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
        )
        parts.append(
            f'<circle class="point {style}" cx="{x(estimate.mean):.1f}" cy="{middle}" r="5"/>'
        )
        parts.append(_text(right + 10, middle + 4, text, "start"))
    parts.append(_text(x(0), bottom + 18, "0", "middle"))
    for end in (lowest, highest):
        # The end of the axis has a label only if it is far from zero. Otherwise the label would
        # cover the label of zero.
        if abs(end) > _SHORTEST_REACH:
            parts.append(_text(x(end), bottom + 18, f"{100 * end:+.1f}", "middle"))
    return _svg(title, bottom + _BOTTOM, parts)


def bar_chart(title: str, bars: Sequence[Bar], classes: Sequence[str]) -> str:
    """Returns a chart of horizontal bars, as SVG.

    The parts of a bar follow one another. The CSS class of a part is the entry of `classes` that
    has the index of the part.
    """
    longest = max([1e-9, *(sum(bar.parts) for bar in bars)])
    left, right = _LABEL_WIDTH, _WIDTH - _RIGHT
    parts = []
    for row, bar in enumerate(bars):
        top = _TOP + _ROW * row
        parts.append(_text(left - 12, top + _ROW / 2 + 4, bar.name, "end"))
        start = float(left)
        for length, style in zip(bar.parts, classes, strict=True):
            width = (right - left) * length / longest
            parts.append(
                f'<rect class="{style}" x="{start:.1f}" y="{top + 4}" width="{width:.1f}" '
                f'height="{_ROW - 8}"/>'
            )
            start += width
        parts.append(_text(right + 10, top + _ROW / 2 + 4, bar.text, "start"))
    return _svg(title, _TOP + _ROW * len(bars) + 6, parts)


def _svg(title: str, height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {_WIDTH} {height:.0f}" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _text(left: float, top: float, text: str, anchor: str) -> str:
    shown = text if len(text) <= _LABEL_CHARS else f"{text[: _LABEL_CHARS - 1]}…"
    title = "" if shown == text else f"<title>{escape(text)}</title>"
    return (
        f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}">{title}{escape(shown)}</text>'
    )


def _grid_line(left: float, top: float, right: float, label: str) -> str:
    line = f'<line class="grid" x1="{left}" x2="{right}" y1="{top:.1f}" y2="{top:.1f}"/>'
    return line + _text(left - 8, top + 4, label, "end")


def _vertical(left: float, top: float, bottom: float, series_index: int) -> str:
    return (
        f'<line class="whisker {_colour(series_index)}" x1="{left:.1f}" x2="{left:.1f}" '
        f'y1="{top:.1f}" y2="{bottom:.1f}"/>'
    )


def _mark(left: float, top: float, series_index: int) -> str:
    """Returns the mark that is drawn at a point of a series, as SVG.

    The marks of different series differ in colour or shape. After 32 series, the combinations of
    colour and shape repeat.
    """
    shape = _SHAPES[(series_index + series_index // COLOURS) % len(_SHAPES)]
    position = f'transform="translate({left:.1f} {top:.1f})"'
    return f'<path class="mark {_colour(series_index)}" {position} d="{shape}"/>'


def _colour(series_index: int) -> str:
    return f"c{series_index % COLOURS}"
