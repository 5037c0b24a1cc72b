"""Runs the comparison: every engine indexes the leaves, then all search blocks of queries in turn.

The order alternates, so that a slow spell of the machine affects all of them. An engine that is
not installed or cannot index is skipped, with the reason; hrag's source always takes part.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.peers.lexical.engine import ENGINES, LIMIT, Found
from benchmarks.peers.session import PeerFailed, Session
from benchmarks.report import Measured, Samples, measured, ratio
from benchmarks.table import head, row

ROUNDS = 80
BLOCK = 25  # Queries, one after the other.
OWN = "hrag"
MAX_RATIO_TO_TANTIVY = 1.0
MAX_DIFFERENCE_FROM_BM25S = 1e-4
_WORKER = "benchmarks.peers.lexical.worker"


@dataclass(frozen=True, slots=True)
class Figures:
    """One engine's figures: bytes on disk, milliseconds of a search, and hrag's beside it.

    `ratio` is hrag's median to the engine's; `difference` the largest of scores, `common` the
    share of hrag's leaves that the engine has found too.
    """

    index_bytes: int
    p50: Measured
    p99: Measured
    ratio: Measured
    difference: float
    common: float


class Comparison:
    """The engines that run, each in its own process, with what they found and how long it took."""

    def __init__(self, stack: ExitStack, corpus: Path, names: Sequence[str]) -> None:
        """Starts the engines and measures them. They end when `stack` is closed."""
        self.skipped: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.took: dict[str, list[float]] = {}
        self._index_bytes: dict[str, int] = {}
        self._found: dict[str, list[Found]] = {}
        self._sessions: dict[str, Session] = {}
        for name in (OWN, *(each for each in names if each != OWN)):
            try:
                self._start(stack, corpus, name)
            except PeerFailed as error:
                self.skipped[name] = str(error)
                print(f"SKIPPED {ENGINES[name].title}: {error}", flush=True)
        self._search()

    def _start(self, stack: ExitStack, corpus: Path, name: str) -> None:
        session = Session(ENGINES[name].python, _WORKER, name, corpus / name)
        stack.enter_context(session)
        self.versions.update(session.call("versions"))
        self._index_bytes[name] = session.call("index", corpus=str(corpus))["bytes"]
        self._found[name] = session.call("found")["found"]  # Warms up, too.
        self._sessions[name] = session
        print(f"indexed: {name}", flush=True)

    def _search(self) -> None:
        names = list(self._sessions)
        for number in range(ROUNDS):
            for name in reversed(names) if number % 2 else names:
                reply = self._sessions[name].call("search", first=number * BLOCK, count=BLOCK)
                self.took.setdefault(name, []).extend(reply["seconds"])

    def figures(self) -> dict[str, Figures]:
        """Returns the figures of each engine."""
        names = list(self.took)
        took_ms = np.array(list(self.took.values())).T * 1e3
        return {
            name: Figures(
                self._index_bytes[name],
                measured(took_ms[:, at], partial(_percentile, 50)),
                measured(took_ms[:, at], partial(_percentile, 99)),
                ratio(took_ms, names.index(OWN), at),
                max(map(difference, self._found[OWN], self._found[name])),
                float(np.mean(list(map(common, self._found[OWN], self._found[name])))),
            )
            for at, name in enumerate(names)
        }


def _percentile(percentile: float, rounds: Samples) -> float:
    return float(np.percentile(rounds, percentile))


def difference(own: Found, other: Found) -> float:
    """Returns the largest difference of scores, of equal leaves and of equal ranks.

    Ranks are compared too because equal scores may come in any order. A rank that one of them
    does not have has the score 0.
    """
    ranks = np.zeros((2, LIMIT))
    for ranked, found in zip(ranks, (own, other), strict=True):
        ranked[: len(found)] = [score for _, score in found]
    of_other = dict(other)
    by_leaf = [abs(score - of_other[leaf]) for leaf, score in own if leaf in of_other]
    return max([float(np.abs(ranks[0] - ranks[1]).max()), *by_leaf])


def common(own: Found, other: Found) -> float:
    """Returns the share of the leaves in `own` that are in `other`; 1 if `own` is empty."""
    leaves = {leaf for leaf, _ in own}
    return len(leaves & {leaf for leaf, _ in other}) / len(leaves) if leaves else 1.0


def table(figures: Mapping[str, Figures]) -> Iterator[str]:
    """Returns the table of all figures, and which targets are met."""
    yield from head(
        "engine", "index", "p50", "p99", "hrag's p50 to it", "leaves in common", "scores differ by"
    )
    for name, each in figures.items():
        yield row(
            ENGINES[name].title,
            f"{each.index_bytes / 1e6:.0f} MB",
            f"{each.p50.value:.3f} ms",
            f"{each.p99.value:.3f} ms",
            f"{each.ratio.value:.2f} ± {each.ratio.noise:.2f} x",
            f"{each.common:.2%}",
            f"{each.difference:.1e}",
        )
    if "tantivy" in figures:
        met = figures["tantivy"].ratio.value <= MAX_RATIO_TO_TANTIVY
        yield f"\ntime to tantivy's at most {MAX_RATIO_TO_TANTIVY} x: {_verdict(met)}"
    if "bm25s" in figures:
        met = figures["bm25s"].difference <= MAX_DIFFERENCE_FROM_BM25S
        yield f"scores within {MAX_DIFFERENCE_FROM_BM25S} of bm25s's: {_verdict(met)}"


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"
