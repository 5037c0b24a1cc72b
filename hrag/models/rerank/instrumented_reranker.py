"""A reranker with metrics: count, duration and outcome of the requests, and count of texts."""

from collections.abc import Sequence

from hrag.models.rerank import Reranker
from hrag.observe import metrics
from hrag.values.deadline import Deadline


class InstrumentedReranker:
    """Counts and times the requests to `reranker`. Implements `hrag.models.rerank.Reranker`."""

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker
        self.name = reranker.name

    def rerank(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
        """Returns one score for each text. Implements `Reranker.rerank`."""
        with metrics.reranker_request(len(texts)):
            return self._reranker.rerank(query, texts, deadline)
