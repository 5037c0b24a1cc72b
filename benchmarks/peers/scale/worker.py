"""One peer in a process of its own: `python -m benchmarks.peers.scale.worker NAME FOLDER`.

Calls and replies are those of `benchmarks.peers.worker`.
"""

import gc
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.memory import own_bytes
from benchmarks.peers.registry import load
from benchmarks.peers.scale.callers import Callers
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.scale.effort import least_ef, recall_at_10
from benchmarks.peers.scale.peer import CANDIDATES, LIMIT, SCALE_PEERS, ScalePeer
from benchmarks.peers.timing import timed
from benchmarks.peers.worker import serve

Reply = dict[str, Any]


class Worker:
    """Serves the driver's calls, in the order of its methods."""

    def __init__(self, name: str, folder: Path) -> None:
        """Raises ImportError if the peer is not installed."""
        self._libraries = SCALE_PEERS[name].libraries
        make = load(SCALE_PEERS[name])
        folder.mkdir(parents=True)
        self._peer: ScalePeer = make(folder)

    def versions(self) -> Reply:
        """Returns the versions of the peer's libraries."""
        return {name: version(name) for name in self._libraries}

    def index(self, corpus: str) -> Reply:
        """Indexes the corpus in the folder of that name."""
        self._corpus = SeededCorpus(Path(corpus))
        gc.collect()
        self._empty_bytes = own_bytes(self._peer.processes())
        return {"index_s": self._peer.index_leaves(self._corpus)}

    def tune(self) -> Reply:
        """Chooses how much of its graph a search looks at, by recall; that warms up, too."""
        if not self._peer.efs:
            return {"ef": None, "recall": self._recall()}
        ef, recall = least_ef(self._peer.efs, self._recall_by)
        return {"ef": ef, "recall": recall}

    def _recall_by(self, ef: int) -> float:
        self._peer.set_ef(ef)
        return self._recall()

    def _recall(self) -> float:
        found = list(map(self._peer.nearest, self._corpus.queries))
        return recall_at_10(found, self._corpus.nearest.tolist())

    def load(self, callers: int, seconds: float) -> Reply:
        """Lets so many callers search for so long."""
        with self._peer.callers(callers) as searches:
            bound = [lambda query, own=each: own(query, CANDIDATES, LIMIT) for each in searches]
            queries = self._corpus.queries
            for search in bound:  # Connections and prepared statements.
                for query in queries[: len(queries) // 10]:
                    search(query)
            done = Callers(bound, queries, seconds)()
        return {"took_s": done.took_s, "elapsed_s": done.elapsed_s}

    def save(self) -> Reply:
        """Saves, and returns the growth of memory, measured before, and the size on disk."""
        gc.collect()
        grown = own_bytes(self._peer.processes()) - self._empty_bytes
        save_s, _ = timed(self._peer.save)
        return {
            "save_s": save_s,
            "stored_bytes": self._peer.stored_bytes(),
            "memory_bytes": grown,
        }

    def close(self) -> None:
        """Closes the peer."""
        self._peer.close()


if __name__ == "__main__":
    serve(partial(Worker, sys.argv[1], Path(sys.argv[2])))
