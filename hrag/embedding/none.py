"""An embedder that refuses all texts, for collections that are searched only by words."""

from collections.abc import Sequence

from hrag.deadline import NEVER, Deadline
from hrag.embedding import Vectors
from hrag.errors import EmbedderRejected
from hrag.types import MAX_CHUNK_TOKENS, NO_EMBEDDER


class NoEmbedder:
    """The embedder of HRAG_EMBEDDER=none. Its vectors have dimension 0, and it embeds no text.

    Implements `hrag.embedding.Embedder`.
    """

    name = NO_EMBEDDER
    dimension = 0
    max_tokens = MAX_CHUNK_TOKENS
    lowest_cosine = -1.0

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Raises EmbedderRejected always, or DeadlineExceeded or Cancelled before that."""
        deadline.check("embedding")
        raise EmbedderRejected(
            f"this service has no embedder (HRAG_EMBEDDER=none), so {len(texts)} texts cannot "
            "be embedded; search by words, in LEXICAL",
            every_text=True,
        )
