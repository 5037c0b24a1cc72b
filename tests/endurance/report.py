"""Figures beside their targets, printed as they are taken and asserted together at the end.

A missed target does not end a test, because the figures that follow are worth their time.
"""

import pytest


class Report:
    """Figures of one test. `missed` names those that miss their target."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.missed: list[str] = []

    def record(self, what: str, figure: str) -> None:
        """Prints a figure that has no target."""
        self._print(f"\n{what}\n  figure {figure}")

    def at_most(self, target: float, figure: float, what: str, unit: str) -> None:
        """Prints a figure that must not be above `target`."""
        self._compare("<=", target, figure, what, unit, met=figure <= target)

    def at_least(self, target: float, figure: float, what: str, unit: str) -> None:
        """Prints a figure that must not be below `target`."""
        self._compare(">=", target, figure, what, unit, met=figure >= target)

    def _compare(
        self, sign: str, target: float, figure: float, what: str, unit: str, *, met: bool
    ) -> None:
        line = f"target {sign} {target:.4g} {unit} / figure {figure:.4g} {unit}"
        self._print(f"\n{what}\n  {line} / {'met' if met else 'MISSED'}")
        if not met:
            self.missed.append(f"{what}: {line}")

    def _print(self, text: str) -> None:
        with self._capsys.disabled():
            print(text, end="", flush=True)  # noqa: T201 - figures are what these tests are for
