"""What a peer is asked, and what it answers.

A peer is a library or a database, set up as its documentation recommends, behind five
calls. Vectors come from outside, so no peer's time contains a model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
    """A question with its vector, as an array and as the list that some libraries want."""

    text: str
    vector: NDArray[np.float32]
    numbers: list[float]


@dataclass(frozen=True, slots=True)
class Found:
    """A passage; `start` is where it lies in the document, where the peer tells."""

    document_id: str
    text: str
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """What indexing came to."""

    leaves: int
    seconds: float


class Peer(Protocol):
    """One peer, empty when it is made."""

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        """What it will ask vectors for."""

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        """Cuts and stores the documents; once."""

    def save(self) -> None:
        """Makes durable what is not yet."""

    def stored_bytes(self) -> int:
        """What lies on disk, once it is saved."""

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        """The first `limit` passages that the `candidates` nearest leaves lead to."""

    def processes(self) -> list[int]:
        """Whose memory counts."""

    def close(self) -> None:
        """Ends what it has started."""
