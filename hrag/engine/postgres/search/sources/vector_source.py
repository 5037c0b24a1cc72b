"""The dense source: finds the leaves whose vectors are nearest to the query's vector, by cosine.

A home is a table with an HNSW index for the leaves of a large collection. If a collection has no
home, all its leaves are scanned exactly. Otherwise the HNSW index returns the nearest leaves of the
home, and the tail, the newest leaves in the table `hrag.leaves`, is scanned. The index continues
until it has found enough eligible leaves (pgvector's iterative scan in relaxed order). If only a
few leaves are eligible, or if the index returns too few leaves, all leaves are scanned exactly.

The index returns too few leaves if most leaves near the query are not eligible. In this case the
scan of the index stops after `hnsw.max_scan_tuples` leaves, and the eligible leaves among them are
perhaps not the nearest eligible leaves of the collection. Stored vectors and the query's vector
have 16 bits per dimension, so a cosine is exact to about 0.0005.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from psycopg import Cursor, sql

from hrag.engine.common.labels import Labels
from hrag.engine.find import Vector
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves, parameters_of
from hrag.engine.postgres.search.found_leaves import CandidateLeaves
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import EF_SEARCH
from hrag.engine.postgres.store.leaf_tables import rendered, tables_of
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.engine.postgres.store.vectors import QueryVector

# Visiting one leaf in the HNSW index costs as much as scanning this many rows.
_SEARCH_COST = 20
# The maximum of `hnsw.ef_search` in pgvector.
_MAX_EF = 1000
# If at least this share of the leaves in the index is eligible, the search runs as if all of them
# were. So it keeps the usual value of `hnsw.ef_search`, and saves the round trip that setting a
# larger value takes.
_NEARLY_ALL = 0.9
# With a filter, the index also visits leaves that are not eligible, and its recall is lower. To
# compensate, a search with a filter requests this many times as many leaves from the index as it
# needs.
_FILTER_FACTOR = 2

_COLLECTION_CONDITION = "tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s"
_DISTANCE = "embedding <#> %(vector)b::halfvec"
# `+ 0` prevents PostgreSQL from using the HNSW index for this statement, which must be exact. With
# a filter, the index would also take ten times as long as the scan.
_SCAN = f"""
SELECT ordinal, leaf, above, ({_DISTANCE}) + 0 AS distance, false AS by_index
FROM {{table}} WHERE {_COLLECTION_CONDITION} {{condition}} ORDER BY 4, 1, 2 LIMIT {{count}}
"""
_GRAPH = f"""
SELECT ordinal, leaf, above, {_DISTANCE} AS distance, true AS by_index
FROM {{table}} WHERE {_COLLECTION_CONDITION} {{condition}}
ORDER BY {_DISTANCE} LIMIT {{index_limit}}
"""
BY_INDEX = "count(*) FILTER (WHERE by_index) OVER ()"
"""An SQL expression: the count of rows of `nearest_leaves`, before LIMIT, from the HNSW index."""
_NEAREST = f"""
WITH nearest AS MATERIALIZED ({{nearest}})
SELECT ordinal << 20 | leaf, above, -distance, {BY_INDEX}
FROM nearest ORDER BY distance, ordinal, leaf LIMIT {{count}}
"""
# Citus sends the second setting to the nodes only because of the first one, which means nothing to
# a server without Citus.
_SET_EF_SEARCH = b"SET LOCAL citus.propagate_set_commands = local; SET LOCAL hnsw.ef_search = %d"
_BY_LABEL = f"""
SELECT ordinal << 20 | leaf, above, {{cosine}}
FROM unnest(%(ordinals)b::bigint[], %(leaves)b::integer[]) AS candidate (ordinal, leaf), LATERAL (
  SELECT above, embedding FROM {{table}} AS leaf_row
  WHERE {_COLLECTION_CONDITION}
  AND leaf_row.ordinal = candidate.ordinal AND leaf_row.leaf = candidate.leaf OFFSET 0
) AS stored
"""


class VectorSource:
    """Searches the vectors of one collection in one snapshot.

    `vector` is the query's vector; None in a lexical search.
    """

    def __init__(
        self, connection: Connection, collection: OpenedCollection, vector: Vector | None
    ) -> None:
        self._connection = connection
        self._collection = collection
        self._parameters = dict(collection.key)
        if vector is not None:
            self._parameters["vector"] = QueryVector(vector)
        self._has_vector = vector is not None

    def uses_graph(self, eligible: EligibleLeaves, count: int) -> bool:
        """Returns True if a search of the HNSW index is expected to cost less than a scan.

        `count` is how many leaves the search must find.
        """
        if self._collection.home is None:
            return False
        return self._visited_leaves(eligible, count) * _SEARCH_COST < eligible.count

    def _visited_leaves(self, eligible: EligibleLeaves, count: int) -> int:
        """Estimates how many leaves the HNSW index visits to find `count` eligible leaves.

        The index also visits leaves that are deleted or not eligible.
        """
        indexed = max(self._collection.leaves, self._collection.in_graph)
        if eligible.count >= _NEARLY_ALL * indexed:
            return count
        return math.ceil(_FILTER_FACTOR * count * indexed / max(eligible.count, 1))

    def nearest(self, eligible: EligibleLeaves, count: int) -> tuple[CandidateLeaves, bool]:
        """Returns the `count` nearest eligible leaves; all eligible leaves if there are fewer.

        The second value is True if it is certain that no other eligible leaf is nearer.
        """
        if self.uses_graph(eligible, count):
            rows = self._read_nearest(eligible, count, graph=True)
            if rows and rows[0][-1] >= requested_from_index(eligible, count):
                return self._table_of(rows), False
        return self._table_of(self._read_nearest(eligible, count, graph=False)), True

    def _read_nearest(
        self, eligible: EligibleLeaves, count: int, *, graph: bool
    ) -> list[tuple[Any, ...]]:
        nearest = nearest_leaves(self._collection.home, eligible.condition, count, graph=graph)
        statement = sql.SQL(_NEAREST).format(nearest=nearest, count=sql.Literal(count))
        return self.run(statement, eligible, count, graph=graph).fetchall()

    def run(
        self,
        statement: sql.SQL | sql.Composed,
        eligible: EligibleLeaves,
        count: int,
        *,
        graph: bool,
        **extra: object,
    ) -> Cursor[Any]:
        """Runs a statement that contains the SQL query which `nearest_leaves` returns.

        If the HNSW index is expected to visit more than EF_SEARCH leaves, first sets
        `hnsw.ef_search` to a larger value than EF_SEARCH, its usual value. `extra` are additional
        parameters of the statement.
        """
        ef_search = min(self._visited_leaves(eligible, max(count, EF_SEARCH)), _MAX_EF)
        # Each step of pgvector's iterative scan finds at most `ef_search` rows, so a search that
        # needs more rows sets a larger value.
        if graph and ef_search > EF_SEARCH:
            self._connection.run_script(_SET_EF_SEARCH % ef_search)
        return self._connection.execute(
            statement,
            {**self._parameters, **eligible.parameters, **extra},
            # The parameters of `eligible` are arrays. A statement with arrays is not prepared, so
            # that PostgreSQL plans it for their actual length. The generic plan of a prepared
            # statement would compare each row with all elements of an array.
            prepare=False if eligible.parameters else None,
        )

    def leaves(self, labels: Labels) -> CandidateLeaves:
        """Returns the leaves with these labels; their cosines are NaN without a query vector."""
        if not len(labels):
            return CandidateLeaves.none(self._collection.settings)
        cosine = f"-({_DISTANCE})" if self._has_vector else "'NaN'::float8"
        parts = [
            sql.SQL(_BY_LABEL).format(table=table, cosine=sql.SQL(cosine))
            for table in tables_of(self._collection.home)
        ]
        rows = self._connection.execute(
            sql.SQL(" UNION ALL ").join(parts),
            {**self._parameters, **parameters_of(labels)},
            binary=True,
        ).fetchall()
        return self._table_of(rows)

    def _table_of(self, rows: Sequence[tuple[Any, ...]]) -> CandidateLeaves:
        """Returns a table of leaves; `rows` begin with the columns label, ancestors and cosine."""
        settings = self._collection.settings
        if not rows:
            return CandidateLeaves.none(settings)
        labels, above, cosines, *_ = zip(*rows, strict=True)
        all_labels = np.array(labels, np.uint64)
        order = np.argsort(all_labels)
        ancestors = np.ascontiguousarray(np.array(above, np.uint32)[order].T)
        # A stored vector is rounded to 16 bits per dimension, so its length may be a little greater
        # than 1. Therefore the cosines are limited to the range from -1 to 1.
        scores = np.clip(np.array(cosines, np.float32)[order], -1, 1)
        return CandidateLeaves(settings, all_labels[order], ancestors, scores)


def requested_from_index(eligible: EligibleLeaves, count: int) -> int:
    """Returns how many leaves `nearest_leaves` requests from the HNSW index to find `count` leaves.

    If the index returns fewer leaves than requested, the caller must scan all leaves instead.
    """
    return _index_limit(eligible.condition, count)


def _index_limit(condition: str, count: int) -> int:
    return _FILTER_FACTOR * count if condition else count


@lru_cache(maxsize=1024)
def nearest_leaves(home: int | None, condition: str, count: int, *, graph: bool) -> sql.SQL:
    """Returns the SQL query that finds at least the `count` nearest eligible leaves.

    With `graph`, the query uses the HNSW index, which may return fewer leaves; otherwise the query
    scans all leaves. Its columns are ordinal, leaf (the leaf's index in the document), above (the
    indexes of its ancestors), distance, and by_index, which is true for a row from the HNSW index.
    `condition` is `EligibleLeaves.condition`.
    """
    limits = {
        "count": sql.Literal(count),
        "index_limit": sql.Literal(_index_limit(condition, count)),
    }
    forms = (_GRAPH, _SCAN) if graph else (_SCAN, _SCAN)
    parts = [
        sql.SQL(form).format(table=table, condition=sql.SQL(condition), **limits)
        for form, table in zip(forms, tables_of(home), strict=False)
    ]
    return rendered(sql.SQL(" UNION ALL ").join(sql.SQL("({})").format(part) for part in parts))
