"""The dense source: the leaves whose vectors are nearest to the query's, by cosine.

Leaves of a collection without a home are scanned exactly. In a home, the HNSW index gives the
nearest, and goes on until enough are eligible (pgvector's iterative scan in relaxed order), and
the tail is scanned; where the index gives too few, or few are eligible, all are scanned. The
index gives too few where most of what is near the query is not eligible: it stops at
`hnsw.max_scan_tuples`, and what it has found by then are not the nearest. Vectors and query have
16 bits a dimension, so a cosine is exact to about 0.0005.
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
from hrag.engine.postgres.search.found_leaves import FoundLeaves
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import EF_SEARCH
from hrag.engine.postgres.store.leaf_tables import rendered, tables_of
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.engine.postgres.store.vectors import QueryVector

# What a search of the index costs for each row that it is to find, in rows scanned.
_SEARCH_COST = 20
_MAX_EF = 1000  # pgvector's.
_NEARLY_ALL = 0.9  # Of the leaves in the index; to set `ef_search` takes a round trip.
# What the index gives behind leaves that are left out, it finds less surely; so it looks at more.
_DEEPER = 2

_SHARED = "tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s"
_DISTANCE = "embedding <#> %(vector)b::halfvec"
# The sum keeps PostgreSQL from reading the HNSW index in place of a scan: that is not exact, and
# with a filter takes ten times as long.
_SCAN = f"""
SELECT ordinal, leaf, above, ({_DISTANCE}) + 0 AS distance, false AS by_index
FROM {{table}} WHERE {_SHARED} {{condition}} ORDER BY 4, 1, 2 LIMIT {{count}}
"""
_GRAPH = f"""
SELECT ordinal, leaf, above, {_DISTANCE} AS distance, true AS by_index
FROM {{table}} WHERE true {{condition}} ORDER BY {_DISTANCE} LIMIT {{asked}}
"""
BY_INDEX = "count(*) FILTER (WHERE by_index) OVER ()"
"""How many rows of `nearest_leaves` the index gave; the LIMIT of the statement does not matter."""
_NEAREST = f"""
WITH nearest AS MATERIALIZED ({{nearest}})
SELECT ordinal << 20 | leaf, above, -distance, {BY_INDEX}
FROM nearest ORDER BY distance, ordinal, leaf LIMIT {{count}}
"""
_SET = "SET LOCAL hnsw.ef_search = {ef_search}"
_BY_LABEL = f"""
SELECT ordinal << 20 | leaf, above, {{cosine}}
FROM unnest(%(ordinals)b::bigint[], %(leaves)b::integer[]) AS wanted (ordinal, leaf), LATERAL (
  SELECT above, embedding FROM {{table}} AS each
  WHERE {_SHARED} AND each.ordinal = wanted.ordinal AND each.leaf = wanted.leaf OFFSET 0
) AS stored
"""


class VectorSource:
    """Finds leaves of one collection in one snapshot; `vector` is None in a lexical search."""

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
        """Whether the index is expected to give as many leaves for less than a scan costs."""
        if self._collection.home is None:
            return False
        return self._looked_at(eligible, count) * _SEARCH_COST < eligible.count

    def _looked_at(self, eligible: EligibleLeaves, count: int) -> int:
        """How many leaves the index looks at for so many eligible ones; deleted ones are, too."""
        among = max(self._collection.leaves, self._collection.in_graph or 0)
        if eligible.count >= _NEARLY_ALL * among:
            return count
        return math.ceil(_DEEPER * count * among / max(eligible.count, 1))

    def nearest(self, eligible: EligibleLeaves, count: int) -> tuple[FoundLeaves, bool]:
        """Returns the `count` nearest eligible leaves, or all, and whether they are exact."""
        if self.uses_graph(eligible, count):
            rows = self._nearest(eligible, count, graph=True)
            if rows and rows[0][-1] >= asked_of_index(eligible, count):
                return self._found(rows), False
        return self._found(self._nearest(eligible, count, graph=False)), True

    def _nearest(
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
        **more: object,
    ) -> Cursor[Any]:
        """Runs a statement about the nearest leaves, together with what the index needs."""
        wanted = min(self._looked_at(eligible, max(count, EF_SEARCH)), _MAX_EF)
        if graph and wanted > EF_SEARCH:  # pgvector finds no more rows at once.
            ef_search = sql.Literal(wanted)
            self._connection.execute(sql.SQL(_SET).format(ef_search=ef_search))
        return self._connection.execute(
            statement,
            {**self._parameters, **eligible.parameters, **more},
            # A plan for any array would compare each row with all its elements.
            prepare=False if eligible.parameters else None,
        )

    def leaves(self, labels: Labels) -> FoundLeaves:
        """Returns the leaves with these labels, with their cosines if there is a vector."""
        if not len(labels):
            return FoundLeaves.none(self._collection.settings)
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
        return self._found(rows)

    def _found(self, rows: Sequence[tuple[Any, ...]]) -> FoundLeaves:
        """Rows of label, ancestors and cosine, and perhaps more, as a table."""
        settings = self._collection.settings
        if not rows:
            return FoundLeaves.none(settings)
        labels, above, cosines, *_ = zip(*rows, strict=True)
        found = np.array(labels, np.uint64)
        order = np.argsort(found)
        ancestors = np.ascontiguousarray(np.array(above, np.uint32)[order].T)
        # Rounded to 16 bits, a vector may be longer than 1.
        scores = np.clip(np.array(cosines, np.float32)[order], -1, 1)
        return FoundLeaves(settings, found[order], ancestors, scores)


def asked_of_index(eligible: EligibleLeaves, count: int) -> int:
    """Returns how many leaves `nearest_leaves` asks the index for; if it gives fewer, scan."""
    return _asked_of_index(eligible.condition, count)


def _asked_of_index(condition: str, count: int) -> int:
    return _DEEPER * count if condition else count


@lru_cache(maxsize=1024)
def nearest_leaves(home: int | None, condition: str, count: int, *, graph: bool) -> sql.SQL:
    """Returns the query of at least the `count` nearest leaves, by the index or by a scan.

    Its columns are ordinal, leaf, above, distance, and whether the row is from the index, which
    may return fewer. `condition` is that of EligibleLeaves.
    """
    limits = {
        "count": sql.Literal(count),
        "asked": sql.Literal(_asked_of_index(condition, count)),
    }
    forms = (_GRAPH, _SCAN) if graph else (_SCAN, _SCAN)
    parts = [
        sql.SQL(form).format(table=table, condition=sql.SQL(condition), **limits)
        for form, table in zip(forms, tables_of(home), strict=False)
    ]
    return rendered(sql.SQL(" UNION ALL ").join(sql.SQL("({})").format(part) for part in parts))
