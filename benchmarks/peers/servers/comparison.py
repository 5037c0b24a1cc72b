"""Runs the comparison of servers: all of them index, then they are searched in turn.

The order of servers alternates from round to round, so that a slow period of the machine affects
all of them. With many leaves, only one server is in memory at a time. A server that is not
installed, cannot start, fails or exceeds a limit is skipped, and the reason is printed.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import alternating
from benchmarks.peers.scale.comparison import groups, session_of, temporary_folder
from benchmarks.peers.scale.corpus_writer import write_corpus
from benchmarks.peers.scale.limits import Limits, within
from benchmarks.peers.servers.server import DIMENSION, SERVERS
from benchmarks.peers.session import PeerFailed, Session

_WORKER = "benchmarks.peers.servers.worker"


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run. In each round, each server is searched for `seconds` seconds."""

    names: Sequence[str]
    leaves: int
    rounds: int
    seconds: int
    limits: Limits


@dataclass(slots=True)
class Figures:
    """The figures of a server: of indexing, and of each round of searches.

    If the server failed, `failed` is the reason, and some figures are missing.
    """

    costs: dict[str, Any] = field(default_factory=dict)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    failed: str | None = None


@dataclass(slots=True)
class Results:
    """The number of leaves, the figures of all servers, and the versions of libraries."""

    leaves: int = 0
    servers: dict[str, Figures] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


class Comparison:
    """A run of the comparison."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._results = Results(servers={name: Figures() for name in plan.names})
        self._sessions: dict[str, Session] = {}

    def __call__(self) -> Results:
        """Runs everything and returns the figures."""
        with temporary_folder() as folder:
            corpus = folder / "corpus"
            corpus.mkdir()
            self._results.leaves = write_corpus(corpus, self._plan.leaves, DIMENSION)
            print(f"{self._results.leaves:,} leaves of {DIMENSION} dimensions", flush=True)
            for names in groups(self._plan.names, self._results.leaves):
                self._measure(names, folder)
        return self._results

    def _measure(self, names: Sequence[str], folder: Path) -> None:
        """Measures these servers together."""
        with ExitStack() as stack:
            for name in names:
                self._attempt(name, lambda name=name: self._index(name, folder, stack))
            for number in range(self._plan.rounds):
                for name in alternating(names, number):
                    self._attempt(name, lambda name=name, n=number: self._search(name, n))
                print(f"searched: round {number + 1} of {self._plan.rounds}", flush=True)

    def _index(self, name: str, folder: Path, stack: ExitStack) -> None:
        session = stack.enter_context(session_of(SERVERS[name], _WORKER, name, folder))
        self._sessions[name] = session
        self._results.versions.update(session.call("versions"))
        costs = self._results.servers[name].costs
        costs.update(self._call(name, "indexing", "index", corpus=str(folder / "corpus")))
        costs.update(self._call(name, "finding its ef", "tune"))
        print(f"indexed: {name}", flush=True)

    def _search(self, name: str, number: int) -> None:
        seconds = self._plan.seconds
        figures = self._call(name, "searching", "send", number=number, seconds=seconds)
        self._results.servers[name].rounds.append(figures)

    def _call(self, name: str, action: str, method: str, **parameters: Any) -> dict[str, Any]:
        session = self._sessions[name]
        with within(session, self._plan.limits, action):
            return session.call(method, **parameters)

    def _attempt(self, name: str, step: Callable[[], None]) -> None:
        """Performs a step. Does nothing if an earlier step has failed.

        If the step fails, records and prints the reason.
        """
        figures = self._results.servers[name]
        if figures.failed is None:
            try:
                step()
            except PeerFailed as error:
                figures.failed = str(error)
                print(f"SKIPPED {SERVERS[name].title}: {error}", flush=True)
