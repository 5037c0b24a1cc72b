"""The process of one server: `python -m benchmarks.peers.servers.worker NAME FOLDER`.

Calls and replies have the format of `benchmarks.peers.worker`.
"""

import os
import resource
import sys
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.memory import children, descendants, pss_bytes
from benchmarks.peers.registry import load
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.scale.effort import least_ef, recall_at_10
from benchmarks.peers.scale.peer import CANDIDATES, LIMIT
from benchmarks.peers.servers.processes import processor_s
from benchmarks.peers.servers.senders import run
from benchmarks.peers.servers.server import SENDERS, SERVERS, Server
from benchmarks.peers.worker import serve

Reply = dict[str, Any]

# The rate of a generator that is assumed until it has been measured.
_FIRST_PER_SECOND = 50.0
_WARM_UP_S = 1
# The first one measures the rate with which the second one is as long as it should be.
_WARM_UPS = 2


class Worker:
    """The methods that the driver calls, in this order."""

    def __init__(self, name: str, folder: Path) -> None:
        """Starts the server. Raises ImportError if something that it needs is not installed."""
        self._libraries = SERVERS[name].libraries
        make = load(SERVERS[name])
        files = folder / "server"
        files.mkdir(parents=True)
        self._server: Server = make(files)
        self._folders = [folder / f"sender{number}" for number in range(SENDERS)]
        for sender in self._folders:
            sender.mkdir()
        self._per_second = _FIRST_PER_SECOND

    def versions(self) -> Reply:
        """Returns the versions of the libraries."""
        return {name: version(name) for name in self._libraries}

    def index(self, corpus: str) -> Reply:
        """Indexes the corpus in the folder `corpus`."""
        self._corpus = SeededCorpus(Path(corpus))
        seconds = self._server.index_leaves(self._corpus)
        return {"index_s": seconds, "graph": self._server.graph}

    def tune(self) -> Reply:
        """Chooses the `ef` of searches by their recall, and warms up the server."""
        efs = self._server.efs
        ef, recall = least_ef(efs, self._recall_by) if efs else (None, self._recall())
        passages = self._server.search(self._corpus.queries[0], CANDIDATES, LIMIT)
        assert len(passages) == LIMIT
        assert all(passage.text for passage in passages)
        for _ in range(_WARM_UPS):
            self.send(0, _WARM_UP_S)
        return {"ef": ef, "recall": recall}

    def _recall_by(self, ef: int) -> float:
        self._server.set_ef(ef)
        return self._recall()

    def _recall(self) -> float:
        results = list(map(self._server.nearest, self._corpus.queries))
        return recall_at_10(results, self._corpus.nearest.tolist())

    def send(self, number: int, seconds: int) -> Reply:
        """Lets all callers search for `seconds` seconds. Each round has different queries.

        Returns the figures of the callers, the processor time of a search in the server and in the
        load generators, and the memory of the server.
        """
        queries = self._corpus.queries
        senders = [
            self._server.sender(
                queries[(number * SENDERS + sender) % len(queries)],
                folder,
                seconds,
                self._per_second,
            )
            for sender, folder in enumerate(self._folders)
        ]
        server = children(os.getpid())
        before_s, senders_before_s = processor_s(server), _waited_s()
        sent = run(senders, seconds)
        server_s, senders_s = processor_s(server) - before_s, _waited_s() - senders_before_s
        self._per_second = sent.per_second / SENDERS
        return {
            **asdict(sent),
            "server_ms": server_s / sent.calls * 1e3,
            "sender_ms": senders_s / sent.calls * 1e3,
            "memory_bytes": pss_bytes(descendants(os.getpid())),
        }

    def close(self) -> None:
        """Stops the server."""
        self._server.close()


def _waited_s() -> float:
    """Returns the processor time of all processes that this one started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    serve(partial(Worker, sys.argv[1], Path(sys.argv[2])))
