"""How figures are taken and told.

What is compared is measured in turn in one run, the order changing from round to round:
a slow spell of the machine falls on both. Figures are medians or percentiles of rounds.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Figures = NDArray[np.float64]


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


def medians_ms(
    searches: Sequence[Callable[[int], object]], warm_up: int, rounds: int
) -> NDArray[np.float64]:
    """The median time of each search, given the numbers of the rounds, in milliseconds."""

    def timed(search: Callable[[int], object]) -> Callable[[int], float]:
        return lambda number: seconds(lambda: search(number))

    measures = list(map(timed, searches))
    interleaved(measures, warm_up)
    medians: NDArray[np.float64] = np.median(interleaved(measures, rounds), axis=0)
    return medians * 1e3


def tell(what: str, figure: str) -> None:
    """Prints a figure that has no bar."""
    print(f"\n{what}\n  figure {figure}", end="")


def at_most(bar: float, figure: float, what: str, unit: str) -> bool:
    """Whether the figure keeps the bar; prints bar, figure and verdict."""
    return _verdict("<=", bar, figure, what, unit, met=figure <= bar)


def at_least(bar: float, figure: float, what: str, unit: str) -> bool:
    """Whether the figure keeps the bar; prints bar, figure and verdict."""
    return _verdict(">=", bar, figure, what, unit, met=figure >= bar)


def _verdict(sign: str, bar: float, figure: float, what: str, unit: str, *, met: bool) -> bool:
    word = "met" if met else "MISSED"
    print(f"\n{what}\n  bar {sign} {bar:g} {unit} / figure {figure:.3f} {unit} / {word}", end="")
    return met
