"""Embedders: text to unit vectors.

An embedder has a name and a dimension that a collection remembers. Equal names mean
vectors that can be compared. Every embedder returns finite unit vectors as
`float32[n, dimension]`, C-contiguous, one row per text, in order; is safe to call from
several threads; and raises EmbedderUnavailable when trying again may help and
EmbedderRejected when it will not. Where the deadline passes, or its caller goes away, they
raise that instead, soon and without embedding the rest.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hrag.deadline import NEVER, Deadline

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str:
        """Provider and model, for example `openai/text-embedding-3-small`."""

    @property
    def dimension(self) -> int:
        """Length of every vector. May ask the endpoint the first time."""

    @property
    def max_tokens(self) -> int:
        """Longest text it takes, in tokens."""

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector per text, `float32[len(texts), dimension]`."""
