"""How do texts become vectors? By embedders.

A collection stores the name and the dimension of its embedder. Two vectors are comparable if the
names of their embedders are equal. Every embedder is thread-safe and returns finite unit vectors
as `float32[n, dimension]`, C-contiguous, one row for each text, in the order of the texts.

An embedder raises EmbedderUnavailable for a retryable failure and EmbedderRejected for a permanent
failure. If the deadline passes, it raises DeadlineExceeded, and if the caller cancels the call, it
raises Cancelled. After a deadline or a cancellation, it does not embed the remaining texts.
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
        """The cosine that means no similarity: about the cosine of two unrelated texts.

        Before a search combines cosines with BM25 scores, it rescales the cosines so that this
        value becomes 0 and the cosine 1 stays 1.
        """

    @property
    def max_tokens(self) -> int:
        """The maximum length of a text, in tokens."""

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text, in order, as `float32[len(texts), dimension]`.

        Raises EmbedderUnavailable for a retryable failure and EmbedderRejected for a permanent
        failure. Raises DeadlineExceeded if the deadline passes, and Cancelled if the caller cancels
        the call.
        """
