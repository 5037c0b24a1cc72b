"""One engine in a process of its own: `python -m benchmarks.peers.lexical.worker NAME FOLDER`.

Calls and replies are those of `benchmarks.peers.worker`.
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
    """Serves the driver's calls."""

    def __init__(self, name: str, folder: Path) -> None:
        """Raises ImportError if the engine is not installed."""
        self._libraries = ENGINES[name].libraries
        self._engine: Engine = load(ENGINES[name])(folder)

    def versions(self) -> Reply:
        """Returns the versions of the engine's libraries."""
        return {name: version(name) for name in self._libraries}

    def index(self, corpus: str) -> Reply:
        """Indexes the leaves in the folder `corpus`; returns the index's size."""
        size_bytes = self._engine.index(Path(corpus))
        self._queries = load_queries(Path(corpus))
        self._prepared = list(map(self._engine.prepared, self._queries))
        return {"bytes": size_bytes}

    def found(self) -> Reply:
        """Returns what every query finds."""
        return {"found": list(map(self._engine.found, self._queries))}

    def search(self, first: int, count: int) -> Reply:
        """Times `count` searches one after the other, from query `first` on."""
        chosen = [
            self._prepared[place % len(self._prepared)] for place in range(first, first + count)
        ]
        return {"seconds": [timed(partial(self._engine.search, each))[0] for each in chosen]}

    def close(self) -> None:
        """Closes the engine."""
        self._engine.close()


if __name__ == "__main__":
    serve(lambda: Worker(sys.argv[1], Path(sys.argv[2])))
