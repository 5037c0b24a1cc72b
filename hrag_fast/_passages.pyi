"""Types and promises of the compiled passage encoder.

Arrays are one-dimensional and C-contiguous; they and the buffers may be read-only (LMDB's
own), and must not change during a call. A wrong dtype or shape is a ValueError, a wrong
type a TypeError. Keeps the GIL: a passage takes some 2 us.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class PassageEncoder:
    """Encodes passages of one search as messages `hrag.v1.Passage`."""

    def __init__(
        self,
        labels: NDArray[np.uint64],
        children: NDArray[np.uint32],
        child_scores: NDArray[np.float32],
        leaf_level: int,
    ) -> None:
        """For m leaves that matched: child i is the leaf at row `children[i]`.

        `labels` uint64[n] are all rows' labels, `children` uint32[m], `child_scores`
        float32[m]; leaves are chunks of `leaf_level`. Raises ValueError for lengths that
        disagree.
        """

    def passage(
        self,
        document: bytes,
        document_id: bytes,
        level: int,
        index: int,
        record: tuple[int, ...],
        text: memoryview,
        leaves: memoryview,
        start: int,
        end: int,
        score: float,
        section_path: tuple[str, ...] = (),
        pages: tuple[int, int] = (0, 0),
        page_starts: tuple[object, ...] = (),
        merged: Sequence[tuple[int, int]] = (),
    ) -> bytes:
        """One passage: chunk `index` of `level`, with the children from `start` to `end`.

        `document` holds those fields of hrag.v1.Chunk that are the document's own, encoded.
        `record` has the fields of hrag.tree.CHUNK, its span perhaps cut or widened; `text`
        is the document's whole text, `leaves` its packed chunks of the leaf level. Children
        are told as far as they lie in the span. `pages` are the first and the last, 0 for
        none; `page_starts` have a `number` and a `char_start`; `merged` are level and index
        of the chunks it was joined of.

        Raises IndexError for a child, row or leaf that there is not, ValueError for a span
        that is not in the text, MemoryError.
        """
