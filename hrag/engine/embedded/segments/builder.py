"""Builds a segment from blocks of leaves.

The builder holds what all parts of a segment share: each row's label and ancestors. A part
is one way to search the rows, and has its own files; the builder gives every block to each
part. Memory holds what is being built and one block, never a collection's vectors as well.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import Labels
from hrag.engine.embedded.segments.leaves import LeafBlock
from hrag.engine.embedded.segments.segment_files import Rows


class SegmentPart(Protocol):
    """One kind of index over a segment's rows, such as that of their vectors."""

    def add(self, block: LeafBlock) -> None:
        """Indexes the next leaves."""

    def write(self, folder: Path, order: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """Writes the part's own files into `folder`, not yet durably.

        `order` is `int64[rows]`: row i of the segment is the leaf that came as number
        `order[i]`. Returns arrays to be stored with the rows. Raises OSError.
        """


class SegmentBuilder:
    """Gathers leaves into one segment. Give each leaf once, in any order."""

    def __init__(self, heights: int, parts: Sequence[SegmentPart]) -> None:
        """`heights` is the number of levels from the embedded one to the top."""
        self._parts = parts
        self._labels = [np.empty(0, np.uint64)]
        self._ancestors = [np.empty((heights, 0), np.uint32)]

    def resume_from(self, rows: Rows, living: NDArray[np.bool_]) -> None:
        """Takes over the living rows of the segment from which the parts resume too."""
        self._labels.append(rows.labels[living])
        self._ancestors.append(rows.ancestors[:, living])

    def add(self, block: LeafBlock) -> None:
        """Adds the next leaves to every part."""
        for part in self._parts:
            part.add(block)
        self._labels.append(block.labels)
        self._ancestors.append(block.ancestors)

    def labels(self) -> Labels:
        """The rows' labels, ascending: `uint64[rows]`."""
        return np.sort(np.concatenate(self._labels))

    def write(self, folder: Path) -> dict[str, NDArray[Any]]:
        """Lets each part write its files into `folder`; returns all arrays of the rows.

        Raises OSError.
        """
        labels = np.concatenate(self._labels)
        order = np.argsort(labels)
        ancestors = np.concatenate(self._ancestors, axis=1)[:, order]
        arrays: dict[str, NDArray[Any]] = {"labels": labels[order], "ancestors": ancestors}
        for part in self._parts:
            arrays.update(part.write(folder, order))
        return arrays
