"""Builds a segment from blocks of leaves.

A segment has a vector part, a postings part, or both. Each part is one kind of index over the rows
of the segment and has separate files. A row is a leaf. The builder passes every block of leaves to
each part, and stores the label and the ancestors of each row, which all parts share. During a
build, memory contains the unfinished indexes and two blocks of leaves: one is being inserted while
the next one is read. So most vectors of the segment are in memory only once, in the unfinished
index.
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
        """Adds the next leaves to the index."""

    def write(self, folder: Path, order: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """Writes the part's files into `folder`, without syncing them to the disk.

        `order` is `int64[rows]`. Leaves are counted from 0 in the order in which they were added;
        row i of the segment is leaf `order[i]`. Returns a dictionary from name to array. The caller
        stores these arrays in the file `rows.npz`. Raises OSError if a file cannot be written.
        """


class SegmentBuilder:
    """Builds one segment from leaves. Each leaf must be added once, in any order."""

    def __init__(self, level_count: int, parts: Sequence[SegmentPart]) -> None:
        """Creates an empty builder.

        `level_count` is the count of levels from the leaves' level to the top level of the trees,
        both included. `parts` are the indexes of the segment.
        """
        self._parts = parts
        self._labels = [np.empty(0, np.uint64)]
        self._ancestors = [np.empty((level_count, 0), np.uint32)]

    def resume_from(self, rows: Rows, living: NDArray[np.bool_]) -> None:
        """Starts this builder with the rows of an existing segment.

        Adds the labels and ancestors of those rows whose documents still exist. `rows` are the rows
        of the existing segment. `living` is `bool[rows]`: True for each row whose document still
        exists. This method does not fill the indexes. So the caller must also call `resume_from` of
        each index in `parts`, with the same segment and `living`, before the first `add`.
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
        """Returns the labels of all leaves that were added, ascending: `uint64[rows]`."""
        return np.sort(np.concatenate(self._labels))

    def write(self, folder: Path) -> dict[str, NDArray[Any]]:
        """Makes each part write its files into `folder`.

        Returns a dictionary from name to array. The caller stores these arrays in the file
        `rows.npz`; `segment_files.Rows` describes each of them. Raises OSError.
        """
        labels = np.concatenate(self._labels)
        order = np.argsort(labels)
        ancestors = np.concatenate(self._ancestors, axis=1)[:, order]
        arrays: dict[str, NDArray[Any]] = {"labels": labels[order], "ancestors": ancestors}
        for part in self._parts:
            arrays.update(part.write(folder, order))
        return arrays
