"""An embedder that refuses all texts, for collections that are searched only by words."""

from collections.abc import Sequence

from hrag.models.embedding import Vectors
from hrag.values.collections import NO_EMBEDDER
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import EmbedderRejected
from hrag.values.limits import MAX_CHUNK_TOKENS


class NoEmbedder:
    """The embedder of HRAG_EMBEDDER=none. Its vectors have dimension 0, and it embeds no text.

    Implements `hrag.models.embedding.Embedder`.
    """

    name = NO_EMBEDDER
    dimension = 0
    max_tokens = MAX_CHUNK_TOKENS
    lowest_cosine = -1.0

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Raises an error for any texts, because this embedder has no model.

        Raises DeadlineExceeded if the deadline has passed, Cancelled if the caller has cancelled
        the call, and otherwise EmbedderRejected.
        """
        deadline.check("embedding")
        raise EmbedderRejected(
            f"this service has no embedder (HRAG_EMBEDDER=none), so {len(texts)} texts cannot "
            "be embedded; search by words, with the retrieval LEXICAL",
            every_text=True,
        )
