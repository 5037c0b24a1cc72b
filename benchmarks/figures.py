"""What a run of the benchmarks leaves behind: figures, lines of plots, and where it ran.

Kept as JSON in a folder, plots beside it: one folder for the latest run, one for the run
that is stored with the code. A figure has a key that stays the same from run to run, so
that two runs can be compared; only what carries over to another machine is compared.
"""

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

VERSION = 1  # Of the file.
RESULTS = Path(__file__).with_name("results")
LATEST = RESULTS / "latest" / "figures.json"
STORED = RESULTS / "stored" / "figures.json"

Better = Literal["lower", "higher"]

# Units of what carries over to another machine, and how far figures of two runs of the same
# code may lie apart beyond their noise, as a share of the figure.
SPREAD = {
    "x": 0.1,  # A ratio of two figures of one run: where memory lies and threads run differs.
    "share": 0.005,  # Of 1, such as recall: threads build another graph each time.
    "bytes": 0.05,
}
UNITS = (*SPREAD, "us", "ms", "s", "MB", "leaves/s", "calls/s")


class BadResults(Exception):
    """A file is not the figures of a run; says which and why."""


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Figure(_Kept):
    """One figure, and what it takes to judge and to repeat it."""

    what: str
    value: float
    unit: str
    better: Better | None  # None: told beside others, neither good nor bad.
    bar: float | None
    noise: float | None = Field(ge=0)  # As a standard deviation, in its unit.
    seed: int | None
    sizes: dict[str, int]
    command: str
    full: bool  # Whether only the full run takes it.
    met: bool | None  # Whether the bar is kept; None without one.

    def __str__(self) -> str:
        noise = "" if self.noise is None else f" ± {number(self.noise)}"
        return f"{number(self.value)}{noise}{self._unit}"

    @property
    def limit(self) -> str:
        """The bar in words."""
        if self.bar is None:
            return "none"
        return f"{'<=' if self.better == 'lower' else '>='} {number(self.bar)}{self._unit}"

    @property
    def _unit(self) -> str:
        return "" if self.unit == "share" else f" {self.unit}"

    @property
    def is_compared(self) -> bool:
        return self.better is not None and self.unit in SPREAD


class Plot(_Kept):
    """Lines through points. `x` and `y` name the axes; a point's x is a number or a name."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float | str, float]]]


class Micro(_Kept):
    """What pytest-benchmark made of a function."""

    median_us: float
    iqr_us: float
    rounds: int


class Results(_Kept):
    """Everything of one run."""

    version: Literal[1] = 1
    about: dict[str, Any]  # Date, mode, commit, machine, versions.
    figures: dict[str, Figure] = {}
    plots: dict[str, Plot] = {}
    micro: dict[str, Micro] = {}
    took_s: dict[str, float] = {}  # Each test, what it shares included.

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises BadResults where there is no such file or it is another thing."""
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
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=1) + "\n", "utf-8")


def number(value: float) -> str:
    """Three digits, as figures are told."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
