"""Checks that a segment's postings agree with the texts.

A segment has one row for each leaf. The check builds new postings from the texts of the documents
that are not deleted, with the functions that also build segments. It compares the new postings with
the segment's postings, from which it leaves out the rows of deleted documents. Equal rows always
result in equal postings, byte for byte.

The documents are compared in batches of about 20,000 leaves. So only the new postings of one batch
are in memory and in a temporary file at a time. The temporary file is outside the store's folder,
because the store may be read-only.
"""

import hashlib
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import Labels, ordinals_of
from hrag.engine.embedded.admin.checks.store_walk import UNREADABLE, Walk
from hrag.engine.embedded.segments import leaves
from hrag.engine.embedded.segments.leaves import LeafBlock
from hrag.engine.embedded.segments.postings_part import DROPPED, PostingsPart
from hrag.engine.embedded.segments.segment_files import POSTINGS, LoadedSegment
from hrag.engine.embedded.store.disk import FULL_DISK
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.text.analysis import analyzer
from hrag.values.collections import CollectionSettings
from hrag.values.errors import InvalidArgument, StorageFull, StoreUnavailable
from hrag_fast import Postings, write_postings

# A batch has about this many entries (pairs of a leaf and a term), which are about 20,000 leaves.
# All postings of the segment are read for each batch, so with smaller batches the check would take
# longer. With larger batches, the temporary file might not fit into a /tmp of 64 MiB. The file of a
# batch of this size usually needs 4 bytes for an entry, 9 MB in all. In the worst case, if no term
# occurs twice, it needs 28 bytes for an entry, 56 MiB in all.
BATCH_ENTRIES = 1 << 21
# Reading the leaves of a damaged document raises one of these errors. The module `document_checks`
# reports the damage.
_DAMAGED = (*UNREADABLE, LookupError)


class _ComparedPostings(NamedTuple):
    """Postings, and which of their rows are compared. A row is a leaf.

    `positions` has a value for each row: the position of the row among the compared rows, or
    DROPPED if the row is not compared. `lengths` has the count of terms of each compared row.
    """

    postings: Postings
    positions: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


def postings_problems(
    walk: Walk, collection: int, settings: CollectionSettings, segment: LoadedSegment
) -> Iterator[str]:
    """Yields a problem if the segment's postings or its term counts do not match the texts.

    Documents that cannot be read are not compared. Raises StorageFull or StoreUnavailable if
    temporary files cannot be written.
    """
    if segment.postings is None:
        return
    try:
        with _temporary_folder() as folder:
            yield from _problems(walk, collection, settings, segment, segment.postings, folder)
    except InvalidArgument as error:
        yield f"its postings cannot be compared with the texts: {error}"


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    except OSError as error:
        failure = StorageFull if error.errno in FULL_DISK else StoreUnavailable
        raise failure(
            f"temporary files cannot be written to {tempfile.tempdir or 'any folder'}: "
            f"{error.strerror}; the check of postings needs them; set TMPDIR to a folder with "
            "64 MB free"
        ) from error


def _problems(
    walk: Walk,
    collection: int,
    settings: CollectionSettings,
    segment: LoadedSegment,
    postings: Postings,
    folder: Path,
) -> Iterator[str]:
    rows = segment.rows
    if not (rows.labels[1:] > rows.labels[:-1]).all():
        yield "its rows are not in order of label"
        return
    for batch, labels in _batches(walk, collection, settings, segment.record):
        compared = np.isin(ordinals_of(rows.labels), ordinals_of(labels))
        if not np.array_equal(rows.labels[compared], labels):
            yield "its rows are not the leaves of its documents"
            return
        positions = np.full(len(compared), DROPPED)
        positions[compared] = np.arange(len(labels))
        actual = _ComparedPostings(postings, positions, rows.lengths[compared])
        expected = _build_postings(batch, len(labels), folder)
        if _differ(actual, expected, len(labels), folder):
            ordinal = ordinals_of(labels)[_first_difference(actual, expected, folder)]
            yield f"its postings differ from the texts, first in ordinal {ordinal}"
            return


def _batches(
    walk: Walk, collection: int, settings: CollectionSettings, record: SegmentRecord
) -> Iterator[tuple[PostingsPart, Labels]]:
    """Builds postings from the texts of the segment's documents, in batches.

    Yields the postings and the labels of the leaves of each batch. Skips documents that are deleted
    or cannot be read. Raises InvalidArgument if the analyzer is unknown.
    """
    # This raises InvalidArgument for an unknown analyzer. `_blocks` would treat this error as
    # damage of a document.
    analyzer(record.analyzer)
    lexical_settings = replace(settings, analyzer=record.analyzer, dimension=0)
    batch, labels, entries = PostingsPart(), list[Labels](), 0
    for block in _blocks(walk, collection, lexical_settings, record):
        batch.add(block)
        labels.append(block.labels)
        entries += len(block.terms.entries)
        if entries >= walk.batch_entries:
            yield batch, np.concatenate(labels)
            batch, labels, entries = PostingsPart(), [], 0
    if labels:
        yield batch, np.concatenate(labels)


def _blocks(
    walk: Walk, collection: int, settings: CollectionSettings, record: SegmentRecord
) -> Iterator[LeafBlock]:
    for ordinal, _ in leaves.covered_ordinals(walk.txn, collection, record):
        try:
            yield leaves.read_leaves(walk.txn, collection, settings, [ordinal])
        except _DAMAGED:
            continue


def _build_postings(batch: PostingsPart, leaf_count: int, folder: Path) -> _ComparedPostings:
    """Writes the postings of a batch to a file in `folder`. Returns the postings in this file.

    In the result, all rows are marked as compared.
    """
    rows = np.arange(leaf_count)
    lengths = batch.write(folder, rows)["lengths"]
    return _ComparedPostings(
        Postings((folder / POSTINGS).read_bytes()), rows.astype(np.uint32), lengths
    )


def _first_difference(actual: _ComparedPostings, expected: _ComparedPostings, folder: Path) -> int:
    """Returns the index of the first compared row in which `actual` and `expected` differ.

    A row differs if its terms or its term counts differ. Finds the row by bisection. The caller has
    checked that at least one row differs.
    """
    counts = range(1, len(actual.lengths) + 1)
    return bisect_left(counts, True, key=lambda count: _differ(actual, expected, count, folder))


def _differ(
    actual: _ComparedPostings, expected: _ComparedPostings, count: int, folder: Path
) -> bool:
    """Returns True if `actual` and `expected` differ in the first `count` compared rows.

    The rows differ if they have different terms or different term counts.
    """
    if not np.array_equal(actual.lengths[:count], expected.lengths[:count]):
        return True
    # All postings are written to the same path, so there is never more than one temporary file.
    path = folder / POSTINGS
    return _digest(actual, count, path) != _digest(expected, count, path)


def _digest(compared: _ComparedPostings, count: int, path: Path) -> bytes:
    """Writes the postings of the first `count` compared rows to `path`; returns their SHA-256."""
    positions = np.where(compared.positions < count, compared.positions, DROPPED)
    write_postings(path, [(compared.postings, positions)])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
