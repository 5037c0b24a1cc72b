"""An HNSW index alone, in this process: the base of the peers of FAISS and hnswlib.

Parents with their text are in a list. A search does what every peer does and nothing else: it finds
the nearest leaves and returns the text of their best parents. So its time is the lowest possible
time of a search through the same library.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.peer import FoundPassage, Query
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.scale.leaves import leaves_with_parents
from benchmarks.peers.scale.peer import CANDIDATES, EFS, Library
from benchmarks.peers.timing import folder_bytes, timed

# The libraries insert as many leaves at once, on all cores.
_LEAVES_AT_ONCE = 10_000


class RawIndex(Library, ABC):
    """An index and the parents of its leaves."""

    efs: Sequence[int] = EFS

    def __init__(self, folder: Path) -> None:
        """Creates the peer. `save` will write to `folder`."""
        self._folder = folder
        self._parents: list[int] = []
        self._passages: dict[int, FoundPassage] = {}

    def index_leaves(self, corpus: SeededCorpus) -> float:
        seconds, _ = timed(lambda: self._fill(corpus))
        return seconds

    def _fill(self, corpus: SeededCorpus) -> None:
        self._create(len(corpus))
        leaves = leaves_with_parents(corpus)
        while group := list(islice(leaves, _LEAVES_AT_ONCE)):
            self._parents += [leaf.parent for leaf in group]
            self._passages.update((leaf.parent, leaf.passage) for leaf in group)
            self._add(np.array([leaf.vector for leaf in group]))

    @abstractmethod
    def _create(self, count: int) -> None:
        """Creates the empty index, which must have room for `count` vectors."""

    @abstractmethod
    def _add(self, vectors: NDArray[np.float32]) -> None:
        """Adds vectors to the index. Their rows follow the last row of the index."""

    @abstractmethod
    def _rows(self, query: Query) -> list[int]:
        """Returns the rows of the CANDIDATES nearest leaves, best first."""

    @abstractmethod
    def _write(self, path: Path) -> None:
        """Writes the index to a file."""

    def nearest(self, query: Query) -> list[int]:
        return self._rows(query)[:10]

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        assert candidates == CANDIDATES
        parents = dict.fromkeys(self._parents[row] for row in self._rows(query))
        return [self._passages[parent] for parent in islice(parents, limit)]

    def save(self) -> None:
        self._write(self._folder / "index")
        passages = [asdict(passage) for passage in self._passages.values()]
        contents = {"parents": self._parents, "passages": passages}
        (self._folder / "parents.json").write_text(json.dumps(contents), "utf-8")

    def stored_bytes(self) -> int:
        return folder_bytes(self._folder)

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        """Does nothing: the index is in this process."""
