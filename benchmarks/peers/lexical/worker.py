"""The process of one engine: `python -m benchmarks.peers.lexical.worker NAME FOLDER`.

Calls and replies have the format of `benchmarks.peers.worker`.
"""

import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.lexical.engine import ENGINES, Engine
from benchmarks.peers.lexical.terms import load_queries
from benchmarks.peers.registry import load
from benchmarks.peers.timing import timed
from benchmarks.peers.worker import serve

Reply = dict[str, Any]


class Worker:
    """The methods that the driver calls."""

    def __init__(self, name: str, folder: Path) -> None:
        """Creates the engine. Raises ImportError if it is not installed."""
        self._libraries = ENGINES[name].libraries
        self._engine: Engine = load(ENGINES[name])(folder)

    def versions(self) -> Reply:
        """Returns the versions of the engine's libraries."""
        return {name: version(name) for name in self._libraries}

    def index(self, corpus: str) -> Reply:
        """Indexes the leaves in the folder `corpus`; returns the size of the index."""
        size_bytes = self._engine.index(Path(corpus))
        self._queries = load_queries(Path(corpus))
        self._prepared = list(map(self._engine.prepared, self._queries))
        return {"bytes": size_bytes}

    def ranked_leaves(self) -> Reply:
        """Returns the leaves that each query finds."""
        return {"ranked_leaves": list(map(self._engine.ranked_leaves, self._queries))}

    def search(self, first: int, count: int) -> Reply:
        """Times `count` searches one after the other, from query `first` on."""
        chosen = [
            self._prepared[number % len(self._prepared)] for number in range(first, first + count)
        ]
        return {
            "seconds": [timed(partial(self._engine.search, prepared))[0] for prepared in chosen]
        }

    def close(self) -> None:
        """Closes the engine."""
        self._engine.close()


if __name__ == "__main__":
    serve(lambda: Worker(sys.argv[1], Path(sys.argv[2])))
