"""An embedder with metrics: count, duration and outcome of the requests, and count of texts."""

from collections.abc import Sequence

from hrag.models.embedding import Embedder, Vectors
from hrag.observe import metrics
from hrag.values.deadline import NEVER, Deadline


class InstrumentedEmbedder:
    """Counts and times the requests to `embedder`. Implements `hrag.models.embedding.Embedder`."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self.max_tokens = embedder.max_tokens
        self.lowest_cosine = embedder.lowest_cosine

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        return self._embedder.dimension

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text. Implements `Embedder.embed`."""
        with metrics.EmbedderRequest(len(texts)):
            return self._embedder.embed(texts, deadline)
