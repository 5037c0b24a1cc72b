"""Pseudo-embeddings for load tests only: unit vectors that are derived from a hash of the text.

The same text has the same vector, to the bit, on every machine. SHAKE-128 defines the numbers of
the vector, the sum of their squares is exact in float64, and IEEE 754 defines the rounding of
square root and quotient. Different texts have unrelated directions, even if their meaning is
similar.
"""

from collections.abc import Sequence
from hashlib import shake_128

import numpy as np

from hrag.models.embedding import Vectors
from hrag.values.deadline import NEVER, Deadline
from hrag.values.limits import MAX_CHUNK_TOKENS

# The type of the numbers that are read from the hash. 16-bit numbers need half as many bytes of the
# hash as 32-bit numbers, and the directions of the vectors are distributed just as evenly.
_NUMBER = np.dtype("<i2")


class HashEmbedder:
    """Returns deterministic vectors without meaning, thousands of times faster than a model.

    Thread-safe. Implements `hrag.models.embedding.Embedder`.
    """

    max_tokens = MAX_CHUNK_TOKENS
    lowest_cosine = -1.0

    def __init__(self, dimension: int) -> None:
        """`dimension` is the length of every vector, from 1 to 99,999."""
        self.dimension = dimension
        self.name = f"hash/{dimension}"

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text, in order, as `float32[len(texts), dimension]`.

        Raises DeadlineExceeded if the deadline passes, and Cancelled if the caller cancels.
        """
        deadline.check("embedding")
        size_bytes = self.dimension * _NUMBER.itemsize
        drawn = b"".join(shake_128(text.encode()).digest(size_bytes) for text in texts)
        numbers = np.frombuffer(drawn, _NUMBER).reshape(len(texts), self.dimension)
        # All numbers are made odd. So no number is 0, and no vector has length 0, even with one
        # dimension.
        odd = numbers.astype(np.float64) * 2 + 1
        odd /= np.sqrt(np.einsum("ij,ij->i", odd, odd))[:, np.newaxis]
        return odd.astype(np.float32)
