"""Which passages of a search answer the query best? A reranker scores the passages.

A reranker, for example a cross-encoder, reads the query and a text together. So its scores are
better than the similarity of two vectors. But a reranker is too slow for more than a few dozen
texts.

A reranker raises RerankerUnavailable for a retryable failure (the endpoint is down, slow or
rate-limiting) and RerankerRejected for a permanent failure. It raises DeadlineExceeded if the
deadline passes, and Cancelled if the caller cancels the call.
"""

from collections.abc import Sequence
from typing import Protocol

from hrag.values.deadline import Deadline


class Reranker(Protocol):
    """Scores texts by how well they answer a query. Thread-safe."""

    @property
    def name(self) -> str:
        """The request format of the endpoint, and the model, for example `cohere/rerank-v3.5`."""

    def rerank(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
        """Returns one finite score for each text, in the order of the texts; higher is better.

        `texts` must not be empty. Scores of different calls are not comparable.
        """
