"""Checks that a segment's postings agree with the texts.

Postings are built again from the texts of the living documents, in the same way as by a build. They
are compared with the segment's postings without its deleted rows. Equal rows always give the same
postings, byte for byte. The documents are compared in parts of some ten thousand leaves, so memory
and a temporary file contain the postings of one part at a time. The file is outside the store,
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

# A part has about this many entries, which are some 20,000 leaves. With smaller parts, the postings
# of the segment would be read too often. The temporary file usually takes 4 bytes for an entry,
# 9 MB in all. If no term occurs twice, it takes 28 bytes for an entry, 56 MiB in all; a small /tmp
# has 64 MiB.
PART_ENTRIES = 1 << 21
# Reading the leaves of a damaged document raises one of these. The module `documents` reports the
# damage.
_DAMAGED = (*UNREADABLE, LookupError)


class _ComparedPostings(NamedTuple):
    """Postings, and which of their rows are compared.

    `numbers` has an entry for each row: its number among the compared rows, or DROPPED if it is not
    compared. `lengths` are the lengths of the compared rows.
    """

    postings: Postings
    numbers: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


def postings_problems(
    walk: Walk, number: int, settings: CollectionSettings, segment: LoadedSegment
) -> Iterator[str]:
    """Yields a problem if the segment's postings or lengths differ from the texts.

    Documents that cannot be read are not compared. Raises StorageFull or StoreUnavailable if
    temporary files cannot be written.
    """
    if segment.postings is None:
        return
    try:
        with _temporary_folder() as folder:
            yield from _problems(walk, number, settings, segment, segment.postings, folder)
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
            f"{error.strerror}; set TMPDIR to a folder with 64 MB free, for postings to compare "
            "with the texts"
        ) from error


def _problems(
    walk: Walk,
    number: int,
    settings: CollectionSettings,
    segment: LoadedSegment,
    postings: Postings,
    folder: Path,
) -> Iterator[str]:
    rows = segment.rows
    if not (rows.labels[1:] > rows.labels[:-1]).all():
        yield "its rows are not in order"
        return
    for part, labels in _parts(walk, number, settings, segment.record):
        compared = np.isin(ordinals_of(rows.labels), ordinals_of(labels))
        if not np.array_equal(rows.labels[compared], labels):
            yield "its rows are not the leaves of its documents"
            return
        numbers = np.full(len(compared), DROPPED)
        numbers[compared] = np.arange(len(labels))
        actual = _ComparedPostings(postings, numbers, rows.lengths[compared])
        expected = _build_postings(part, len(labels), folder)
        if _differ(actual, expected, len(labels), folder):
            ordinal = ordinals_of(labels)[_first_difference(actual, expected, folder)]
            yield f"its postings differ from the texts, first in ordinal {ordinal}"
            return


def _parts(
    walk: Walk, number: int, settings: CollectionSettings, record: SegmentRecord
) -> Iterator[tuple[PostingsPart, Labels]]:
    """Yields the postings of the living, readable documents in parts, with the leaves' labels."""
    # An unknown analyzer raises InvalidArgument here. Later, it would look like a damaged document.
    analyzer(record.analyzer)
    lexical_settings = replace(settings, analyzer=record.analyzer, dimension=0)
    part, labels, entries = PostingsPart(), list[Labels](), 0
    for block in _blocks(walk, number, lexical_settings, record):
        part.add(block)
        labels.append(block.labels)
        entries += len(block.terms.entries)
        if entries >= walk.part_entries:
            yield part, np.concatenate(labels)
            part, labels, entries = PostingsPart(), [], 0
    if labels:
        yield part, np.concatenate(labels)


def _blocks(
    walk: Walk, number: int, settings: CollectionSettings, record: SegmentRecord
) -> Iterator[LeafBlock]:
    for ordinal, _ in leaves.covered_ordinals(walk.txn, number, record):
        try:
            yield leaves.read_leaves(walk.txn, number, settings, [ordinal])
        except _DAMAGED:
            continue


def _build_postings(part: PostingsPart, leaf_count: int, folder: Path) -> _ComparedPostings:
    """Returns the postings of a part, all of whose rows are compared. Writes a file to `folder`."""
    rows = np.arange(leaf_count)
    lengths = part.write(folder, rows)["lengths"]
    return _ComparedPostings(
        Postings((folder / POSTINGS).read_bytes()), rows.astype(np.uint32), lengths
    )


def _first_difference(actual: _ComparedPostings, expected: _ComparedPostings, folder: Path) -> int:
    """Returns the first row whose terms or length differ. Searches by bisection."""
    counts = range(1, len(actual.lengths) + 1)
    return bisect_left(counts, True, key=lambda count: _differ(actual, expected, count, folder))


def _differ(
    actual: _ComparedPostings, expected: _ComparedPostings, count: int, folder: Path
) -> bool:
    """Returns True if the terms or the length of any of the first `count` rows differ."""
    if not np.array_equal(actual.lengths[:count], expected.lengths[:count]):
        return True
    # All postings are written to the same path, so the folder never contains two files.
    path = folder / POSTINGS
    return _digest(actual, count, path) != _digest(expected, count, path)


def _digest(compared: _ComparedPostings, count: int, path: Path) -> bytes:
    """Writes the postings of the first `count` rows to `path` and returns their SHA-256."""
    numbers = np.where(compared.numbers < count, compared.numbers, DROPPED)
    write_postings(path, [(compared.postings, numbers)])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
