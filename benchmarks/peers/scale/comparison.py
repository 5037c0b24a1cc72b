"""Runs the comparison by size: every peer indexes and searches a corpus of each size.

Peers search in rounds whose order alternates, so that a slow period of the machine affects all of
them. If a corpus is large, only one peer is in memory at a time, and it indexes and searches alone.
If a peer exceeds a limit or fails, the reason is reported, and the other peers continue.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import alternating
from benchmarks.peers.registry import Entry
from benchmarks.peers.scale.corpus_writer import write_corpus
from benchmarks.peers.scale.limits import Limits, within
from benchmarks.peers.scale.peer import SCALE_PEERS
from benchmarks.peers.session import PeerFailed, Session

CALLERS = (1, 8)
LOAD_S = 5.0
_MAX_LEAVES_TOGETHER = 200_000
_WORKER = "benchmarks.peers.scale.worker"


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run.

    In each round, each number of callers searches for `load_s` seconds.
    """

    names: Sequence[str]
    sizes: Sequence[int]
    limits: Limits
    rounds: int = 3
    load_s: float = LOAD_S


@dataclass(slots=True)
class Searched:
    """The searches of a number of callers: the seconds of each search, and of all rounds."""

    took_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0


@dataclass(slots=True)
class Figures:
    """The figures of a peer at one size.

    If the peer failed, `failed` is the reason, and some figures are missing.
    """

    costs: dict[str, Any] = field(default_factory=dict)
    searched: dict[int, Searched] = field(default_factory=dict)
    failed: str | None = None


@dataclass(slots=True)
class Size:
    """A corpus of one size, and the figures of all peers on it."""

    leaves: int
    peers: dict[str, Figures] = field(default_factory=dict)


@dataclass(slots=True)
class Results:
    """All figures, and the versions of the libraries of all peers."""

    sizes: list[Size] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


class Comparison:
    """A run of the comparison by size."""

    def __init__(self, plan: Plan, done: Callable[[Results], None]) -> None:
        """Stores the parameters. After each size, `done` is called with the results so far."""
        self._plan = plan
        self._done = done
        self._results = Results()

    def __call__(self) -> Results:
        """Runs everything and returns the figures."""
        for leaf_count in self._plan.sizes:
            with temporary_folder() as folder:
                corpus = folder / "corpus"
                corpus.mkdir()
                size = Size(write_corpus(corpus, leaf_count))
                print(f"{size.leaves:,} leaves", flush=True)
                self._results.sizes.append(size)
                for names in groups(self._plan.names, size.leaves):
                    self._measure(names, folder, size)
            self._done(self._results)
        return self._results

    def _measure(self, names: Sequence[str], folder: Path, size: Size) -> None:
        """Measures these peers together: all of them index, then they search in turn."""
        with ExitStack() as stack:
            peers = [
                _Peer(name, size.peers.setdefault(name, Figures()), self._plan) for name in names
            ]
            for peer in peers:
                peer.attempt(lambda peer=peer: self._index(peer, folder, stack))
            for number in range(self._plan.rounds):
                for peer in alternating(peers, number):
                    peer.attempt(peer.search)
                print(f"searched: round {number + 1} of {self._plan.rounds}", flush=True)
            for peer in peers:
                peer.attempt(peer.save)

    def _index(self, peer: "_Peer", folder: Path, stack: ExitStack) -> None:
        peer.session = stack.enter_context(
            session_of(SCALE_PEERS[peer.name], _WORKER, peer.name, folder)
        )
        self._results.versions.update(peer.session.call("versions"))
        peer.index(folder / "corpus")
        print(f"indexed: {peer.name}", flush=True)


class _Peer:
    """A peer's session and its figures. Time and memory of the session's calls are limited."""

    session: Session

    def __init__(self, name: str, figures: Figures, plan: Plan) -> None:
        self.name = name
        self._figures = figures
        self._plan = plan

    def attempt(self, step: Callable[[], None]) -> None:
        """Performs a step. Does nothing if an earlier step has failed.

        If the step fails, records and prints the reason.
        """
        if self._figures.failed is None:
            try:
                step()
            except PeerFailed as error:
                self._figures.failed = str(error)
                print(f"FAILED {SCALE_PEERS[self.name].title}: {error}", flush=True)

    def index(self, corpus: Path) -> None:
        costs = self._figures.costs
        costs.update(self._call("indexing", "index", corpus=str(corpus)))
        costs.update(self._call("finding its ef", "tune"))

    def search(self) -> None:
        for callers in CALLERS:
            reply = self._call("searching", "load", callers=callers, seconds=self._plan.load_s)
            searched = self._figures.searched.setdefault(callers, Searched())
            searched.took_s += reply["took_s"]
            searched.elapsed_s += reply["elapsed_s"]

    def save(self) -> None:
        self._figures.costs.update(self._call("saving", "save"))

    def _call(self, action: str, method: str, **parameters: Any) -> dict[str, Any]:
        costs = self._figures.costs
        with within(self.session, self._plan.limits, action) as watch:
            reply = self.session.call(method, **parameters)
        costs["peak_bytes"] = max(watch.peak_bytes, costs.get("peak_bytes", 0))
        return reply


def groups(names: Sequence[str], leaf_count: int) -> list[list[str]]:
    """Returns groups of peers that are measured together.

    All peers of a group must fit into the memory.
    """
    return [list(names)] if leaf_count <= _MAX_LEAVES_TOGETHER else [[name] for name in names]


@contextmanager
def session_of(entry: Entry, worker: str, name: str, folder: Path) -> Iterator[Session]:
    """Starts a peer. In the end its files are removed, even if the peer was killed."""
    peer_folder = folder / name
    temporary = peer_folder / "temporary"
    temporary.mkdir(parents=True)
    settings = {"TMPDIR": str(temporary)}
    try:
        with Session(entry.python, worker, name, peer_folder / "worker", settings) as session:
            yield session
    finally:
        shutil.rmtree(peer_folder, ignore_errors=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yields a temporary folder in which a server that runs as another user can use a folder."""
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder
