"""Do a segment's postings say what the texts say?

They are made again from the texts of the living documents, as a build makes them, and compared
with the segment's own without its deleted rows. Postings have one form only, so those of equal
rows are equal byte for byte. Memory and a temporary file hold the postings of some ten thousand
leaves at a time; the file is not in the store, which may be read-only.
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

# Of some 20,000 leaves; fewer would read the segment's postings too often. The file takes 4 bytes
# an entry, 9 MB, and at most 28, where no term comes twice: 56 MiB, and a small /tmp has 64.
_PART_ENTRIES = 1 << 21
# What reading the leaves of a damaged document raises; `documents` says what is wrong with it.
_DAMAGED = (*UNREADABLE, LookupError)


class _Compared(NamedTuple):
    """Postings, with the number of each row that is compared and DROPPED for the others.

    `lengths` are those of the rows that are compared.
    """

    postings: Postings
    numbers: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


def postings_problems(
    walk: Walk, number: int, settings: CollectionSettings, segment: LoadedSegment
) -> Iterator[str]:
    """Yields a problem unless the segment's postings and lengths are those of the texts.

    Documents that cannot be read are left out. Raises StorageFull or StoreUnavailable if the
    folder for temporary files takes none.
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
        own = _Compared(postings, numbers, rows.lengths[compared])
        of_texts = _written(part, len(labels), folder)
        if _differ(own, of_texts, len(labels), folder):
            ordinal = ordinals_of(labels)[_first_difference(own, of_texts, folder)]
            yield f"its postings are not those of the texts, first in ordinal {ordinal}"
            return


def _parts(
    walk: Walk, number: int, settings: CollectionSettings, record: SegmentRecord
) -> Iterator[tuple[PostingsPart, Labels]]:
    """Yields the postings of the living documents that can be read, with their leaves' labels."""
    analyzer(record.analyzer)  # An unknown one is no damage to a document.
    of_words = replace(settings, analyzer=record.analyzer, dimension=0)
    part, labels, entries = PostingsPart(), list[Labels](), 0
    for block in _blocks(walk, number, of_words, record):
        part.add(block)
        labels.append(block.labels)
        entries += len(block.terms.entries)
        if entries >= _PART_ENTRIES:
            yield part, np.concatenate(labels)
            part, labels, entries = PostingsPart(), [], 0
    if labels:
        yield part, np.concatenate(labels)


def _blocks(
    walk: Walk, number: int, settings: CollectionSettings, record: SegmentRecord
) -> Iterator[LeafBlock]:
    for ordinal, _ in leaves.covered_ordinals(walk.store, walk.txn, number, record):
        try:
            yield leaves.read_leaves(walk.store, walk.txn, number, settings, [ordinal])
        except _DAMAGED:
            continue


def _written(part: PostingsPart, leaf_count: int, folder: Path) -> _Compared:
    """The part's postings, from a file in `folder`; all of their rows are compared."""
    rows = np.arange(leaf_count)
    lengths = part.write(folder, rows)["lengths"]
    return _Compared(Postings((folder / POSTINGS).read_bytes()), rows.astype(np.uint32), lengths)


def _first_difference(one: _Compared, other: _Compared, folder: Path) -> int:
    """The first row whose terms or length differ, found by bisection."""
    counts = range(1, len(one.lengths) + 1)
    return bisect_left(counts, True, key=lambda count: _differ(one, other, count, folder))


def _differ(one: _Compared, other: _Compared, count: int, folder: Path) -> bool:
    """Whether any of the first `count` rows have other terms or lengths."""
    if not np.array_equal(one.lengths[:count], other.lengths[:count]):
        return True
    path = folder / POSTINGS  # In place of what was there: the folder never holds two files.
    return _digest(one, count, path) != _digest(other, count, path)


def _digest(compared: _Compared, count: int, path: Path) -> bytes:
    """The digest of the postings of the first `count` rows, which are written to `path`."""
    numbers = np.where(compared.numbers < count, compared.numbers, DROPPED)
    write_postings(path, [(compared.postings, numbers)])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
