"""Walks a whole store and proves its invariants.

Reads everything in one transaction and compares what is stored twice: counters with what
they count, ids with ordinals, heads with trees and texts, vectors with leaves, manifest
with files. Finds, never mends.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hrag.engine.embedded import keys, leaves, segments
from hrag.engine.embedded.lookups import collection_exists, listed_segments
from hrag.engine.embedded.records import (
    CollectionRecord,
    Counters,
    DocumentHead,
    SegmentRecord,
)
from hrag.engine.embedded.store import Store, Txn
from hrag.errors import InvalidArgument
from hrag.tree import NONE, Tree
from hrag.types import CollectionSettings

_COLLECTION_BYTES = 4  # What the key of anything in a collection begins with.
_UNREADABLE = (ValueError, KeyError, TypeError, InvalidArgument)
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

    def report(self) -> Report:
        problems = [*self._all_collections(), *self._names(), *self._strays()]
        return Report(
            self._collections, self._documents, self._leaves, self._segments, tuple(problems)
        )

    def _all_collections(self) -> Iterator[str]:
        for key, value in self._store.scan(self._txn, "collections", b""):
            number = keys.read_u32(key)
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
        name = keys.collection_name(record.tenant_id, record.name)
        named = self._txn.get(name, db=self._store.db["collection_names"])
        if named is None or keys.read_u32(named) != number:
            yield "its name names another collection"
        counters = self._txn.get(keys.u32(number), db=self._store.db["counters"])
        if counters is None:
            yield "it has no counters"
            return
        stored = Counters.from_bytes(counters)
        yield from self._all_documents(number, record.settings, stored)
        yield from self._log(number, stored)
        yield from self._manifest(number, record.settings, stored)

    def _all_documents(
        self, number: int, settings: CollectionSettings, stored: Counters
    ) -> Iterator[str]:
        counted = stored._replace(
            documents=0, chunks=0, leaves=0, tail_leaves=0, tokens=0, text_bytes=0, vector_bytes=0
        )
        for ordinal, leaf_count in leaves.living_ordinals(self._store, self._txn, number):
            try:
                head = self._head(ordinal)
            except _UNREADABLE as error:
                yield f"ordinal {ordinal}: its head is missing or damaged: {error!r}"
                continue
            counted = counted.plus(head, ordinal, 1)
            for problem in self._document(number, ordinal, leaf_count, head, settings):
                yield f"document {head.document_id} (ordinal {ordinal}): {problem}"
        yield from _differences(stored, counted)
        yield from self._ids(number, counted.documents)

    def _head(self, ordinal: int) -> DocumentHead:
        value = self._txn.get(keys.u64(ordinal), db=self._store.db["heads"])
        return DocumentHead.from_bytes(b"" if value is None else value)

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

    def _manifest(
        self, number: int, settings: CollectionSettings, counters: Counters
    ) -> Iterator[str]:
        covered = 0
        for record in listed_segments(self._store, self._txn, number):
            self._segments += 1
            if record.first_ordinal <= covered:
                yield f"segment {record.segment_id} covers ordinals of the one before"
            covered = record.last_ordinal
            for problem in self._segment(number, settings, record):
                yield f"segment {record.segment_id}: {problem}"
        if covered != counters.sealed_ordinal:
            yield f"segments cover ordinal {covered}, counters say {counters.sealed_ordinal}"

    def _segment(
        self, number: int, settings: CollectionSettings, record: SegmentRecord
    ) -> Iterator[str]:
        if (record.embedder, record.dimension) != (settings.embedder, settings.dimension):
            yield "its embedder or dimension is not the collection's"
        try:
            loaded = segments.load(self._store.segments, record)
        except segments.DamagedSegment as error:
            yield str(error)
            return
        covered = [
            leaves.labels_of(ordinal, count)
            for ordinal, count in leaves.living_ordinals(
                self._store, self._txn, number, record.first_ordinal - 1
            )
            if ordinal <= record.last_ordinal
        ]
        if covered and not np.isin(np.concatenate(covered), loaded.rows.labels).all():
            yield "it lacks leaves of documents it covers"

    def _names(self) -> Iterator[str]:
        for key, value in self._store.scan(self._txn, "collection_names", b""):
            if not collection_exists(self._store, self._txn, keys.read_u32(value)):
                yield f"collection name {bytes(key)!r} names no collection"

    def _strays(self) -> Iterator[str]:
        """Entries of collections neither living nor dropped, and of ordinals not listed."""
        known = {bytes(key) for name in ("collections", "dropped") for key in self._keys(name)}
        for name in ("counters", "document_ids", "ordinals", "changes", "segments"):
            for key in self._keys(name):
                if bytes(key[:_COLLECTION_BYTES]) not in known:
                    number = keys.read_u32(key[:_COLLECTION_BYTES])
                    yield f"{name} has an entry of collection {number}, which does not exist"
        listed = {keys.read_in_collection(key)[1] for key in self._keys("ordinals")}
        for name in ("heads", "texts", "trees", "vectors"):
            for key in self._keys(name):
                if keys.read_u64(key) not in listed:
                    yield f"{name} has ordinal {keys.read_u64(key)}, which no document has"
        if max(listed, default=0) > self._store.number(self._txn, keys.LAST_ORDINAL):
            yield f"ordinal {max(listed)} is past the store's last; it would be used twice"

    def _keys(self, database: str) -> Iterator[memoryview]:
        return (key for key, _ in self._store.scan(self._txn, database, b""))


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
    broken = tree.problems(settings.tree.level_sizes)
    yield from broken
    if not broken:
        yield from _outline_problems(tree, head)


def _outline_problems(tree: Tree, head: DocumentHead) -> Iterator[str]:
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
