"""The process of one peer: `python -m benchmarks.peers.scale.worker NAME FOLDER`.

Calls and replies have the format of `benchmarks.peers.worker`.
"""

import gc
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.memory import pss_bytes
from benchmarks.peers.registry import load
from benchmarks.peers.scale.callers import Callers
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.scale.effort import least_ef, recall_at_10
from benchmarks.peers.scale.peer import CANDIDATES, LIMIT, SCALE_PEERS, ScalePeer
from benchmarks.peers.timing import timed
from benchmarks.peers.worker import serve

Reply = dict[str, Any]


class Worker:
    """The methods that the driver calls, in this order."""

    def __init__(self, name: str, folder: Path) -> None:
        """Creates the peer. Raises ImportError if it is not installed."""
        self._libraries = SCALE_PEERS[name].libraries
        make = load(SCALE_PEERS[name])
        folder.mkdir(parents=True)
        self._peer: ScalePeer = make(folder)

    def versions(self) -> Reply:
        """Returns the versions of the peer's libraries."""
        return {name: version(name) for name in self._libraries}

    def index(self, corpus: str) -> Reply:
        """Indexes the corpus in the folder `corpus`."""
        self._corpus = SeededCorpus(Path(corpus))
        gc.collect()
        self._empty_bytes = pss_bytes(self._peer.processes())
        return {"index_s": self._peer.index_leaves(self._corpus)}

    def tune(self) -> Reply:
        """Chooses the `ef` of searches by their recall. These searches are also the warm-up."""
        if not self._peer.efs:
            return {"ef": None, "recall": self._recall()}
        ef, recall = least_ef(self._peer.efs, self._recall_by)
        return {"ef": ef, "recall": recall}

    def _recall_by(self, ef: int) -> float:
        self._peer.set_ef(ef)
        return self._recall()

    def _recall(self) -> float:
        results = list(map(self._peer.nearest, self._corpus.queries))
        return recall_at_10(results, self._corpus.nearest.tolist())

    def load(self, callers: int, seconds: float) -> Reply:
        """Lets `callers` callers search for `seconds` seconds."""
        with self._peer.callers(callers) as searches:
            bound = [
                lambda query, search=search: search(query, CANDIDATES, LIMIT) for search in searches
            ]
            queries = self._corpus.queries
            for search in bound:  # This opens connections and prepares statements.
                for query in queries[: len(queries) // 10]:
                    search(query)
            done = Callers(bound, queries, seconds)()
        return {"took_s": done.took_s, "elapsed_s": done.elapsed_s}

    def save(self) -> Reply:
        """Saves the peer.

        Returns the growth of its memory, measured before saving, and its size on disk.
        """
        gc.collect()
        grown = pss_bytes(self._peer.processes()) - self._empty_bytes
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
