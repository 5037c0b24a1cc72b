"""The built-in embedder: Universal Sentence Encoder, multilingual, in compiled kernels.

Its weights are part of an installed package, so it needs no key, network or GPU. A text of any
length becomes one vector. Model: Yang et al., Multilingual Universal Sentence Encoder for
Semantic Retrieval, 2019 (arXiv:1907.04307).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hrag.host.cores import usable_cores
from hrag.models.embedding import Vectors
from hrag.models.embedding.builtin_weights import load
from hrag.values.deadline import NEVER, Deadline
from hrag.values.limits import MAX_CHUNK_TOKENS

_BATCH_TEXTS = 8  # Large enough to keep a thread in the kernels, small enough to balance threads.


class BuiltinEmbedder:
    """Universal Sentence Encoder v3: 16 languages, 512 dimensions.

    Construction takes about a second and 100 MB. Safe to call from several threads. A text has
    the same vector, to the bit, in every call and on every processor.
    """

    name = "builtin/use-multilingual-v3"
    dimension = 512
    max_tokens = MAX_CHUNK_TOKENS  # The model sums over tokens and has no limit of its own.
    lowest_cosine = -1.0

    def __init__(self) -> None:
        """Raises SettingsError if the package has other weights than the name says."""
        self._tokenizer, self._encoder = load()
        self._pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="embed")

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector per text, in order, as `float32[len(texts), 512]`.

        Raises DeadlineExceeded or Cancelled.
        """
        deadline.check("embedding")
        if len(texts) <= _BATCH_TEXTS:
            return self._encode(texts)
        parts = [
            texts[start : start + _BATCH_TEXTS] for start in range(0, len(texts), _BATCH_TEXTS)
        ]
        encoded = []
        for rows in self._pool.map(self._encode, parts):
            deadline.check("embedding")  # Raising cancels the batches that have not started.
            encoded.append(rows)
        return np.concatenate(encoded)

    def _encode(self, texts: Sequence[str]) -> Vectors:
        return self._encoder.encode(*self._tokenizer.encode(texts))
