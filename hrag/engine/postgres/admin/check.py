"""Checks that the documents, leaves, terms and counters of each collection agree.

Each collection is read in one snapshot, one page of documents at a time. The check does not
look for flipped bits, because PostgreSQL's data checksums detect them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from psycopg import sql

from hrag.engine.common.filter_terms import terms_of
from hrag.engine.common.labels import ordinals_of
from hrag.engine.common.records import DocumentRecord, Summarised
from hrag.engine.postgres.admin.check_store import problems_of_store
from hrag.engine.postgres.indexes.term_vectors import leaf_terms_of
from hrag.engine.postgres.search.sources.lexical_source import matches_of
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.leaf_tables import tables_of
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id
from hrag.engine.reports import CheckReport
from hrag.text.analysis import LeafTerms
from hrag.values.tree import Tree

# One statement reads at most this many documents: a page.
_PAGE = 100

_COLLECTIONS = "SELECT tenant_id, collection_id FROM hrag.collections ORDER BY 1, 2"
_COUNTERS = """
SELECT documents, chunks, leaves, tokens, text_bytes, vector_bytes, stored_bytes, terms,
  unsummarised FROM hrag.collections
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""
_DOCUMENTS = """
SELECT ordinal, record, tree, body, octet_length(original), encode(sha256(original), 'hex'),
  term_count, is_unsummarised, ARRAY(
    SELECT term FROM hrag.terms t WHERE t.tenant_id = %(tenant_id)s
    AND t.collection_id = d.collection_id AND t.ordinal = d.ordinal ORDER BY term)
FROM hrag.documents d WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal > %(after)s ORDER BY ordinal LIMIT %(page)s
"""
_LEAVES_OF_DOCUMENT = """
SELECT leaf, above, vector_dims(embedding) FROM {table}
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND ordinal = %(ordinal)s
"""
_STRAY_LEAVES = """
SELECT DISTINCT ordinal FROM {table} AS stored
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND NOT EXISTS (
    SELECT FROM hrag.documents d WHERE d.tenant_id = %(tenant_id)s
    AND d.collection_id = %(collection_id)s AND d.ordinal = stored.ordinal)
"""
_STRAY = sql.SQL("""
SELECT DISTINCT ordinal FROM hrag.{table} AS stored
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND {condition} EXISTS (
    SELECT FROM hrag.documents d WHERE d.tenant_id = %(tenant_id)s
    AND d.collection_id = %(collection_id)s AND d.ordinal = stored.ordinal)
""")
_STRAYS = {
    name: _STRAY.format(table=sql.Identifier(name), condition=sql.SQL(condition))
    for name, condition in (("terms", "NOT"), ("term_vectors", "NOT"), ("tombstones", ""))
}
_TOMBSTONES = """
SELECT ordinal FROM hrag.tombstones t
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND NOT EXISTS (
    SELECT FROM hrag.postings_parts p WHERE p.tenant_id = t.tenant_id
    AND p.collection_id = t.collection_id AND t.ordinal BETWEEN p.first_ordinal AND p.last_ordinal)
"""
_PARTS = """
SELECT part, (SELECT count(*) FROM hrag.postings_parts o WHERE o.tenant_id = %(tenant_id)s
    AND o.collection_id = p.collection_id AND o.part <> p.part
    AND o.first_ordinal <= p.last_ordinal AND o.last_ordinal >= p.first_ordinal)
FROM hrag.postings_parts p
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""
_PARTS_OF_POSTINGS = """
SELECT DISTINCT part FROM hrag.postings
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""
_SUMMARISED = """
SELECT s.document_id, s.summarised, d.ordinal, d.is_unsummarised FROM hrag.documents s
LEFT JOIN hrag.documents d ON d.tenant_id = s.tenant_id AND d.collection_id = %(summarises)s
  AND d.document_id = s.document_id
WHERE s.tenant_id = %(tenant_id)s AND s.collection_id = %(collection_id)s
"""


def check(database: PostgresDatabase) -> CheckReport:
    """Checks the store and the collections of all tenants.

    Returns the counts of collections, documents and leaves, and a message for each problem. The
    report has the count of collections with a home in the field `segments`.
    """
    documents = leaves = parts = 0
    problems: list[str] = []
    with database.read() as connection:
        numbers = connection.execute(_COLLECTIONS).fetchall()
    problems += _problems_of_store(database)
    for tenant_id, number in numbers:
        with database.read() as connection:
            collection = open_by_id(connection, tenant_id, number)
            if collection is None:  # It was deleted after _COLLECTIONS listed it.
                continue
            collection_check = _CollectionCheck(connection, collection)
            problems += collection_check.problems()
        documents += collection_check.totals[0]
        leaves += collection_check.totals[2]
        parts += collection.home is not None
    return CheckReport(len(numbers), documents, leaves, parts, tuple(problems))


def _problems_of_store(database: PostgresDatabase) -> list[str]:
    """Returns the problems of the store as a whole that two snapshots have.

    On a cluster, a snapshot is one for each node, and they differ by the moment at which each was
    taken. What was changed between these moments looks like a problem, but only once.
    """
    with database.read() as connection:
        problems = list(problems_of_store(connection))
    if not problems:
        return []
    with database.read() as connection:
        again = set(problems_of_store(connection))
    return [problem for problem in problems if problem in again]


class _CollectionCheck:
    """The check of one collection in one snapshot.

    `totals` are the counters that the collection should have: sums over its documents, in the order
    of the columns that the statement _COUNTERS reads.
    """

    def __init__(self, connection: Connection, collection: OpenedCollection) -> None:
        self._connection = connection
        self._collection = collection
        self.totals = [0] * 9
        self._terms_by_ordinal: dict[int, tuple[str, LeafTerms]] = {}

    def problems(self) -> list[str]:
        """Returns a message for each problem; each message names the tenant and the collection."""
        problems = list(self._check_documents())
        problems += self._find_strays()
        problems += self._check_parts()
        problems += self._check_summaries()
        counters = self._connection.execute(_COUNTERS, self._collection.key).fetchone()
        if list(counters or ()) != self.totals:
            problems.append(
                f"its counters are {counters}, but its documents add up to {tuple(self.totals)}"
            )
        record = self._collection.record
        kind = "summaries of " if record.summarises else ""
        place = f"{kind}collection {record.tenant_id}/{record.name}: "
        return [place + problem for problem in problems]

    def _check_documents(self) -> Iterator[str]:
        after = 0
        while True:
            page = {**self._collection.key, "after": after, "page": _PAGE}
            rows = self._connection.execute(_DOCUMENTS, page).fetchall()
            self._terms_by_ordinal.clear()
            for row in rows:
                yield from self._check_document(*row)
            yield from self._check_lexical_index()
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def _check_document(
        self,
        ordinal: int,
        packed: bytes,
        tree_bytes: bytes,
        body: bytes,
        original_bytes: int | None,
        original_sha256: str | None,
        term_count: int,
        is_unsummarised: bool,
        terms: list[bytes],
    ) -> Iterator[str]:
        record = DocumentRecord.from_bytes(packed)
        place = f"document {record.document_id} (ordinal {ordinal}): "
        try:
            tree, text = Tree(tree_bytes), str(body, "utf-8")
        except ValueError as error:
            yield f"{place}{error}"
            return
        if len(body) != record.text_bytes or tree.counts != record.chunks_per_level:
            yield f"{place}its text or tree does not match its record"
        original = record.original and (record.original.size_bytes, record.original.sha256)
        stored_original = None if original_bytes is None else (original_bytes, original_sha256)
        if original != stored_original:
            yield f"{place}its original does not match its record"
        if sorted(terms) != terms_of(record):
            yield f"{place}filters do not find it by all of its values"
        yield from (place + problem for problem in self._check_leaves(ordinal, tree))
        leaf_terms = self._leaf_terms(record, text, tree)
        if leaf_terms is not None:
            self._terms_by_ordinal[ordinal] = place, leaf_terms
        counted_terms = 0 if leaf_terms is None else int(leaf_terms.lengths.sum())
        if counted_terms != term_count:
            yield f"{place}its text has {counted_terms} terms, but {term_count} are recorded for it"
        counts = (
            *(1, sum(record.chunks_per_level), record.leaf_count, record.token_count),
            *(record.text_bytes, record.vector_bytes, record.stored_bytes, term_count),
            int(is_unsummarised),
        )
        self.totals = [total + more for total, more in zip(self.totals, counts, strict=True)]

    def _check_leaves(self, ordinal: int, tree: Tree) -> Iterator[str]:
        """Checks that each leaf of the document's tree is stored exactly once.

        Also checks that each leaf is stored with the indexes of its ancestors, and with a vector of
        the collection's dimension. Yields one message if the stored leaves differ from this.
        """
        settings = self._collection.settings
        parts = [
            sql.SQL(_LEAVES_OF_DOCUMENT).format(table=table)
            for table in tables_of(self._collection.home)
        ]
        statement = sql.SQL(" UNION ALL ").join(parts)
        rows = self._connection.execute(statement, {**self._collection.key, "ordinal": ordinal})
        stored = sorted(rows.fetchall())
        level = settings.tree.embedding_level
        above = tree.ancestors(level).T.tolist()
        dimension = settings.dimension or None
        if stored != [(leaf, indexes, dimension) for leaf, indexes in enumerate(above)]:
            yield (
                f"{len(stored)} leaves are stored; they do not match the {len(above)} leaves of "
                "its tree"
            )

    def _leaf_terms(self, record: DocumentRecord, text: str, tree: Tree) -> LeafTerms | None:
        """Returns the terms of the document's leaves; None if there is no lexical index."""
        settings = self._collection.settings
        if not settings.analyzer:
            return None
        return leaf_terms_of(record, text, tree, settings)

    def _check_lexical_index(self) -> Iterator[str]:
        """Checks that the lexical index has exactly the terms and frequencies of each document.

        Checks the documents in `_terms_by_ordinal`, which one statement has read. Looks up the
        terms of all of them together, because each look-up reads all term vectors and tombstones of
        the collection. Yields one message for each document whose entries in the index are wrong.
        """
        if not self._terms_by_ordinal:
            return
        entries = np.concatenate(
            [leaf_terms.entries for _, leaf_terms in self._terms_by_ordinal.values()]
        )
        ids = np.unique(entries >> np.uint64(8))
        matches = matches_of(self._connection, self._collection, ids)
        owners = ordinals_of(matches.labels)[matches.rows]
        indexed_entries = ids[matches.term_indices] << np.uint64(8) | matches.frequencies
        for ordinal, (place, leaf_terms) in self._terms_by_ordinal.items():
            indexed = np.sort(indexed_entries[owners == ordinal])
            if not np.array_equal(indexed, np.sort(leaf_terms.entries)):
                yield f"{place}the lexical index does not find it by its words"

    def _find_strays(self) -> Iterator[str]:
        """Finds leaves, filter terms and term vectors whose document does not exist.

        Also finds tombstones whose document exists. Yields one message for each table and ordinal
        with such rows.
        """
        key: Any = self._collection.key
        for table in tables_of(self._collection.home):
            statement = sql.SQL(_STRAY_LEAVES).format(table=table)
            for (ordinal,) in self._connection.execute(statement, key).fetchall():
                yield f"leaves of ordinal {ordinal} are stored, but no document has this ordinal"
        for name, statement in _STRAYS.items():
            for (ordinal,) in self._connection.execute(statement, key).fetchall():
                yield f"the table {name} does not match the documents at ordinal {ordinal}"

    def _check_parts(self) -> Iterator[str]:
        """Checks that the parts of the lexical index do not overlap.

        A part has the postings of the documents in a range of ordinals. Also checks that all
        postings belong to a part that exists, and that the ordinal of each tombstone is in the
        range of a part. Yields one message for each problem.
        """
        key = self._collection.key
        parts: dict[int, int] = dict(self._connection.execute(_PARTS, key).fetchall())
        yield from (f"part {part} overlaps another part" for part, count in parts.items() if count)
        for (part,) in self._connection.execute(_PARTS_OF_POSTINGS, key).fetchall():
            if part not in parts:
                yield f"postings of part {part} are stored, but the part does not exist"
        for (ordinal,) in self._connection.execute(_TOMBSTONES, key).fetchall():
            yield f"the table tombstones has ordinal {ordinal}, which is in the range of no part"

    def _check_summaries(self) -> Iterator[str]:
        """Checks that the summaries of each document were written for its stored version.

        Yields one message for each document of which this is not true.
        """
        key = {**self._collection.key, "summarises": self._collection.record.summarises}
        if not key["summarises"]:
            return
        for name, packed, ordinal, unsummarised in self._connection.execute(
            _SUMMARISED, key
        ).fetchall():
            if unsummarised or packed is None or Summarised.from_bytes(packed).ordinal != ordinal:
                yield f"document {name}: its summaries do not belong to its current version"
