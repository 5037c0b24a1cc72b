"""Builds a segment from blocks of leaves.

The builder stores what all parts of a segment share: each row's label and ancestors. A part is
one kind of index over the rows and has separate files. The builder passes every block to each
part. Memory contains the indexes that are being built and one block, but never all vectors of the
collection as well.
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
    """An index over a segment's rows, for example the index of their vectors."""

    def add(self, block: LeafBlock) -> None:
        """Indexes the next leaves."""

    def write(self, folder: Path, order: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """Writes the part's files into `folder`, without syncing them.

        `order` is `int64[rows]`: row i of the segment is the leaf that was added as number
        `order[i]`. Returns arrays by name, which are stored with the rows. Raises OSError.
        """


class SegmentBuilder:
    """Builds one segment from leaves. Each leaf must be added once, in any order."""

    def __init__(self, heights: int, parts: Sequence[SegmentPart]) -> None:
        """`heights` is the number of levels from the embedded one to the top."""
        self._parts = parts
        self._labels = [np.empty(0, np.uint64)]
        self._ancestors = [np.empty((heights, 0), np.uint32)]

    def resume_from(self, rows: Rows, living: NDArray[np.bool_]) -> None:
        """Takes over the living rows of an existing segment; `living` is `bool[rows]`.

        The parts must resume from the same segment.
        """
        self._labels.append(rows.labels[living])
        self._ancestors.append(rows.ancestors[:, living])

    def add(self, block: LeafBlock) -> None:
        """Adds the next leaves to every part."""
        for part in self._parts:
            part.add(block)
        self._labels.append(block.labels)
        self._ancestors.append(block.ancestors)

    def labels(self) -> Labels:
        """Returns the rows' labels, ascending: `uint64[rows]`."""
        return np.sort(np.concatenate(self._labels))

    def write(self, folder: Path) -> dict[str, NDArray[Any]]:
        """Makes each part write its files into `folder`; returns all arrays of the rows by name.

        Raises OSError.
        """
        labels = np.concatenate(self._labels)
        order = np.argsort(labels)
        ancestors = np.concatenate(self._ancestors, axis=1)[:, order]
        arrays: dict[str, NDArray[Any]] = {"labels": labels[order], "ancestors": ancestors}
        for part in self._parts:
            arrays.update(part.write(folder, order))
        return arrays
