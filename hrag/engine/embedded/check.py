"""Walks a whole store and proves its invariants.

Reads everything in one transaction and compares what is stored twice: counters with what
they count, ids with ordinals, heads with trees and texts, vectors with leaves, manifest
with files. Finds, never mends.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hrag.engine.embedded import keys, leaves, segments
from hrag.engine.embedded.lookups import collection_exists, listed_segments, read_counters
from hrag.engine.embedded.records import CollectionRecord, Counters, DocumentHead
from hrag.engine.embedded.store import Store, Txn
from hrag.tree import Tree
from hrag.types import CollectionSettings

_UNIT_TOLERANCE = 1e-3  # float32 rounding over thousands of dimensions stays far below.


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
        self._seen: set[int] = set()

    def report(self) -> Report:
        problems = [*self._all_collections(), *self._names(), *self._orphans()]
        return Report(
            self._collections, self._documents, self._leaves, self._segments, tuple(problems)
        )

    def _all_collections(self) -> Iterator[str]:
        for key, value in self._store.scan(self._txn, "collections", b""):
            number = keys.read_u32(key)
            record = CollectionRecord.from_bytes(value)
            self._collections += 1
            place = f"collection {record.tenant_id}/{record.name}"
            for problem in self._collection(number, record.settings):
                yield f"{place}: {problem}"

    def _collection(self, number: int, settings: CollectionSettings) -> Iterator[str]:
        stored = read_counters(self._store, self._txn, number)
        counted = stored._replace(
            documents=0, chunks=0, leaves=0, tail_leaves=0, tokens=0, text_bytes=0, vector_bytes=0
        )
        for ordinal, leaf_count in leaves.living_ordinals(self._store, self._txn, number):
            self._seen.add(ordinal)
            value = self._txn.get(keys.u64(ordinal), db=self._store.db["heads"])
            if value is None:
                yield f"ordinal {ordinal} has no head"
                continue
            head = DocumentHead.from_bytes(value)
            counted = counted.plus(head, ordinal, 1)
            for problem in self._document(number, ordinal, leaf_count, head, settings):
                yield f"document {head.document_id} (ordinal {ordinal}): {problem}"
        yield from _differences(stored, counted)
        yield from self._ids(number, counted.documents)
        yield from self._log(number, stored)
        yield from self._manifest(number, stored)

    def _document(
        self,
        number: int,
        ordinal: int,
        leaf_count: int,
        head: DocumentHead,
        settings: CollectionSettings,
    ) -> Iterator[str]:
        self._documents += 1
        self._leaves += leaf_count
        key, db, txn = keys.u64(ordinal), self._store.db, self._txn
        named = txn.get(keys.document_id(number, head.document_id), db=db["document_ids"])
        if named is None or keys.read_u64(named) != ordinal:
            yield "its id names another ordinal"
        if head.collection != number or head.leaf_count != leaf_count:
            yield "head and ordinal entry differ"
        text, tree, vectors = (txn.get(key, db=db[name]) for name in ("texts", "trees", "vectors"))
        if text is None or tree is None or vectors is None:
            yield "text, tree or vectors are missing"
            return
        yield from _text_problems(text, head)
        yield from _tree_problems(tree, head, settings)
        yield from _vector_problems(vectors, leaf_count, settings.dimension)

    def _ids(self, number: int, documents: int) -> Iterator[str]:
        named = sum(1 for _ in self._store.scan(self._txn, "document_ids", keys.u32(number)))
        if named != documents:
            yield f"{named} document ids for {documents} documents"

    def _log(self, number: int, counters: Counters) -> Iterator[str]:
        entries = [
            keys.read_in_collection(key)[1]
            for key, _ in self._store.scan(self._txn, "changes", keys.u32(number))
        ]
        if len(entries) != counters.log_entries:
            yield f"{len(entries)} log entries, counters say {counters.log_entries}"
        if entries and entries[-1] != counters.sequence:
            yield f"last log entry is {entries[-1]}, counters say {counters.sequence}"
        if counters.sequence > self._store.number(self._txn, keys.SEQUENCE):
            yield f"sequence {counters.sequence} is past the store's"

    def _manifest(self, number: int, counters: Counters) -> Iterator[str]:
        covered = 0
        for record in listed_segments(self._store, self._txn, number):
            self._segments += 1
            if record.first_ordinal <= covered:
                yield f"segment {record.segment_id} covers ordinals of the one before"
            covered = record.last_ordinal
            try:
                segments.load(self._store.segments, record)
            except segments.DamagedSegment as error:
                yield f"segment {record.segment_id}: {error}"
        if covered != counters.sealed_ordinal:
            yield f"segments cover ordinal {covered}, counters say {counters.sealed_ordinal}"

    def _names(self) -> Iterator[str]:
        for key, value in self._store.scan(self._txn, "collection_names", b""):
            if not collection_exists(self._store, self._txn, keys.read_u32(value)):
                yield f"collection name {bytes(key)!r} names no collection"

    def _orphans(self) -> Iterator[str]:
        """Entries of ordinals that no living or dropped collection lists."""
        for dropped, _ in self._store.scan(self._txn, "dropped", b""):
            number = keys.read_u32(dropped)
            self._seen.update(o for o, _ in leaves.living_ordinals(self._store, self._txn, number))
        for database in ("heads", "texts", "trees", "vectors"):
            for key, _ in self._store.scan(self._txn, database, b""):
                if keys.read_u64(key) not in self._seen:
                    yield f"{database} has ordinal {keys.read_u64(key)}, which no document has"


def _differences(stored: Counters, counted: Counters) -> Iterator[str]:
    for name, wanted, found in zip(Counters._fields, counted, stored, strict=True):
        if wanted != found:
            yield f"counter {name} is {found}, counted {wanted}"


def _text_problems(text: memoryview, head: DocumentHead) -> Iterator[str]:
    if len(text) != head.text_bytes:
        yield f"text has {len(text)} bytes, head says {head.text_bytes}"
    try:
        str(text, "utf-8")
    except UnicodeDecodeError as error:
        yield f"text is not UTF-8: {error}"


def _tree_problems(
    value: memoryview, head: DocumentHead, settings: CollectionSettings
) -> Iterator[str]:
    try:
        tree = Tree(value)
    except ValueError as error:
        yield f"tree is damaged: {error}"
        return
    if tree.counts != head.chunks_per_level:
        yield f"tree has {tree.counts} chunks, head says {head.chunks_per_level}"
    if int(tree.level(0)["byte_end"][-1]) != head.text_bytes:
        yield "tree does not cover the text"
    yield from tree.problems(settings.tree.level_sizes)


def _vector_problems(value: memoryview, leaf_count: int, dimension: int) -> Iterator[str]:
    if len(value) != leaf_count * dimension * 4:
        yield f"{len(value)} bytes of vectors for {leaf_count} leaves of dimension {dimension}"
        return
    norms = np.linalg.norm(np.frombuffer(value, "<f4").reshape(leaf_count, dimension), axis=1)
    if not (np.abs(norms - 1) < _UNIT_TOLERANCE).all():
        yield "a vector is not of unit length"
