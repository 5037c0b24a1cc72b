"""Leaves and queries as numbered terms, and the files by which they reach every engine."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_LEAVES = "leaves.npz"
_QUERIES = "queries.json"


@dataclass(frozen=True, slots=True)
class Leaves:
    """Leaf i has the terms `numbers[starts[i]:starts[i + 1]]`, with their frequencies.

    `starts` is `int64[n + 1]`, `numbers` `uint32`, `frequencies` `uint8`.
    """

    starts: NDArray[np.int64]
    numbers: NDArray[np.uint32]
    frequencies: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[list[int]]:
        """Yields the terms of each leaf, each as often as it occurs."""
        for start, end in pairwise(self.starts.tolist()):
            yield np.repeat(self.numbers[start:end], self.frequencies[start:end]).tolist()

    def save(self, folder: Path) -> None:
        """Writes a file for `load`."""
        with (folder / _LEAVES).open("wb") as file:
            np.savez(file, starts=self.starts, numbers=self.numbers, frequencies=self.frequencies)

    @classmethod
    def load(cls, folder: Path) -> "Leaves":
        """Returns what `save` wrote."""
        with np.load(folder / _LEAVES) as stored:
            return cls(stored["starts"], stored["numbers"], stored["frequencies"])


@dataclass(frozen=True, slots=True)
class Query:
    """A question, the numbers of its terms that some leaf has, and the sum of all terms' idf."""

    text: str
    terms: list[int]
    idf: float


def save_queries(queries: Sequence[Query], folder: Path) -> None:
    """Writes a file for `load_queries`."""
    (folder / _QUERIES).write_text(json.dumps(list(map(asdict, queries))), "utf-8")


def load_queries(folder: Path) -> list[Query]:
    """Returns what `save_queries` wrote."""
    return [Query(**each) for each in json.loads((folder / _QUERIES).read_text("utf-8"))]
