"""Walks a whole store and proves its invariants.

Reads everything in one transaction and compares what is stored twice: counters with what
they count, ids with ordinals, heads with trees and texts, vectors with leaves, manifest
with files. Finds, never mends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat, takewhile
from typing import TypeVar

import numpy as np

from hrag.engine.embedded.segments import leaves, segment_files
from hrag.engine.embedded.segments.manifest import Contents
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.queries import (
    collection_exists,
    listed_segments,
    read_collection,
    slot_of,
)
from hrag.engine.embedded.store.records import (
    CollectionRecord,
    Counters,
    DocumentRecord,
    SegmentRecord,
    Summarised,
    Usage,
)
from hrag.engine.embedded.store.tenant_usage import read_usage, stored_bytes
from hrag.errors import InvalidArgument
from hrag.tree import NONE, Tree
from hrag.types import CollectionSettings

_COLLECTION_BYTES = 4  # What the key of anything in a collection begins with.
_BY_COLLECTION = (
    "counters",
    "document_ids",
    "ordinals",
    "terms",
    "changes",
    "segments",
    "deleted_leaves",
    "tombstones",
    "unsummarised",
    "summarised",
)
# Counters that are of the documents that live.
OF_DOCUMENTS = (
    "documents",
    "chunks",
    "leaves",
    "tail_leaves",
    "tokens",
    "text_bytes",
    "vector_bytes",
    "stored_bytes",
)
_UNREADABLE = (ValueError, KeyError, TypeError, InvalidArgument)
_UNIT_TOLERANCE = 1e-3  # float32 rounding over thousands of dimensions stays far below.

Numbers = TypeVar("Numbers", Counters, Usage)


@dataclass(frozen=True, slots=True)
class Report:
    """What a check looked at, and each problem with its place."""

    collections: int
    documents: int
    leaves: int
    segments: int
    problems: tuple[str, ...]


def check(store: Store) -> Report:
    """Checks everything; the report's `problems` are empty for a sound store."""
    with store.read() as txn:
        return _Walk(store, txn).report()


class _Walk:
    def __init__(self, store: Store, txn: Txn) -> None:
        self._store = store
        self._txn = txn
        self._collections = self._documents = self._leaves = self._segments = 0
        self._usage: dict[str, Usage] = {}

    def report(self) -> Report:
        problems = [
            *self._all_collections(),
            *self._tenants(),
            *self._names(),
            *self._strays(),
        ]
        return Report(
            self._collections, self._documents, self._leaves, self._segments, tuple(problems)
        )

    def _all_collections(self) -> Iterator[str]:
        for key, value in self._store.scan(self._txn, "collections", b""):
            number = schema.read_u32(key)
            self._collections += 1
            try:
                record = CollectionRecord.from_bytes(value)
            except _UNREADABLE as error:
                yield f"collection {number}: its record is damaged: {error!r}"
                continue
            place = f"collection {record.tenant_id}/{record.name}"
            for problem in self._collection(number, record):
                yield f"{place}: {problem}"

    def _collection(self, number: int, record: CollectionRecord) -> Iterator[str]:
        yield from self._named(number, record)
        counters = self._txn.get(schema.u32(number), db=self._store.db["counters"])
        if counters is None:
            yield "it has no counters"
            return
        stored = Counters.from_bytes(counters)
        yield from self._all_documents(number, record, stored)
        yield from self._waiting(number, stored)
        if record.summarises:
            yield from self._summaries(number, record.summarises)
        yield from self._log(number, stored)
        yield from _sequence_problems(self._store, self._txn, number, record.tenant_id, stored)
        yield from self._manifest(number, record.settings, stored)

    def _named(self, number: int, record: CollectionRecord) -> Iterator[str]:
        """Whether it is found by its name, or by the collection that it holds summaries of."""
        if record.summarises:
            exists = collection_exists(self._store, self._txn, record.summarises)
            of = read_collection(self._store, self._txn, record.summarises) if exists else None
            if of is None or of.summaries != number:
                yield f"it holds summaries of collection {record.summarises}, which has others"
            return
        name = schema.collection_name(record.tenant_id, record.name)
        named = self._txn.get(name, db=self._store.db["collection_names"])
        if named is None or schema.read_u32(named) != number:
            yield "its name names another collection"

    def _all_documents(
        self, number: int, record: CollectionRecord, stored: Counters
    ) -> Iterator[str]:
        counted = stored._replace(**dict.fromkeys(OF_DOCUMENTS, 0))
        terms = 0
        for ordinal, leaf_count in leaves.living_ordinals(self._store, self._txn, number):
            slot = slot_of(self._store, self._txn, number, ordinal)
            try:
                head = self._head(slot)
            except _UNREADABLE as error:
                yield f"ordinal {ordinal}: its head is missing or damaged: {error!r}"
                continue
            counted = counted.plus(head, ordinal, 1)
            terms += len(terms_of(head))
            for problem in self._document(number, ordinal, leaf_count, slot, head, record.settings):
                yield f"document {head.document_id} (ordinal {ordinal}): {problem}"
            if head.sequence > stored.sequence:
                yield f"document {head.document_id}: sequence {head.sequence} is past the last"
        yield from _differences(stored, counted)
        self._charge(record, counted)
        yield from self._ids(number, counted.documents)
        stored_terms = self._count("terms", number)
        if stored_terms != terms:
            yield f"{stored_terms} terms are stored, its documents have {terms}"

    def _charge(self, record: CollectionRecord, counted: Counters) -> None:
        """Counts what was found for its tenant; summaries by their bytes alone."""
        documents = 0 if record.summarises else counted.documents
        found = Usage(0 if record.summarises else 1, documents, counted.stored_bytes)
        self._usage[record.tenant_id] = self._usage.get(record.tenant_id, Usage()).plus(found)

    def _tenants(self) -> Iterator[str]:
        """Whether what is kept of each tenant is what was found in all its collections."""
        kept = {
            str(key, "utf-8"): Usage.from_bytes(value)
            for key, value in self._store.scan(self._txn, "tenants", b"")
        }
        for tenant_id in sorted(kept.keys() | self._usage.keys()):
            found = kept.get(tenant_id, Usage())
            wanted = self._usage.get(tenant_id, Usage())._replace(sequence=found.sequence)
            for problem in _differences(found, wanted):
                yield f"tenant {tenant_id}: {problem}"

    def _head(self, slot: bytes) -> DocumentRecord:
        value = self._txn.get(slot, db=self._store.db["documents"])
        return DocumentRecord.from_bytes(b"" if value is None else value)

    def _document(
        self,
        number: int,
        ordinal: int,
        leaf_count: int,
        slot: bytes,
        head: DocumentRecord,
        settings: CollectionSettings,
    ) -> Iterator[str]:
        self._documents += 1
        self._leaves += leaf_count
        db, txn = self._store.db, self._txn
        named = txn.get(schema.document_id(number, head.document_id), db=db["document_ids"])
        if named is None or schema.read_u64(named) != ordinal:
            yield "its id names another ordinal"
        if head.collection != number or head.leaf_count != leaf_count:
            yield "head and ordinal entry differ"
        if not all(map(self._is_stored, terms_of(head), repeat(ordinal))):
            yield "filters do not find it by all of its values"
        text, tree, vectors = (txn.get(slot, db=db[name]) for name in ("texts", "trees", "vectors"))
        if text is None or tree is None or vectors is None:
            yield "text, tree or vectors are missing"
            return
        yield from _text_problems(text, head)
        yield from _tree_problems(tree, head, settings)
        yield from _vector_problems(vectors, leaf_count, settings.dimension)
        takes = stored_bytes(head, terms_of(head), len(tree))
        if takes != head.stored_bytes:
            yield f"it takes {takes} bytes, head says {head.stored_bytes}"

    def _is_stored(self, term: bytes, ordinal: int) -> bool:
        with self._txn.cursor(db=self._store.db["terms"]) as cursor:
            return bool(cursor.set_key_dup(term, schema.u64(ordinal)))

    def _count(self, database: str, number: int) -> int:
        """Entries of a collection."""
        return sum(1 for _ in self._store.scan(self._txn, database, schema.u32(number)))

    def _ids(self, number: int, documents: int) -> Iterator[str]:
        named = self._count("document_ids", number)
        if named != documents:
            yield f"{named} document ids for {documents} documents"

    def _waiting(self, number: int, counters: Counters) -> Iterator[str]:
        """Documents that wait for their summaries; they live, and are as many as counted."""
        ordinals = [
            schema.read_in_collection(key)[1]
            for key, _ in self._store.scan(self._txn, "unsummarised", schema.u32(number))
        ]
        if len(ordinals) != counters.unsummarised:
            yield f"{len(ordinals)} documents wait for summaries, not {counters.unsummarised}"
        for ordinal in ordinals:
            if self._place(number, ordinal) is None:
                yield f"ordinal {ordinal} waits for summaries and does not live"

    def _summaries(self, number: int, of: int) -> Iterator[str]:
        """Each document of summaries is of one that lives, and of leaves that it has."""
        documents = 0
        for key, value in self._store.scan(self._txn, "summarised", schema.u32(number)):
            ordinal = schema.read_in_collection(key)[1]
            summarised = Summarised.from_bytes(value)
            own, place = self._place(number, ordinal), self._place(of, summarised.ordinal)
            documents += 1
            if own is None or place is None:
                yield f"ordinal {ordinal} or what it summarises does not live"
            elif own != 1 + len(summarised.sections):
                sections = len(summarised.sections)
                yield f"ordinal {ordinal} has {own} summaries of {sections} sections"
            elif not _are_ranges_within(summarised.sections, place):
                yield f"ordinal {ordinal} summarises leaves that are not there, or twice"
        counted = self._count("ordinals", number)
        if counted != documents:
            yield f"{counted} documents of summaries, of {documents} it is said what of"

    def _place(self, number: int, ordinal: int) -> int | None:
        """The leaf count of a document that lives."""
        key = schema.in_collection(number, ordinal)
        value = self._txn.get(key, db=self._store.db["ordinals"])
        return None if value is None else schema.read_document_entry(value)[0]

    def _log(self, number: int, counters: Counters) -> Iterator[str]:
        entries = [
            schema.read_in_collection(key)[1]
            for key, _ in self._store.scan(self._txn, "changes", schema.u32(number))
        ]
        if len(entries) != counters.log_entries:
            yield f"{len(entries)} log entries, counters say {counters.log_entries}"
        if entries and entries[-1] != counters.sequence:
            yield f"last log entry is {entries[-1]}, counters say {counters.sequence}"

    def _manifest(
        self, number: int, settings: CollectionSettings, counters: Counters
    ) -> Iterator[str]:
        covered, buried = 0, 0
        counted = {
            schema.read_in_collection(key)[1]: schema.read_u64(value)
            for key, value in self._store.scan(self._txn, "deleted_leaves", schema.u32(number))
        }
        for record in listed_segments(self._store, self._txn, number):
            self._segments += 1
            if record.first_ordinal <= covered:
                yield f"segment {record.segment_id} covers ordinals of the one before"
            yield from self._uncovered(number, covered, record.first_ordinal - 1)
            covered = record.last_ordinal
            dead = self._dead_leaves(number, record)
            buried += len(dead)
            said = counted.pop(record.last_ordinal, None)
            if sum(dead.values()) != said:
                yield (
                    f"segment {record.segment_id}: {sum(dead.values())} dead leaves, "
                    f"its counter says {said}"
                )
            for problem in self._segment(number, settings, record, dead):
                yield f"segment {record.segment_id}: {problem}"
        if covered > counters.sealed_ordinal:
            yield f"segments cover ordinal {covered}, counters say {counters.sealed_ordinal}"
        yield from self._uncovered(number, covered, counters.sealed_ordinal)
        if buried != self._count("tombstones", number):
            yield "it has dead documents that no segment holds"
        if counted:
            yield f"dead leaves are counted for segments that are not listed: {sorted(counted)}"

    def _uncovered(self, number: int, after: int, last: int) -> Iterator[str]:
        """Living documents that should be in a segment and are in none."""
        for ordinal, _ in leaves.living_ordinals(self._store, self._txn, number, after, last):
            yield f"no segment covers ordinal {ordinal}, which is not in the tail either"

    def _dead_leaves(self, number: int, record: SegmentRecord) -> dict[int, int]:
        """Leaf counts of the dead documents in the segment's range, by ordinal."""
        start = schema.in_collection(number, record.first_ordinal)
        end = schema.in_collection(number, record.last_ordinal)
        entries = self._store.scan(self._txn, "tombstones", schema.u32(number), start)
        return {
            schema.read_in_collection(key)[1]: schema.read_u32(value)
            for key, value in takewhile(lambda entry: bytes(entry[0]) <= end, entries)
        }

    def _segment(
        self,
        number: int,
        settings: CollectionSettings,
        record: SegmentRecord,
        dead: Mapping[int, int],
    ) -> Iterator[str]:
        if (record.embedder, record.dimension) != (settings.embedder, settings.dimension):
            yield "its embedder or dimension is not the collection's"
        try:
            loaded = segment_files.load(self._store.segments, record)
        except segment_files.DamagedSegment as error:
            if self._is_still_listed(number, record):
                yield str(error)
            return
        held = dict(leaves.covered_ordinals(self._store, self._txn, number, record))
        for ordinal in held.keys() & dead.keys():
            yield f"ordinal {ordinal} is both living and dead"
        held.update(dead)
        found = Contents.of(loaded.rows.labels)
        if dict(zip(found.ordinals.tolist(), found.counts.tolist(), strict=True)) != held:
            yield "its leaves are not those of the living and dead documents in its range"

    def _is_still_listed(self, number: int, record: SegmentRecord) -> bool:
        """Files of a segment that was replaced during a long check may be gone."""
        with self._store.read() as later:
            return record in listed_segments(self._store, later, number)

    def _names(self) -> Iterator[str]:
        for key, value in self._store.scan(self._txn, "collection_names", b""):
            if not collection_exists(self._store, self._txn, schema.read_u32(value)):
                yield f"collection name {bytes(key)!r} names no collection"

    def _strays(self) -> Iterator[str]:
        """Entries of collections neither living nor dropped, and of ordinals not listed."""
        databases = ("collections", "deleted_collections")
        known = {bytes(key) for name in databases for key in self._keys(name)}
        for name in _BY_COLLECTION:
            for key in self._keys(name):
                if bytes(key[:_COLLECTION_BYTES]) not in known:
                    number = schema.read_u32(key[:_COLLECTION_BYTES])
                    yield f"{name} has an entry of collection {number}, which does not exist"
        yield from self._slots()
        last_commit = max(map(schema.read_u64, self._keys("commits")), default=0)
        if last_commit > self._store.number(self._txn, schema.COMMIT_CURSOR):
            yield f"commit {last_commit} is past the store's last"
        ordinals = (schema.read_in_collection(key)[1] for key in self._keys("ordinals"))
        last = max(ordinals, default=0)
        if last > self._store.number(self._txn, schema.LAST_ORDINAL):
            yield f"ordinal {last} is past the store's last; it would be used twice"

    def _slots(self) -> Iterator[str]:
        """Each slot is one document's, or free; and each that was ever taken is either."""
        taken = [
            schema.read_document_entry(value)[1]
            for _, value in self._store.scan(self._txn, "ordinals", b"")
        ]
        used, free = set(taken), {bytes(key) for key in self._keys("free_slots")}
        if len(used) != len(taken):
            yield "two documents lie in one slot"
        for slot in sorted(used & free):
            yield f"slot {schema.read_u64(slot)} is free and a document's"
        for name in ("documents", "texts", "trees", "vectors"):
            for key in self._keys(name):
                if bytes(key) not in used:
                    yield f"{name} has slot {schema.read_u64(key)}, which no document has"
        last = self._store.number(self._txn, schema.LAST_SLOT)
        if used | free != {schema.u64(slot) for slot in range(1, last + 1)}:
            yield f"{len(used | free)} slots are taken or free; they should be 1 to {last}"

    def _keys(self, database: str) -> Iterator[memoryview]:
        return (key for key, _ in self._store.scan(self._txn, database, b""))


def _sequence_problems(
    store: Store, txn: Txn, number: int, tenant_id: str, counters: Counters
) -> Iterator[str]:
    """Sequences of a collection that break their order, up to the tenant's last one."""
    last = read_usage(store, txn, tenant_id).sequence
    if counters.sequence > last:
        yield f"sequence {counters.sequence} is past its tenant's last, {last}"
    if counters.sealed_sequence > counters.sequence:
        yield f"sealed sequence {counters.sealed_sequence} is past the last, {counters.sequence}"
    first = next(store.scan(txn, "changes", schema.u32(number)), None)
    if first is not None and schema.read_in_collection(first[0])[1] <= counters.log_start:
        yield f"the log has an entry of before {counters.log_start}, where it should begin"
    for record in listed_segments(store, txn, number):
        if record.covered_sequence > counters.sealed_sequence:
            yield (
                f"segment {record.segment_id} covers sequence {record.covered_sequence}, "
                f"counters say {counters.sealed_sequence}"
            )


def _are_ranges_within(ranges: Sequence[range], count: int) -> bool:
    """Whether they are not empty, follow each other, and end by `count`."""
    bounds = [bound for each in ranges for bound in (each.start, each.stop)]
    return all(ranges) and bounds == sorted(bounds) and all(0 <= bound <= count for bound in bounds)


def _differences(stored: Numbers, counted: Numbers) -> Iterator[str]:
    for name, wanted, found in zip(stored._fields, counted, stored, strict=True):
        if wanted != found:
            yield f"counter {name} is {found}, counted {wanted}"


def _text_problems(text: memoryview, head: DocumentRecord) -> Iterator[str]:
    if len(text) != head.text_bytes:
        yield f"text has {len(text)} bytes, head says {head.text_bytes}"
    try:
        str(text, "utf-8")
    except UnicodeDecodeError as error:
        yield f"text is not UTF-8: {error}"


def _tree_problems(
    value: memoryview, head: DocumentRecord, settings: CollectionSettings
) -> Iterator[str]:
    try:
        tree = Tree(value)
    except ValueError as error:
        yield f"tree is damaged: {error}"
        return
    if tree.counts != head.chunks_per_level:
        yield f"tree has {tree.counts} chunks, head says {head.chunks_per_level}"
    broken = tree.problems(settings.tree.level_sizes)
    yield from broken
    if not broken:
        yield from _outline_problems(tree, head)


def _outline_problems(tree: Tree, head: DocumentRecord) -> Iterator[str]:
    """Compares a sound tree with the text and the sections it lies over."""
    if int(tree.level(0)["byte_end"][-1]) != head.text_bytes:
        yield "tree does not cover the text"
    used = np.concatenate([tree.level(level)["section"] for level in range(len(tree.counts))])
    if (used[used != NONE] >= len(head.sections)).any():
        yield f"a chunk is in a section past the document's {len(head.sections)}"


def _vector_problems(value: memoryview, leaf_count: int, dimension: int) -> Iterator[str]:
    if len(value) != leaf_count * dimension * 4:
        yield f"{len(value)} bytes of vectors for {leaf_count} leaves of dimension {dimension}"
        return
    norms = np.linalg.norm(np.frombuffer(value, "<f4").reshape(leaf_count, dimension), axis=1)
    if not (np.abs(norms - 1) < _UNIT_TOLERANCE).all():
        yield "a vector is not of unit length"
