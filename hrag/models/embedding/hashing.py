"""Pseudo-embeddings: unit vectors derived from a hash of the text. For load tests only.

The same text gives the same bits on every machine: SHAKE-128 defines the numbers, their
squares sum exactly in float64, and IEEE 754 defines the rounding of root and quotient.
Different texts give unrelated directions, however similar their meaning.
"""

from collections.abc import Sequence
from hashlib import shake_128

import numpy as np

from hrag.models.embedding import Vectors
from hrag.values.deadline import NEVER, Deadline
from hrag.values.limits import MAX_CHUNK_TOKENS

_NUMBER = np.dtype("<i2")  # 16 bits need half the hashing of 32, and give as good a direction.


class HashEmbedder:
    """Deterministic vectors without meaning, thousands of times faster than a model.

    Thread-safe.
    """

    max_tokens = MAX_CHUNK_TOKENS
    lowest_cosine = -1.0

    def __init__(self, dimension: int) -> None:
        """`dimension` is the length of every vector, from 1 to 99,999."""
        self.dimension = dimension
        self.name = f"hash/{dimension}"

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector per text, in order, as `float32[len(texts), dimension]`.

        Raises DeadlineExceeded or Cancelled.
        """
        deadline.check("embedding")
        size_bytes = self.dimension * _NUMBER.itemsize
        drawn = b"".join(shake_128(text.encode()).digest(size_bytes) for text in texts)
        numbers = np.frombuffer(drawn, _NUMBER).reshape(len(texts), self.dimension)
        # Odd numbers, so that no vector is zero, even in one dimension.
        odd = numbers.astype(np.float64) * 2 + 1
        odd /= np.sqrt(np.einsum("ij,ij->i", odd, odd))[:, np.newaxis]
        return odd.astype(np.float32)
