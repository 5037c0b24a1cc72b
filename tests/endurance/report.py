"""Figures with their bars, printed as they are taken and judged together at the end.

A missed bar does not end a test: the figures that follow are worth their time.
"""

import pytest


class Report:
    """Figures of one test. `missed` names those that broke their bar."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.missed: list[str] = []

    def tell(self, what: str, figure: str) -> None:
        """Prints a figure that has no bar."""
        self._print(f"\n{what}\n  figure {figure}")

    def at_most(self, bar: float, figure: float, what: str, unit: str) -> None:
        """Prints a figure that must not pass `bar`."""
        self._judge("<=", bar, figure, what, unit, met=figure <= bar)

    def at_least(self, bar: float, figure: float, what: str, unit: str) -> None:
        """Prints a figure that must reach `bar`."""
        self._judge(">=", bar, figure, what, unit, met=figure >= bar)

    def _judge(
        self, sign: str, bar: float, figure: float, what: str, unit: str, *, met: bool
    ) -> None:
        line = f"bar {sign} {bar:.4g} {unit} / figure {figure:.4g} {unit}"
        self._print(f"\n{what}\n  {line} / {'met' if met else 'MISSED'}")
        if not met:
            self.missed.append(f"{what}: {line}")

    def _print(self, text: str) -> None:
        with self._capsys.disabled():
            print(text, end="", flush=True)  # noqa: T201 - figures are what these tests are for
