"""How do texts become vectors? Embedders.

A collection stores the name and the dimension of its embedder. Two vectors are comparable if the
names of their embedders are equal. Every embedder is thread-safe and returns finite unit vectors
as `float32[n, dimension]`, C-contiguous, one row for each text, in the order of the texts. It
raises EmbedderUnavailable for a retryable failure and EmbedderRejected for a permanent failure. If
the deadline passes, it raises DeadlineExceeded; if the caller leaves, it raises Cancelled. It then
stops soon, without embedding the remaining texts.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hrag.values.deadline import NEVER, Deadline

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str:
        """The provider and the model, for example `openai/text-embedding-3-small`."""

    @property
    def dimension(self) -> int:
        """The length of every vector. The first access may send a request to the endpoint."""

    @property
    def lowest_cosine(self) -> float:
        """The cosine that counts as no similarity; fusion scales cosines from it to 1.

        It is about the cosine of texts that have nothing in common.
        """

    @property
    def max_tokens(self) -> int:
        """The maximum length of a text, in tokens."""

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text, in order, as `float32[len(texts), dimension]`.

        Raises EmbedderUnavailable, EmbedderRejected, DeadlineExceeded or Cancelled.
        """
