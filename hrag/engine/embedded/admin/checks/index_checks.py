"""Checks the change log, the segments and the tombstones of a collection.

The change log and the manifest, which is the list of the collection's segments, must match the
collection's counters. The files of the segments must match the manifest.
"""

from collections.abc import Iterator, Mapping

from hrag.engine.embedded.admin.checks.posting_checks import postings_problems
from hrag.engine.embedded.admin.checks.store_walk import Walk
from hrag.engine.embedded.segments import leaves, manifest, segment_files
from hrag.engine.embedded.segments.manifest import Contents
from hrag.engine.embedded.store.lmdb_records import Counters, SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.values.collections import CollectionSettings


def sequence_problems(
    walk: Walk, collection: int, tenant_id: str, counters: Counters
) -> Iterator[str]:
    """Yields a problem for each of a collection's sequence numbers that exceeds its upper limit.

    * The last sequence number that a segment covers must be at most the `sealed_sequence` in the
      collection's counters.
    * `sealed_sequence` must be at most the collection's last sequence number.
    * The collection's last sequence number must be at most the tenant's last sequence number.
    """
    last = read_usage(walk.txn, tenant_id).sequence
    if counters.sequence > last:
        yield f"its last sequence number {counters.sequence} is greater than its tenant's, {last}"
    if counters.sealed_sequence > counters.sequence:
        yield (
            f"its sealed sequence number {counters.sealed_sequence} is greater than its last, "
            f"{counters.sequence}"
        )
    for record in listed_segments(walk.txn, collection):
        if record.covered_sequence > counters.sealed_sequence:
            yield (
                f"segment {record.segment_id} covers sequence number {record.covered_sequence}, "
                f"but the counters say that segments cover up to {counters.sealed_sequence}"
            )


def log_problems(walk: Walk, collection: int, counters: Counters) -> Iterator[str]:
    """Yields a problem if a collection's change log does not match the collection's counters."""
    entries = [sequence for _, sequence in walk.txn.changes.keys(collection)]
    if len(entries) != counters.log_entries:
        yield f"the log has {len(entries)} entries, the counters say {counters.log_entries}"
    if entries and entries[0] <= counters.log_start:
        yield (
            f"the log begins with sequence number {entries[0]}, "
            f"but the counters say that it begins after {counters.log_start}"
        )
    if entries and entries[-1] != counters.sequence:
        yield (
            f"the last log entry has sequence number {entries[-1]}, but the counters say "
            f"{counters.sequence}"
        )


def manifest_problems(
    walk: Walk, collection: int, settings: CollectionSettings, counters: Counters
) -> Iterator[str]:
    """Checks the segments and tombstones of a collection. Yields the problems.

    Every document that is not deleted must be in exactly one segment or in the tail. Every
    tombstone must be of a document that a segment contains.
    """
    covered, tombstones = 0, 0
    counted = {
        last_ordinal: deleted
        for (_, last_ordinal), deleted in walk.txn.deleted_leaves.entries(collection)
    }
    for record in listed_segments(walk.txn, collection):
        walk.segments += 1
        deleted = _deleted_in(walk, collection, record)
        tombstones += len(deleted)
        stored = counted.pop(record.last_ordinal, None)
        yield from _order_problems(walk, collection, record, covered)
        for problem in (
            *_deleted_problems(deleted, stored),
            *_segment_problems(walk, collection, settings, record, deleted),
        ):
            yield f"segment {record.segment_id}: {problem}"
        covered = record.last_ordinal
    if covered > counters.sealed_ordinal:
        yield (
            f"segments cover ordinals up to {covered}, but the counters say up to "
            f"{counters.sealed_ordinal}"
        )
    yield from _uncovered_problems(walk, collection, covered, counters.sealed_ordinal)
    if tombstones != walk.txn.tombstones.count(collection):
        yield "it has tombstones of documents that no segment contains"
    if counted:
        yield f"deleted leaves are counted for segments that are not listed: {sorted(counted)}"


def _order_problems(
    walk: Walk, collection: int, record: SegmentRecord, covered: int
) -> Iterator[str]:
    if record.first_ordinal <= covered:
        yield f"segment {record.segment_id} covers ordinals of the segment before it"
    yield from _uncovered_problems(walk, collection, covered, record.first_ordinal - 1)


def _uncovered_problems(walk: Walk, collection: int, after: int, last: int) -> Iterator[str]:
    """Yields a problem for each existing document with an ordinal above `after` and up to `last`.

    The caller knows that no segment covers these ordinals and that they are not in the tail. So a
    search would not find the document.
    """
    for ordinal, _ in leaves.living_ordinals(walk.txn, collection, after, last):
        yield f"no segment covers ordinal {ordinal}, which is not in the tail either"


def _deleted_in(walk: Walk, collection: int, record: SegmentRecord) -> dict[int, int]:
    """Returns a dictionary from ordinal to leaf count, for a segment's deleted documents."""
    return dict(
        manifest.read_tombstones(walk.txn, collection, record.first_ordinal, record.last_ordinal)
    )


def _deleted_problems(deleted: Mapping[int, int], stored: int | None) -> Iterator[str]:
    if sum(deleted.values()) != stored:
        yield f"its tombstones have {sum(deleted.values())} leaves, but its counter says {stored}"


def _segment_problems(
    walk: Walk,
    collection: int,
    settings: CollectionSettings,
    record: SegmentRecord,
    deleted: Mapping[int, int],
) -> Iterator[str]:
    if _index_settings(record) != _index_settings(settings):
        yield "its embedder, dimension or analyzer is not the collection's"
    try:
        loaded = segment_files.load(
            walk.store.segments, record, vector_source=segment_files.no_other_source
        )
    except segment_files.DamagedSegment as error:
        if _is_still_listed(walk, collection, record):
            yield str(error)
        return
    expected = dict(leaves.covered_ordinals(walk.txn, collection, record))
    for ordinal in expected.keys() & deleted.keys():
        yield f"ordinal {ordinal} is both living and deleted"
    expected.update(deleted)
    contents = Contents.of(loaded.rows.labels)
    if dict(zip(contents.ordinals.tolist(), contents.counts.tolist(), strict=True)) != expected:
        yield "its leaves are not those of the living and deleted documents in its range"
    else:
        yield from postings_problems(walk, collection, settings, loaded)


def _index_settings(source: CollectionSettings | SegmentRecord) -> tuple[str, int, str]:
    return source.embedder, source.dimension, source.analyzer


def _is_still_listed(walk: Walk, collection: int, record: SegmentRecord) -> bool:
    """Returns True if a new transaction still finds the segment in the collection's manifest.

    If the manifest does not list the segment any more, the segment was replaced during the check,
    and its files may be missing.
    """
    with walk.store.read() as later:
        return record in listed_segments(later, collection)
