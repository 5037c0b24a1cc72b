"""How do texts become vectors? Embedders.

A collection stores the name and the dimension of its embedder; vectors are comparable if
their embedders' names are equal. Every embedder is thread-safe and returns finite unit vectors
as `float32[n, dimension]`, C-contiguous, one row per text, in order. It raises
EmbedderUnavailable for a retryable failure and EmbedderRejected for a permanent one. If the
deadline passes or the caller leaves, it raises DeadlineExceeded or Cancelled instead, soon and
without embedding the remaining texts.
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
        """Provider and model, for example `openai/text-embedding-3-small`."""

    @property
    def dimension(self) -> int:
        """Length of every vector. The first access may send a request to the endpoint."""

    @property
    def lowest_cosine(self) -> float:
        """The cosine of texts that have nothing in common: the zero of its scale."""

    @property
    def max_tokens(self) -> int:
        """Length limit of a text, in tokens."""

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector per text, `float32[len(texts), dimension]`.

        Raises EmbedderUnavailable, EmbedderRejected, DeadlineExceeded or Cancelled.
        """
