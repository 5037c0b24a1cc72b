"""The built-in embedder: the multilingual Universal Sentence Encoder, in compiled code.

Its weights are part of an installed package, so it needs no key, network or GPU. A text of any
length becomes one vector. The model is described in Yang et al., Multilingual Universal Sentence
Encoder for Semantic Retrieval, 2019 (arXiv:1907.04307).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hrag.host.cores import usable_cores
from hrag.models.embedding import Vectors
from hrag.models.embedding.builtin_weights import load
from hrag.values.deadline import NEVER, Deadline
from hrag.values.limits import MAX_CHUNK_TOKENS

# The count of texts that a thread embeds in one call of the compiled encoder. With so many texts, a
# thread spends most of its time in compiled code. With more texts in a call, some threads might
# have no work.
_BATCH_TEXTS = 8


class BuiltinEmbedder:
    """Universal Sentence Encoder v3: 16 languages, 512 dimensions.

    Creating an embedder needs about a second and 100 MB of memory. Thread-safe. A text has the same
    vector, to the bit, in every call and on every processor. Implements
    `hrag.models.embedding.Embedder`.
    """

    name = "builtin/use-multilingual-v3"
    dimension = 512
    # The model itself has no limit, because it sums over tokens. So the limit is the maximum size
    # of a chunk.
    max_tokens = MAX_CHUNK_TOKENS
    lowest_cosine = -1.0

    def __init__(self) -> None:
        """Loads the model.

        Raises SettingsError if the installed weights are not those of the version for which the
        compiled code was written.
        """
        self._tokenizer, self._encoder = load()
        self._pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="embed")

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text, in order, as `float32[len(texts), 512]`.

        Raises DeadlineExceeded if the deadline passes, and Cancelled if the caller cancels.
        """
        deadline.check("embedding")
        if len(texts) <= _BATCH_TEXTS:
            return self._encode(texts)
        parts = [
            texts[start : start + _BATCH_TEXTS] for start in range(0, len(texts), _BATCH_TEXTS)
        ]
        encoded = []
        for rows in self._pool.map(self._encode, parts):
            # If this check raises an error, the pool cancels the batches that have not started.
            deadline.check("embedding")
            encoded.append(rows)
        return np.concatenate(encoded)

    def _encode(self, texts: Sequence[str]) -> Vectors:
        return self._encoder.encode(*self._tokenizer.encode(texts))
