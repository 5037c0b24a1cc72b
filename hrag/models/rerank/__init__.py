"""Which of the passages found answer the query best? Rerankers.

A reranker reads the query and a text together (a cross-encoder, for example), so it judges
better than a comparison of two vectors, and takes too long for more than some dozens of texts.
It raises RerankerUnavailable for a retryable failure (down, slow, rate-limiting),
RerankerRejected for a permanent one, and DeadlineExceeded or Cancelled.
"""

from collections.abc import Sequence
from typing import Protocol

from hrag.values.deadline import Deadline


class Reranker(Protocol):
    """Scores texts by how well they answer a query. Thread-safe."""

    @property
    def name(self) -> str:
        """Form and model, for example `cohere/rerank-v3.5`."""

    def rerank(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
        """Returns one finite score for each text, in the order of the texts; higher is better.

        `texts` must not be empty. Scores are comparable within one call only.
        """
