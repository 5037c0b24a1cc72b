"""Rebuilds the lexical index of collections with the newest version of their analyzer.

A collection keeps the version of its analyzer with which it was created. Until it is reindexed, its
documents are indexed and its queries are analysed by that version. One transaction computes the
terms of all its documents again, replaces its lexical index, and stores the name of the new
version. So each search uses either the old version with the old index, or the new version with the
new index.

Searches continue meanwhile, and the tenant's writers wait until the transaction ends. A writer may
have computed the terms of a document by the old version before it waited. Then it computes the
terms again (see `TenantTransaction`).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from hrag.engine.common.records import DocumentRecord
from hrag.engine.postgres.indexes.lexical_index import MIN_PART_LEAVES, build_part
from hrag.engine.postgres.indexes.term_vectors import leaf_terms_of, packed
from hrag.engine.postgres.store.advisory_locks import lock_step
from hrag.engine.postgres.store.arrays import bigints, binaries, integers
from hrag.engine.postgres.store.cluster import hold_placement
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id
from hrag.engine.reports import ReindexedCollection
from hrag.text.analysis import LeafTerms, upgraded
from hrag.values.collections import CollectionSettings
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree

# One statement reads at most this many documents, whose texts are in memory together.
_PAGE = 100
# Parts of the lexical index are built as soon as this many leaves wait for it. So the term vectors
# of a large collection are not all stored before they are read again.
_LEAVES_AT_ONCE = 8192

_COLLECTIONS = """
SELECT tenant_id, collection_id, record->'settings'->>'analyzer' FROM hrag.collections
ORDER BY tenant_id, collection_id
"""
_LOCK = "SELECT FROM hrag.tenants WHERE tenant_id = %(tenant_id)s FOR UPDATE"
_CLEAR = tuple(
    f"DELETE FROM hrag.{table} "
    "WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s"
    for table in ("postings", "postings_parts", "tombstones", "term_vectors")
)
_DOCUMENTS = """
SELECT ordinal, record, tree, body FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND ordinal > %(after)s
ORDER BY ordinal LIMIT %(page)s
"""
_ADD_VECTORS = """
INSERT INTO hrag.term_vectors (tenant_id, collection_id, ordinal, leaf_count, vector)
SELECT t.tenant_id, %(collection_id)s, ordinal, leaf_count, vector FROM hrag.tenants t,
  unnest(%(ordinals)b::bigint[], %(leaf_counts)b::integer[], %(vectors)b::bytea[])
  AS new (ordinal, leaf_count, vector)
WHERE t.tenant_id = %(tenant_id)s
"""
_SET_TERM_COUNTS = """
UPDATE hrag.documents AS d SET term_count = new.term_count
FROM unnest(%(ordinals)b::bigint[], %(term_counts)b::bigint[]) AS new (ordinal, term_count)
WHERE d.tenant_id = %(tenant_id)s AND d.collection_id = %(collection_id)s
  AND d.ordinal = new.ordinal AND d.term_count <> new.term_count
"""
_SET_ANALYZER = """
UPDATE hrag.collections SET terms = %(terms)s,
  record = jsonb_set(record, '{settings,analyzer}', to_jsonb(%(analyzer)s::text))
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""


def reindex(database: PostgresDatabase) -> Iterator[ReindexedCollection]:
    """Reindexes the collections whose analyzer has a newer version; yields a report on each one.

    Summary collections are among them. Each collection is reindexed in one transaction. A
    collection with a damaged document is not changed. After all other collections are reindexed,
    raises DataLoss with the errors of the damaged collections.
    """
    damaged: list[str] = []
    reindexed = 0
    with database.read() as connection:
        rows = connection.execute(_COLLECTIONS).fetchall()
    for tenant_id, number, analyzer in rows:
        if analyzer == upgraded(analyzer):
            continue
        try:
            report = _reindex_one(database, tenant_id, number)
        except DataLoss as error:
            damaged.append(error.message)
            continue
        if report is not None:
            reindexed += 1
            yield report
    if damaged:
        count = len(damaged) + reindexed
        summary = f"{len(damaged)} of {count} collections were not reindexed:"
        raise DataLoss("\n".join((summary, *damaged)))


def _reindex_one(
    database: PostgresDatabase, tenant_id: str, number: int
) -> ReindexedCollection | None:
    """Reindexes one collection; returns None if it was deleted or is up to date."""
    with database.write() as connection:
        hold_placement(connection, tenant_id)
        connection.execute(_LOCK, {"tenant_id": tenant_id})
        lock_step(connection, tenant_id, number)
        collection = open_by_id(connection, tenant_id, number)
        if collection is None:
            return None
        name = upgraded(collection.settings.analyzer)
        if name == collection.settings.analyzer:
            return None
        for statement in _CLEAR:
            connection.execute(statement, collection.key)
        terms = _index_all(connection, collection, replace(collection.settings, analyzer=name))
        connection.execute(_SET_ANALYZER, {**collection.key, "terms": terms, "analyzer": name})
    return ReindexedCollection(tenant_id, collection.record.name, collection.leaves)


def _index_all(
    connection: Connection, collection: OpenedCollection, settings: CollectionSettings
) -> int:
    """Writes the lexical index of all documents of a collection, by the analyzer in `settings`.

    Returns the count of occurrences of terms in all leaves.
    """
    terms = waiting_leaves = 0
    for page in _pages(connection, collection, settings):
        terms += sum(document.term_count for document in page)
        waiting_leaves += sum(document.leaf_count for document in page)
        ordinals = bigints([document.ordinal for document in page])
        vectors = {
            "leaf_counts": integers([document.leaf_count for document in page]),
            "vectors": binaries([packed(document.terms) for document in page]),
        }
        connection.execute(_ADD_VECTORS, {**collection.key, "ordinals": ordinals, **vectors})
        counts = bigints([document.term_count for document in page])
        connection.execute(
            _SET_TERM_COUNTS, {**collection.key, "ordinals": ordinals, "term_counts": counts}
        )
        while waiting_leaves >= _LEAVES_AT_ONCE:
            waiting_leaves -= build_part(connection, collection.key, 1)
    while build_part(connection, collection.key, MIN_PART_LEAVES):
        pass
    return terms


class _AnalysedDocument(NamedTuple):
    """The terms of the leaves of the document version with this ordinal."""

    ordinal: int
    terms: LeafTerms

    @property
    def leaf_count(self) -> int:
        return len(self.terms.lengths)

    @property
    def term_count(self) -> int:
        return int(self.terms.lengths.sum())


def _pages(
    connection: Connection, collection: OpenedCollection, settings: CollectionSettings
) -> Iterator[list[_AnalysedDocument]]:
    """Yields the documents of a collection in ascending order of ordinals, in lists.

    Raises DataLoss if a document is damaged.
    """
    after = 0
    while True:
        parameters = {**collection.key, "after": after, "page": _PAGE}
        rows = connection.execute(_DOCUMENTS, parameters, binary=True).fetchall()
        if rows:
            after = rows[-1][0]
            yield [_analysed(collection, settings, *row) for row in rows]
        if len(rows) < _PAGE:
            return


def _analysed(
    collection: OpenedCollection,
    settings: CollectionSettings,
    ordinal: int,
    packed_record: bytes,
    tree: bytes,
    body: bytes,
) -> _AnalysedDocument:
    try:
        record = DocumentRecord.from_bytes(packed_record)
        terms = leaf_terms_of(record, str(body, "utf-8"), Tree(tree), settings)
    except (ValueError, KeyError, TypeError) as error:
        place = f"'{collection.tenant_id}/{collection.record.name}'"
        raise DataLoss(
            f"the document with the ordinal {ordinal} of collection {place} is damaged: {error}"
        ) from error
    return _AnalysedDocument(ordinal, terms)
