"""The results of a benchmark run: its figures, its plots, and the machine on which it ran.

A run is one JSON file in a folder, together with its plots. One folder contains the latest run,
another the run that is stored with the code. Each figure has a stable key, by which two runs are
compared. Only figures are compared whose unit does not depend on the machine.
"""

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

# The version of the file format.
VERSION = 1
RESULTS = Path(__file__).with_name("results")
LATEST = RESULTS / "latest" / "figures.json"
STORED = RESULTS / "stored" / "figures.json"

Better = Literal["lower", "higher"]

# Figures with these units are about the same on another machine. Each unit has a tolerance, as a
# share of the figure: two runs of equal code may differ by this tolerance in addition to their
# noise.
TOLERANCE = {
    # A ratio of two figures of one run. Memory layout and scheduling differ from run to run.
    "x": 0.1,
    # A number between 0 and 1, for example a recall. Each parallel build gives another graph.
    "share": 0.005,
    "bytes": 0.05,
}
UNITS = (*TOLERANCE, "us", "ms", "s", "MB", "leaves/s", "calls/s")


class BadResults(Exception):
    """A results file cannot be read; the message names the file and the reason."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Figure(_Stored):
    """A figure, with everything that is needed to judge it and to measure it again."""

    what: str
    value: float
    unit: str
    # This field is None if the figure is reported only, so that runs are not compared by it.
    better: Better | None
    target: float | None
    # The noise is one standard deviation, in the unit of the figure.
    noise: float | None = Field(ge=0)
    seed: int | None
    sizes: dict[str, int]
    command: str
    # This field is True if only the full run measures the figure.
    full: bool
    # This field is True if the figure meets its target, and None if the figure has no target.
    met: bool | None

    def __str__(self) -> str:
        noise = "" if self.noise is None else f" ± {number(self.noise)}"
        return f"{number(self.value)}{noise}{self._unit}"

    @property
    def limit(self) -> str:
        """The target as text, for example `<= 1.25 x`; `none` without a target."""
        if self.target is None:
            return "none"
        return f"{'<=' if self.better == 'lower' else '>='} {number(self.target)}{self._unit}"

    @property
    def _unit(self) -> str:
        return "" if self.unit == "share" else f" {self.unit}"

    @property
    def is_compared(self) -> bool:
        """True if the figure can be compared with another machine's."""
        return self.better is not None and self.unit in TOLERANCE


class Plot(_Stored):
    """A plot: lines by their names.

    `x` and `y` are the labels of the axes. The x of a point is a number or a name.
    """

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float | str, float]]]


class Micro(_Stored):
    """pytest-benchmark's statistics of one test."""

    median_us: float
    iqr_us: float
    rounds: int


class Results(_Stored):
    """All results of one run."""

    version: Literal[1] = 1
    # The date, mode, commit, machine and versions of the run.
    about: dict[str, Any]
    figures: dict[str, Figure] = {}
    plots: dict[str, Plot] = {}
    micro: dict[str, Micro] = {}
    # The seconds that each test took, including its fixtures.
    took_s: dict[str, float] = {}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns the results in a file. Raises BadResults if the file is missing or not valid."""
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise BadResults(f"{path}: {error}") from error
        version = content.get("version") if isinstance(content, dict) else None
        if version != VERSION:
            raise BadResults(f"{path}: its version is {version!r}, this program reads {VERSION}")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise BadResults(f"{path}: {error}") from error

    def write(self, path: Path) -> None:
        """Writes the results to a file, and creates its folder if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=1) + "\n", "utf-8")


def number(value: float) -> str:
    """Returns the value with three significant digits, as figures are printed."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
