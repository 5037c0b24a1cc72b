"""The interface of a peer.

A peer is a library or a database, set up as its documentation recommends. Vectors are given,
so no peer's time includes a model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.vectors import Vectors

LEAF_TOKENS = 256
MIDDLE_TOKENS = 512
PARENT_TOKENS = 1024  # hrag's default return level.


@dataclass(frozen=True, slots=True)
class Text:
    """A document."""

    document_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """A question with its vector, as an array and as the list that some libraries need."""

    text: str
    vector: NDArray[np.float32]
    numbers: list[float]


@dataclass(frozen=True, slots=True)
class Found:
    """A passage; `start` is its first character in the document, if the peer reports it."""

    document_id: str
    text: str
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """The number of leaves, and the time that indexing took."""

    leaves: int
    seconds: float


class Peer(Protocol):
    """One peer, empty when created."""

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        """Returns the texts that it will embed."""

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        """Chunks, stores and indexes the documents. Called once."""

    def save(self) -> None:
        """Writes to disk what is only in memory."""

    def stored_bytes(self) -> int:
        """Returns its size on disk after `save`."""

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        """Returns the first `limit` passages of the `candidates` nearest leaves."""

    def processes(self) -> list[int]:
        """Returns the ids of the processes whose memory counts."""

    def close(self) -> None:
        """Stops what it has started."""


@runtime_checkable
class FillsBudget(Protocol):
    """A peer that takes the number of tokens, not of passages."""

    def filled(self, query: Query, candidates: int, budget: int) -> list[Found]:
        """Returns passages of the `candidates` best leaves, of at most `budget` tokens."""
