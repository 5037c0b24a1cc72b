"""The interface of a peer.

A peer is a library or a database, configured as its documentation recommends. Vectors are given, so
no peer's time includes the time of a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.vectors import Vectors

LEAF_TOKENS = 256
MIDDLE_TOKENS = 512
PARENT_TOKENS = 1024  # The default return level of hrag.


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
class FoundPassage:
    """A passage that a peer found.

    `start` is the offset of its first character in the document; None if the peer does not report
    it.
    """

    document_id: str
    text: str
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """The number of leaves, and the seconds that indexing took."""

    leaves: int
    seconds: float


class Peer(Protocol):
    """A peer. It is empty when it is created."""

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        """Returns the texts that the peer will embed."""

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        """Chunks, stores and indexes the documents. The driver calls it once."""

    def save(self) -> None:
        """Writes everything to disk that is only in memory."""

    def stored_bytes(self) -> int:
        """Returns the size of the peer on disk in bytes. The driver calls it after `save`."""

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        """Finds the `candidates` nearest leaves; returns the best `limit` passages around them."""

    def processes(self) -> list[int]:
        """Returns the ids of the processes whose memory counts."""

    def close(self) -> None:
        """Stops all processes that the peer has started."""


@runtime_checkable
class FillsBudget(Protocol):
    """A peer whose result can be limited by tokens instead of by the number of passages."""

    def filled(self, query: Query, candidates: int, budget: int) -> list[FoundPassage]:
        """Returns passages of the `candidates` best leaves, with at most `budget` tokens in all."""
