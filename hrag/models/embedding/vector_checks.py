"""Validates vectors, and checks that a collection and a service have the same embedder.

Every vector of an embedder is finite and has the length 1. A collection accepts only vectors of the
embedder with which the collection was created.
"""

import numpy as np
from numpy.typing import NDArray

from hrag.models.embedding import Vectors
from hrag.values.collections import CollectionSettings
from hrag.values.errors import EmbedderMismatch, EmbedderRejected


def unit_rows(rows: NDArray[np.floating], source: str) -> Vectors:
    """Returns the rows of `float[n, dimension]` scaled to length 1, as C-contiguous float32.

    If a row contains NaN or infinity, or only zeros, raises EmbedderRejected, whose message starts
    with `source`. A vector index would accept such a row without an error.
    """
    # The sum is computed in float64, because the square of a number above 1.8e19 overflows in
    # float32.
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    _refuse(~np.isfinite(lengths), f"{source} returned a vector with NaN or infinity")
    _refuse(lengths == 0, f"{source} returned a vector of zeros")
    wide /= lengths[:, np.newaxis]
    return wide.astype(np.float32, order="C")


def _refuse(invalid: NDArray[np.bool_], message: str) -> None:
    if invalid.any():
        raise EmbedderRejected(
            f"{message}: index {int(invalid.argmax())} of {len(invalid)} vectors"
        )


def check_embedder(
    settings: CollectionSettings, embedder: str, dimension: int | None = None
) -> None:
    """Raises EmbedderMismatch if the collection was created with another embedder or dimension.

    `settings` are the settings of the collection. `embedder` and `dimension` are the name and the
    dimension of the service's embedder. If `dimension` is None, only the name is checked. Callers
    check the name first, because reading the dimension of an embedder may need a request to an
    endpoint.
    """
    if settings.embedder != embedder:
        running = embedder
    elif dimension is not None and settings.dimension != dimension:
        running = f"{embedder} ({dimension} dimensions)"
    else:
        return
    raise EmbedderMismatch(
        f"the collection was created with embedder {settings.embedder} "
        f"({settings.dimension} dimensions); this service runs {running}; "
        "HRAG_PREVIOUS_EMBEDDER can name a second embedder",
        field="collection",
    )
