"""Runs the comparison: every engine indexes the leaves, then the engines search in turn.

An engine searches a block of queries, one query after the other. Then the next engine searches the
same block. The order of the engines alternates, so that a slow period of the machine affects all of
them. An engine that is not installed, or that cannot index, is skipped, and the reason is recorded.
hrag's source always takes part.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.peers.lexical.engine import ENGINES, LIMIT, RankedLeaves
from benchmarks.peers.session import PeerFailed, Session
from benchmarks.report import Measured, Samples, measured, ratio
from benchmarks.table import head, row

ROUNDS = 80
# A block has this many queries, one after the other.
BLOCK = 25
HRAG = "hrag"
MAX_RATIO_TO_TANTIVY = 1.0
MAX_DIFFERENCE_FROM_BM25S = 1e-4
_WORKER = "benchmarks.peers.lexical.worker"


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one engine: bytes on disk, milliseconds of a search, comparison with hrag.

    `ratio` is hrag's median divided by the engine's. `difference` is the largest difference of
    scores. `common` is the share of hrag's leaves that the engine has found too.
    """

    index_bytes: int
    p50: Measured
    p99: Measured
    ratio: Measured
    difference: float
    common: float


class Comparison:
    """The engines that run, each in a separate process, with their found leaves and times."""

    def __init__(self, stack: ExitStack, corpus: Path, names: Sequence[str]) -> None:
        """Starts the engines and measures them. They end when `stack` is closed."""
        self.skipped: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.took: dict[str, list[float]] = {}
        self._index_bytes: dict[str, int] = {}
        self._ranked: dict[str, list[RankedLeaves]] = {}
        self._sessions: dict[str, Session] = {}
        for name in (HRAG, *(other for other in names if other != HRAG)):
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
        # This call is also the warm-up.
        self._ranked[name] = session.call("ranked_leaves")["ranked_leaves"]
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
                measured(took_ms[:, column], partial(_percentile, 50)),
                measured(took_ms[:, column], partial(_percentile, 99)),
                ratio(took_ms, names.index(HRAG), column),
                max(map(difference, self._ranked[HRAG], self._ranked[name])),
                float(np.mean(list(map(common, self._ranked[HRAG], self._ranked[name])))),
            )
            for column, name in enumerate(names)
        }


def _percentile(percentile: float, rounds: Samples) -> float:
    return float(np.percentile(rounds, percentile))


def difference(ours: RankedLeaves, theirs: RankedLeaves) -> float:
    """Returns the largest difference between both engines' scores of a leaf or of a rank.

    Ranks are compared too, because leaves with equal scores may come in any order. If an engine
    returned fewer leaves, the missing ranks have the score 0.
    """
    ranks = np.zeros((2, LIMIT))
    for ranked, leaves in zip(ranks, (ours, theirs), strict=True):
        ranked[: len(leaves)] = [score for _, score in leaves]
    their_scores = dict(theirs)
    by_leaf = [abs(score - their_scores[leaf]) for leaf, score in ours if leaf in their_scores]
    return max([float(np.abs(ranks[0] - ranks[1]).max()), *by_leaf])


def common(ours: RankedLeaves, theirs: RankedLeaves) -> float:
    """Returns the share of the leaves in `ours` that are in `theirs`; 1 if `ours` is empty."""
    leaves = {leaf for leaf, _ in ours}
    return len(leaves & {leaf for leaf, _ in theirs}) / len(leaves) if leaves else 1.0


def table(figures: Mapping[str, Figures]) -> Iterator[str]:
    """Yields the table of all figures, and the verdicts on the targets."""
    yield from head(
        "engine", "index", "p50", "p99", "hrag's p50 to it", "leaves in common", "scores differ by"
    )
    for name, engine in figures.items():
        yield row(
            ENGINES[name].title,
            f"{engine.index_bytes / 1e6:.0f} MB",
            f"{engine.p50.value:.3f} ms",
            f"{engine.p99.value:.3f} ms",
            f"{engine.ratio.value:.2f} ± {engine.ratio.noise:.2f} x",
            f"{engine.common:.2%}",
            f"{engine.difference:.1e}",
        )
    if "tantivy" in figures:
        met = figures["tantivy"].ratio.value <= MAX_RATIO_TO_TANTIVY
        yield f"\ntime to tantivy's at most {MAX_RATIO_TO_TANTIVY} x: {_verdict(met)}"
    if "bm25s" in figures:
        met = figures["bm25s"].difference <= MAX_DIFFERENCE_FROM_BM25S
        yield f"scores within {MAX_DIFFERENCE_FROM_BM25S} of bm25s's: {_verdict(met)}"


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"
