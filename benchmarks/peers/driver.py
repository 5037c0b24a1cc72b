"""Runs the comparison: embeds the leaves, measures recall, times indexing and searches.

Peers index and search in rounds whose order alternates, so that a slow period of the machine
affects all of them. A peer that is not installed, or that fails, is skipped, and the reason is
recorded.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.peers.corpora import Corpus
from benchmarks.peers.embed import embed_missing
from benchmarks.peers.registry import PEERS
from benchmarks.peers.session import PeerFailed, Session

P = TypeVar("P")

# A search ranks 10 candidates, as by default in Haystack, or 50, which fill the larger budget.
CANDIDATES = (10, 50)
BUDGETS = (2000, 4000)
LIMIT = 5  # The default of hrag.


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run.

    A block of searches ends early after `block_s` seconds.
    """

    names: Sequence[str]
    index_rounds: int = 3
    search_rounds: int = 20
    block: int = 25
    block_s: float = 1.0


@dataclass(slots=True)
class Results:
    """All figures, by the name of the peer. `recall` has the corpus as its second key."""

    skipped: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    indexed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    searched: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    recall: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)


class Run:
    """A run. Times are measured with the corpus `timed`, recall with the corpora `scored`."""

    def __init__(self, plan: Plan, timed: Corpus, scored: Sequence[Corpus], vectors: Path) -> None:
        """Stores the parameters.

        `vectors` is the file of vectors; missing vectors are added to it.
        """
        self._plan = plan
        self._timed = timed
        self._scored = scored
        self._vectors = vectors
        self.results = Results()

    def __call__(self) -> Results:
        """Runs everything and returns the figures."""
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            self._folder = Path(folder)
            for corpus in (self._timed, *self._scored):
                corpus.save(self._path(corpus))
            self._embed()
            self._score()
            self._time()
        return self.results

    def _embed(self) -> None:
        texts = [
            question.text
            for corpus in (self._timed, *self._scored)
            for question in corpus.questions
        ]
        for name in self._plan.names:
            with self._skipping_failures(name), self._session(name) as session:
                self.results.versions.update(session.call("versions"))
                texts += chain.from_iterable(self._leaves(session, name))
        count = embed_missing(texts, self._vectors)
        print(f"{len(set(texts)):,} texts, {count:,} of them embedded now", flush=True)

    def _leaves(self, session: Session, name: str) -> Iterator[list[str]]:
        into = self._folder / "leaves.json"
        for corpus in [*([self._timed] if PEERS[name].timed else []), *self._scored_by(name)]:
            session.call("leaves", corpus=str(self._path(corpus)), into=str(into))
            yield json.loads(into.read_text("utf-8"))

    def _score(self) -> None:
        for name in self._remaining(lambda name: bool(self._scored_by(name))):
            with self._skipping_failures(name), self._session(name) as session:
                for corpus in self._scored_by(name):
                    reply = session.call(
                        "recall",
                        corpus=str(self._path(corpus)),
                        vectors=str(self._vectors),
                        candidates=CANDIDATES,
                        budgets=BUDGETS,
                    )
                    self.results.recall.setdefault(name, {})[corpus.name] = reply["scores"]
            print(f"scored: {name}", flush=True)

    def _time(self) -> None:
        """Lets every peer index in each round; then the indexes of the last round are searched."""
        with ExitStack() as staying:
            sessions: dict[str, Session] = {}
            for number in range(self._plan.index_rounds):
                last = number == self._plan.index_rounds - 1
                for name in alternating(self._remaining(lambda name: PEERS[name].timed), number):
                    with self._skipping_failures(name), ExitStack() as closing:
                        session = closing.enter_context(self._session(name))
                        self._index(name, session)
                        if last:
                            sessions[name] = session
                            staying.push(closing.pop_all())
                print(f"indexed: round {number + 1} of {self._plan.index_rounds}", flush=True)
            self._search(sessions)

    def _index(self, name: str, session: Session) -> None:
        corpus, vectors = str(self._path(self._timed)), str(self._vectors)
        indexed = session.call("index", corpus=corpus, vectors=vectors)
        self.results.indexed.setdefault(name, []).append(indexed)

    def _search(self, sessions: dict[str, Session]) -> None:
        for number in range(self._plan.search_rounds):
            for name in alternating(self._remaining(sessions.__contains__), number):
                with self._skipping_failures(name):
                    for candidates in CANDIDATES:
                        reply = sessions[name].call(
                            "search",
                            first=number * self._plan.block,
                            count=self._plan.block,
                            candidates=candidates,
                            limit=LIMIT,
                            max_s=self._plan.block_s,
                        )
                        took = self.results.searched.setdefault(name, {})
                        took.setdefault(candidates, []).extend(reply["seconds"])

    def _session(self, name: str) -> Session:
        folder = Path(tempfile.mkdtemp(dir=self._folder)) / name
        return Session(PEERS[name].python, "benchmarks.peers.worker", name, folder)

    def _scored_by(self, name: str) -> list[Corpus]:
        peer = PEERS[name]
        corpora = [corpus for corpus in self._scored if peer.cuts_chinese or not corpus.chinese]
        return corpora if peer.scored else []

    def _remaining(self, takes_part: Callable[[str], bool]) -> list[str]:
        """Returns the peers that take part in a step and have not failed."""
        names = [name for name in self._plan.names if name not in self.results.skipped]
        return [name for name in names if takes_part(name)]

    @contextmanager
    def _skipping_failures(self, name: str) -> Iterator[None]:
        """Records and prints the reason if a peer fails; the run continues."""
        try:
            yield
        except PeerFailed as error:
            self.results.skipped[name] = str(error)
            print(f"SKIPPED {PEERS[name].title}: {error}", flush=True)

    def _path(self, corpus: Corpus) -> Path:
        return self._folder / f"{corpus.name}.json"


def alternating(peers: Sequence[P], number: int) -> list[P]:
    """Returns the peers in order, or in reverse order in odd rounds."""
    return list(reversed(peers)) if number % 2 else list(peers)
