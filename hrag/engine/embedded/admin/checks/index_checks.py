"""Checks that change log and manifest agree with the counters, and files with the manifest."""

from collections.abc import Iterator, Mapping

from hrag.engine.embedded.admin.checks.posting_checks import postings_problems
from hrag.engine.embedded.admin.checks.store_walk import Walk
from hrag.engine.embedded.segments import leaves, manifest, segment_files
from hrag.engine.embedded.segments.manifest import Contents
from hrag.engine.embedded.store.lmdb_records import Counters, SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.values.collections import CollectionSettings


def sequence_problems(walk: Walk, number: int, tenant_id: str, counters: Counters) -> Iterator[str]:
    """Yields a problem for each sequence of a collection that is larger than it may be.

    No segment covers more than the sealed sequence, which is at most the collection's last
    sequence, which is at most the tenant's last sequence.
    """
    last = read_usage(walk.txn, tenant_id).sequence
    if counters.sequence > last:
        yield f"sequence {counters.sequence} is past its tenant's last, {last}"
    if counters.sealed_sequence > counters.sequence:
        yield f"sealed sequence {counters.sealed_sequence} is past the last, {counters.sequence}"
    for record in listed_segments(walk.txn, number):
        if record.covered_sequence > counters.sealed_sequence:
            yield (
                f"segment {record.segment_id} covers sequence {record.covered_sequence}, "
                f"counters say {counters.sealed_sequence}"
            )


def log_problems(walk: Walk, number: int, counters: Counters) -> Iterator[str]:
    """Yields the problems of a collection's change log."""
    entries = [sequence for _, sequence in walk.txn.changes.keys(number)]
    if len(entries) != counters.log_entries:
        yield f"{len(entries)} log entries, counters say {counters.log_entries}"
    if entries and entries[0] <= counters.log_start:
        yield f"the log has an entry before {counters.log_start}, where it should begin"
    if entries and entries[-1] != counters.sequence:
        yield f"last log entry is {entries[-1]}, counters say {counters.sequence}"


def manifest_problems(
    walk: Walk, number: int, settings: CollectionSettings, counters: Counters
) -> Iterator[str]:
    """Yields the problems of a collection's segments and tombstones."""
    covered, tombstones = 0, 0
    counted = {
        last_ordinal: deleted
        for (_, last_ordinal), deleted in walk.txn.deleted_leaves.entries(number)
    }
    for record in listed_segments(walk.txn, number):
        walk.segments += 1
        deleted = _deleted_in(walk, number, record)
        tombstones += len(deleted)
        stored = counted.pop(record.last_ordinal, None)
        yield from _order_problems(walk, number, record, covered)
        for problem in (
            *_deleted_problems(deleted, stored),
            *_segment_problems(walk, number, settings, record, deleted),
        ):
            yield f"segment {record.segment_id}: {problem}"
        covered = record.last_ordinal
    if covered > counters.sealed_ordinal:
        yield f"segments cover ordinal {covered}, counters say {counters.sealed_ordinal}"
    yield from _uncovered_problems(walk, number, covered, counters.sealed_ordinal)
    if tombstones != walk.txn.tombstones.count(number):
        yield "it has tombstones of documents that no segment contains"
    if counted:
        yield f"deleted leaves are counted for segments that are not listed: {sorted(counted)}"


def _order_problems(walk: Walk, number: int, record: SegmentRecord, covered: int) -> Iterator[str]:
    if record.first_ordinal <= covered:
        yield f"segment {record.segment_id} covers ordinals of the one before"
    yield from _uncovered_problems(walk, number, covered, record.first_ordinal - 1)


def _uncovered_problems(walk: Walk, number: int, after: int, last: int) -> Iterator[str]:
    """Yields a problem for each living document after the ordinal `after`, up to `last`.

    These documents should be in a segment, but no segment covers them.
    """
    for ordinal, _ in leaves.living_ordinals(walk.txn, number, after, last):
        yield f"no segment covers ordinal {ordinal}, which is not in the tail either"


def _deleted_in(walk: Walk, number: int, record: SegmentRecord) -> dict[int, int]:
    """Returns the leaf counts of the tombstones in the segment's range, by ordinal."""
    return dict(
        manifest.read_tombstones(walk.txn, number, record.first_ordinal, record.last_ordinal)
    )


def _deleted_problems(deleted: Mapping[int, int], stored: int | None) -> Iterator[str]:
    if sum(deleted.values()) != stored:
        yield f"{sum(deleted.values())} deleted leaves, its counter says {stored}"


def _segment_problems(
    walk: Walk,
    number: int,
    settings: CollectionSettings,
    record: SegmentRecord,
    deleted: Mapping[int, int],
) -> Iterator[str]:
    if _index_settings(record) != _index_settings(settings):
        yield "its embedder, dimension or analyzer is not the collection's"
    try:
        loaded = segment_files.load(walk.store.segments, record)
    except segment_files.DamagedSegment as error:
        if _is_still_listed(walk, number, record):
            yield str(error)
        return
    expected = dict(leaves.covered_ordinals(walk.txn, number, record))
    for ordinal in expected.keys() & deleted.keys():
        yield f"ordinal {ordinal} is both living and deleted"
    expected.update(deleted)
    contents = Contents.of(loaded.rows.labels)
    if dict(zip(contents.ordinals.tolist(), contents.counts.tolist(), strict=True)) != expected:
        yield "its leaves are not those of the living and deleted documents in its range"
    else:
        yield from postings_problems(walk, number, settings, loaded)


def _index_settings(source: CollectionSettings | SegmentRecord) -> tuple[str, int, str]:
    return source.embedder, source.dimension, source.analyzer


def _is_still_listed(walk: Walk, number: int, record: SegmentRecord) -> bool:
    """Returns True if the manifest still lists the segment.

    A segment that was replaced during a long check is not listed, and its files may be gone.
    """
    with walk.store.read() as later:
        return record in listed_segments(later, number)
