"""The postings part of a segment: an inverted index of its leaves' terms, for BM25.

The builder adds leaves in blocks. Every few thousand leaves become an inverted index in memory,
called a run. At the end, all runs are merged into one file. A build may resume from the postings
of an existing segment. Then the texts of this segment are not analysed again.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.engine.embedded.segments.leaf_terms import joined
from hrag.engine.embedded.segments.leaves import LeafBlock
from hrag.engine.embedded.segments.segment_files import POSTINGS, LoadedSegment
from hrag.engine.embedded.store.failpoints import reach
from hrag.text.analysis import LeafTerms
from hrag_fast import Postings, postings_of, write_postings

RUN_LEAVES = 8192
"""A run, an inverted index of several blocks of leaves, is built from at least this many leaves.

It is the count of rows in a window, the unit in which the file format of `Postings` divides rows.
"""
DROPPED = np.uint32(0xFFFF_FFFF)
"""The new row number of a row that `write_postings` must not write."""


class PostingsPart:
    """Indexes the terms of a segment's leaves. Implements `builder.SegmentPart`."""

    def __init__(self) -> None:
        # Pairs of a run (an inverted index of some of the leaves) and an array. Element i of the
        # array is the number of the leaf to which row i of the run belongs, or -1 if the row is
        # deleted. Leaves are counted from 0 in the order in which they were added.
        self._runs: list[tuple[Postings, NDArray[np.int64]]] = []
        self._lengths = [np.empty(0, np.uint32)]
        # The terms of blocks of leaves that are not in a run yet.
        self._waiting: list[LeafTerms] = []
        self._waiting_leaves = 0
        self._leaves = 0

    def resume_from(self, base: LoadedSegment, living: NDArray[np.bool_]) -> None:
        """Starts this part with the postings of the existing segment `base`.

        Adds the terms of those rows whose documents still exist. Call this method before the first
        `add`. `living` is `bool[rows]`: True for each row whose document still exists. Raises
        TypeError if `base` has no postings.
        """
        if base.postings is None:
            raise TypeError("the base segment of the build has no postings")
        leaves = np.full(len(living), -1, np.int64)
        leaves[living] = np.arange(int(living.sum()))
        self._runs.append((base.postings, leaves))
        self._lengths.append(base.rows.lengths[living])
        self._leaves = int(living.sum())

    def add(self, block: LeafBlock) -> None:
        """Adds the terms of the next leaves."""
        self._waiting.append(block.terms)
        self._lengths.append(block.terms.lengths)
        self._waiting_leaves += len(block.labels)
        if self._waiting_leaves >= RUN_LEAVES:
            self._invert()

    def _invert(self) -> None:
        """Builds an inverted index, called a run, of the blocks that are not in a run yet."""
        terms = joined(self._waiting)
        run = Postings(postings_of(terms.starts, terms.entries, self._waiting_leaves))
        self._runs.append((run, self._leaves + np.arange(self._waiting_leaves)))
        self._leaves += self._waiting_leaves
        self._waiting, self._waiting_leaves = [], 0

    def write(self, folder: Path, order: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Writes the postings into `folder`.

        Row i of the segment is the leaf `order[i]`, counted in the order in which leaves were
        added. Returns the array `lengths`, `uint32[rows]`: the count of terms of each row. Raises
        OSError.
        """
        if self._waiting_leaves:
            self._invert()
        row_of = np.empty(len(order), np.uint32)
        row_of[order] = np.arange(len(order), dtype=np.uint32)
        write_postings(folder / POSTINGS, [_renumbered(*run, row_of) for run in self._runs])
        reach("postings.written")
        return {"lengths": np.concatenate(self._lengths)[order]}


def _renumbered(
    postings: Postings, leaves: NDArray[np.int64], row_of: NDArray[np.uint32]
) -> tuple[Postings, NDArray[np.uint32]]:
    """Returns the postings of a run, and the new row number of each row of the run.

    A new row number is the row number in the new segment, or DROPPED for a deleted row. Element i
    of `leaves` is the number of the leaf to which row i of the run belongs, or -1 if the row is
    deleted. Element j of `row_of` is the row number of leaf j in the new segment.
    """
    rows = row_of[leaves]
    rows[leaves < 0] = DROPPED
    return postings, rows
