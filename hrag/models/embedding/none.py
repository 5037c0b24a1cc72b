"""No embedder: for collections that are searched by words alone."""

from collections.abc import Sequence

from hrag.models.embedding import Vectors
from hrag.values.collections import NO_EMBEDDER
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import EmbedderRejected
from hrag.values.limits import MAX_CHUNK_TOKENS


class NoEmbedder:
    """See `hrag.models.embedding.Embedder`; vectors have no numbers, and none can be made."""

    name = NO_EMBEDDER
    dimension = 0
    max_tokens = MAX_CHUNK_TOKENS
    lowest_cosine = -1.0

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Raises EmbedderRejected, DeadlineExceeded or Cancelled."""
        deadline.check("embedding")
        raise EmbedderRejected(
            f"this service has no embedder (HRAG_EMBEDDER=none), so {len(texts)} texts cannot "
            "be embedded; search by words, in LEXICAL",
            every_text=True,
        )
