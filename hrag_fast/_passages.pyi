"""Types and promises of the compiled passage encoder.

Arrays are one-dimensional and C-contiguous; they and the buffers may be read-only (LMDB's
own), and must not change during a call. A wrong dtype or shape is a ValueError, a wrong
type a TypeError. Keeps the GIL: a passage takes some 2 us.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from hrag_fast._climb import Groups

class CitedDocument:
    """What passages of one document share, encoded once. Keep it for the next search."""

    def __init__(
        self,
        fields: bytes,
        document_id: bytes,
        section_path: Callable[[int], Sequence[str]],
        page_numbers: Iterable[int] = (),
        page_starts: Iterable[int] = (),
    ) -> None:
        """`fields` holds those of hrag.v1.Chunk that are the document's own, encoded.

        `section_path` gives the titles above a section; it is asked once for each. Page i
        has `page_numbers[i]` and begins at character `page_starts[i]`, which ascend. Raises
        ValueError for lengths that disagree.
        """

class PassageEncoder:
    """Encodes passages of one search, each as a `hrag.v1.SearchResponse` that holds it alone.

    One behind the other, such messages are one that holds all of them.
    """

    def __init__(self, labels: NDArray[np.uint64], groups: Groups, leaf_level: int) -> None:
        """Of what `climb` has grouped: the children are rows of `labels`, uint64[n].

        Leaves are chunks of `leaf_level`. Raises ValueError for lengths that disagree.
        """

    def passage(
        self,
        document: CitedDocument,
        tree: Buffer,
        text: Buffer,
        level: int,
        index: int,
        group: int,
        record: tuple[int, ...] | None = None,
        merged: Sequence[tuple[int, int]] = (),
    ) -> bytes:
        """One passage: chunk `index` of `level`, with score and children of a group.

        `tree` is the document's, packed as hrag.tree has it, and `text` its whole text.
        `record` has the fields of hrag.tree.CHUNK in place of the chunk's own, the span cut
        or widened. Children are told as far as they lie in the span. `merged` are level and
        index of the chunks it was joined of.

        Raises IndexError for a level, chunk, group, child, row or leaf that there is not,
        ValueError for a tree that is none and for a span that is not in the text,
        MemoryError.
        """
