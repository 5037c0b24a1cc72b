"""Leaves and queries whose terms are numbers, and the files from which engines read them."""

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
    """The terms of all leaves.

    Leaf i has the terms `numbers[starts[i]:starts[i + 1]]`, with their frequencies. `starts` is
    `int64[n + 1]`, `numbers` is `uint32`, and `frequencies` is `uint8`.
    """

    starts: NDArray[np.int64]
    numbers: NDArray[np.uint32]
    frequencies: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[list[int]]:
        """Yields the terms of each leaf. A term is repeated as often as it occurs."""
        for start, end in pairwise(self.starts.tolist()):
            yield np.repeat(self.numbers[start:end], self.frequencies[start:end]).tolist()

    def save(self, folder: Path) -> None:
        """Writes the leaves to a file, which `load` reads."""
        with (folder / _LEAVES).open("wb") as file:
            np.savez(file, starts=self.starts, numbers=self.numbers, frequencies=self.frequencies)

    @classmethod
    def load(cls, folder: Path) -> "Leaves":
        """Returns the leaves in a file that `save` wrote."""
        with np.load(folder / _LEAVES) as stored:
            return cls(stored["starts"], stored["numbers"], stored["frequencies"])


@dataclass(frozen=True, slots=True)
class Query:
    """A question as terms.

    `terms` are the numbers of the question's terms that occur in at least one leaf. `idf` is the
    sum of the idf of all terms of the question, including terms that occur in no leaf.
    """

    text: str
    terms: list[int]
    idf: float


def save_queries(queries: Sequence[Query], folder: Path) -> None:
    """Writes the queries to a file, which `load_queries` reads."""
    (folder / _QUERIES).write_text(json.dumps(list(map(asdict, queries))), "utf-8")


def load_queries(folder: Path) -> list[Query]:
    """Returns the queries in a file that `save_queries` wrote."""
    return [Query(**fields) for fields in json.loads((folder / _QUERIES).read_text("utf-8"))]
