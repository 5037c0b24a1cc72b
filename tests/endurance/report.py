"""Prints figures and their targets as they are measured. A test fails at its end if it missed one.

A missed target does not end a test at once, so that the test still measures the later figures.
"""

import pytest


class Report:
    """The figures of one test. `missed` describes the figures that miss their target."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.missed: list[str] = []

    def record(self, title: str, figure: str) -> None:
        """Prints a figure that has no target."""
        self._print(f"\n{title}\n  figure {figure}")

    def at_most(self, target: float, figure: float, title: str, unit: str) -> None:
        """Prints a figure that must not be above `target`."""
        self._compare("<=", target, figure, title, unit, met=figure <= target)

    def at_least(self, target: float, figure: float, title: str, unit: str) -> None:
        """Prints a figure that must not be below `target`."""
        self._compare(">=", target, figure, title, unit, met=figure >= target)

    def _compare(
        self, sign: str, target: float, figure: float, title: str, unit: str, *, met: bool
    ) -> None:
        line = f"target {sign} {target:.4g} {unit} / figure {figure:.4g} {unit}"
        self._print(f"\n{title}\n  {line} / {'met' if met else 'MISSED'}")
        if not met:
            self.missed.append(f"{title}: {line}")

    def _print(self, text: str) -> None:
        with self._capsys.disabled():
            print(text, end="", flush=True)  # noqa: T201 - these tests exist to print figures
