"""What holds between embedders, vectors and collections, checked in one place.

A vector that leaves an embedder is finite, not zero, of unit length; a collection takes
vectors of the embedder it was made with, and of no other.
"""

import numpy as np
from numpy.typing import NDArray

from hrag.embedding import Vectors
from hrag.errors import EmbedderMismatch, EmbedderRejected
from hrag.types import CollectionSettings


def unit_rows(rows: NDArray[np.floating], source: str) -> Vectors:
    """Scales each row of `float[n, dimension]` to length 1, as C-contiguous float32.

    `source` begins the message. Raises EmbedderRejected when a row holds NaN or infinity
    or is all zeros: such a row has no direction, and an index would take it silently.
    """
    # Squares of float32 overflow from 2e19 on; those of float64 do not.
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    _refuse(~np.isfinite(lengths), f"{source} answered a vector with NaN or infinity")
    _refuse(lengths == 0, f"{source} answered a vector of zeros")
    wide /= lengths[:, np.newaxis]
    return wide.astype(np.float32, order="C")


def _refuse(wrong: NDArray[np.bool_], message: str) -> None:
    if wrong.any():
        raise EmbedderRejected(f"{message}: number {int(wrong.argmax())} of {len(wrong)}")


def check_embedder(
    settings: CollectionSettings, embedder: str, dimension: int | None = None
) -> None:
    """Raises EmbedderMismatch, naming both, unless a collection was made with `embedder`.

    The name comes first, without the dimension: that may have to be asked of an endpoint.
    """
    if settings.embedder != embedder:
        own = embedder
    elif dimension is not None and settings.dimension != dimension:
        own = f"{embedder} ({dimension} dimensions)"
    else:
        return
    raise EmbedderMismatch(
        f"the collection was made with embedder {settings.embedder} "
        f"({settings.dimension} dimensions); this service runs {own}",
        field="collection",
    )
