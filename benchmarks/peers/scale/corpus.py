"""A corpus in files: documents that are already cut, with the vectors of their leaves.

The files are read as needed. Texts are ASCII and equally long, so the offset of a document is its
number times the length of a text. The documents have the chunk trees of a few texts in turn.
`corpus_writer` writes the files.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.peer import Query
from benchmarks.peers.trees import TREE
from benchmarks.peers.vectors import Vectors
from hrag.values.tree import Tree

TEXTS = "texts"
TREES = "trees.npz"
VECTORS = "vectors.npy"
QUERIES = "queries.npy"
NEAREST = "nearest.npy"
ABOUT = "about.json"


@dataclass(frozen=True, slots=True)
class CutText:
    """A document, its chunk tree and its leaves' vectors, whose rows begin at `first_row`."""

    document_id: str
    text: str
    tree: Tree
    first_row: int
    vectors: NDArray[np.float32]


class SeededCorpus:
    """The documents in the order of their rows, the queries, and the queries' nearest leaves."""

    def __init__(self, folder: Path) -> None:
        """Maps the large files. They are read only where they are needed."""
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text("utf-8"))
        self._text_bytes: int = about["text_bytes"]
        self._texts = np.memmap(folder / TEXTS, np.uint8, "r")
        with np.load(folder / TREES) as stored:
            self._trees = [Tree(stored[name].tobytes()) for name in stored.files]
        self._vectors = np.load(folder / VECTORS, mmap_mode="r")
        counts = [tree.counts[TREE.embedding_level] for tree in self._trees]
        numbers = np.arange(len(self._texts) // self._text_bytes) % len(counts)
        ends = np.cumsum(np.array(counts)[numbers])
        self.first_rows: list[int] = [0, *ends[:-1].tolist()]
        self.nearest: NDArray[np.int64] = np.load(folder / NEAREST)
        """The ten nearest leaves of each query by an exact scan: `int64[queries, 10]`."""
        rows: NDArray[np.float32] = np.load(folder / QUERIES)
        self.queries = [
            Query(f"question-{number}", row, row.tolist()) for number, row in enumerate(rows)
        ]

    @property
    def dimension(self) -> int:
        """The dimension of the vectors."""
        return int(self._vectors.shape[1])

    def query_vectors(self) -> Vectors:
        """Returns the vectors of all queries, for libraries that look them up by text."""
        texts = [query.text for query in self.queries]
        return Vectors.of_texts(texts, np.array([query.vector for query in self.queries]))

    def __len__(self) -> int:
        """Returns the number of leaves."""
        return len(self._vectors)

    def __iter__(self) -> Iterator[CutText]:
        for number, first in enumerate(self.first_rows):
            tree = self._trees[number % len(self._trees)]
            end = first + tree.counts[TREE.embedding_level]
            yield CutText(
                document_id=f"document-{number:06d}",
                text=self._text(number),
                tree=tree,
                first_row=first,
                vectors=np.array(self._vectors[first:end]),
            )

    def _text(self, number: int) -> str:
        start = number * self._text_bytes
        return self._texts[start : start + self._text_bytes].tobytes().decode("ascii")
