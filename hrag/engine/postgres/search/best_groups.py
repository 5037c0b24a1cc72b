"""The first round of a search in one statement or two: the best groups, with their documents.

A dense search is one statement. With words it is two: the first reads the postings of the query's
terms, and in a hybrid search the nearest leaves too; what the words score is computed here; the
second one fuses the scores, groups the leaves by ancestor, and reads the documents of the best
groups. That is for passages that score as their best leaf, which nearly all searches want;
others, and searches that must look deeper, are done step by step, see
`hrag.engine.common.search`. Both ways compute with single precision in the same order, and find
the same.

Some more groups than asked for are returned, because passages may be left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.candidates import Scores
from hrag.engine.common.fusion import reciprocal_ranks, weighted
from hrag.engine.common.labels import Labels, first_labels
from hrag.engine.find import FindRequest
from hrag.engine.postgres.search.document_reader import (
    DOCUMENT_COLUMNS,
    DOCUMENTS_OF_CHUNKS,
    PostgresDocuments,
)
from hrag.engine.postgres.search.eligible_leaves import parameters_of
from hrag.engine.postgres.search.found_leaves import FoundLeaves
from hrag.engine.postgres.search.ranker import Ranker
from hrag.engine.postgres.search.sources.vector_source import (
    BY_INDEX,
    asked_of_index,
    nearest_leaves,
)
from hrag.engine.postgres.store.arrays import reals
from hrag.engine.postgres.store.leaf_tables import rendered, tables_of
from hrag.values.collections import CollectionSettings, TreeSettings
from hrag.values.search import Aggregation, FusionMethod, Retrieval, SearchMode
from hrag_fast import Groups

_MOST_GROUPS = 64  # Whose documents are read at once.

_NEAREST = f"""
SELECT ordinal, leaf, above[{{height}}] AS ancestor, NULL::real AS lexical,
  least(greatest(-distance, -1), 1)::real AS dense, NULL::real AS given, {BY_INDEX} AS by_index
FROM ({{nearest}}) AS nearest ORDER BY distance, ordinal, leaf LIMIT {{count}}
"""
# LATERAL and OFFSET 0, here and elsewhere, make PostgreSQL look each leaf up by its key, whatever
# it knows of the tables: it expects a single leaf of a collection where there are many tenants,
# and would compare each of thousands with each one that was found.
_GIVEN = """
SELECT ordinal, leaf, above[{height}] AS ancestor, lexical, {dense} AS dense, given
FROM unnest(%(ordinals)s, %(leaves)s, %(lexical)s, %(dense)s, %(given)s)
  AS found (ordinal, leaf, lexical, dense, given), LATERAL (
  SELECT above, embedding FROM {table} AS each
  WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
  AND each.ordinal = found.ordinal AND each.leaf = found.leaf OFFSET 0
) AS stored
"""
# Rounded to 16 bits, a vector may be longer than 1.
_COSINE = """
CASE WHEN dense = 'NaN'
  THEN least(greatest(-(embedding <#> %(vector)b::halfvec), -1), 1)::real ELSE dense END
"""
_CONVEX = """
%(weight)s::real * lexical + (1::real - %(weight)s::real)
  * (greatest(dense - %(lowest)s::real, 0::real) / %(scale)s::real)
"""
_GROUPS = f"""
WITH found AS MATERIALIZED ({{found}}
), scored AS (
  SELECT ordinal, leaf, ancestor, lexical, dense, {{score}} AS score FROM found
), lifted AS (
  SELECT ordinal, leaf, ancestor, lexical, dense, {{lifted}} AS score FROM scored
  WINDOW of_document AS (PARTITION BY ordinal ORDER BY leaf)
), groups AS (
  SELECT ordinal, ancestor, max(score) AS score,
    array_agg(leaf ORDER BY score DESC, leaf) AS leaves,
    array_agg(score ORDER BY score DESC, leaf) AS scores,
    array_agg(lexical ORDER BY score DESC, leaf) AS lexical,
    array_agg(dense ORDER BY score DESC, leaf) AS dense,
    sum(count(*)) OVER ()::bigint AS considered, count(*) OVER () AS total,
    row_number() OVER (ORDER BY max(score) DESC, ordinal, ancestor) AS rank
  FROM lifted GROUP BY ordinal, ancestor ORDER BY 3 DESC, 1, 2 LIMIT {{groups}}
), chunks AS (
  SELECT *, ancestor AS index, rank <= {{texts}} AS has_text FROM groups
)
SELECT considered, total, ancestor, leaves, scores, lexical, dense, {DOCUMENT_COLUMNS},
  {{by_index}}
FROM {DOCUMENTS_OF_CHUNKS} ORDER BY rank
"""
_LEAVES_BY_INDEX = "(SELECT max(by_index) FROM found)"
# The leaf before, the leaf itself or the one after, whichever of them was found and scores most.
_LIFTED = """
score + %(bonus)s::real * greatest(score,
  CASE WHEN lag(leaf) OVER of_document = leaf - 1 THEN lag(score) OVER of_document END,
  CASE WHEN lead(leaf) OVER of_document = leaf + 1 THEN lead(score) OVER of_document END)
"""


@dataclass(frozen=True, slots=True)
class BestGroups:
    """The best groups of a first round.

    `total` is how many groups there are of the `considered` leaves. `exact` and `complete` are
    those of the leaves, see `hrag.engine.common.candidates.ScoredRows`.
    """

    groups: AncestorGroups
    total: int
    considered: int
    exact: bool
    complete: bool


def can_find(request: FindRequest) -> bool:
    """Returns whether statements may do for a request."""
    return request.aggregation is Aggregation.MAX and request.mode is not SearchMode.AUTO_MERGE


def expected_passages(request: FindRequest, settings: CollectionSettings) -> int:
    """Returns how many of the best groups nearly always suffice; their texts are read at once.

    For a budget of tokens, twice as many as chunks of full size fit into it: chunks may be
    shorter, and overlap.
    """
    if not request.token_budget:
        return request.limit
    filling = -(-request.token_budget // settings.tree.level_sizes[request.level])
    return min(request.limit, 2 * filling)


def best_groups(
    ranker: Ranker, request: FindRequest, documents: PostgresDocuments
) -> BestGroups | None:
    """Returns the best groups, and adds their documents to `documents`.

    None if the index gave fewer leaves than it was asked for.
    """
    found = _nearest(ranker, request) if ranker.is_dense else _given(ranker, request)
    if found is None:
        return None
    rows = found.run(ranker, request)
    considered, total = rows[0][:2] if rows else (0, 0)
    complete = found.complete
    if ranker.is_dense:
        by_index = rows[0][-1] if rows else 0
        if found.graph and by_index < asked_of_index(ranker.eligible, request.candidates):
            return None
        complete = ranker.has_all(considered, request.candidates)
    for row in rows:
        documents.add(*row[7:-1])
    groups = _ancestor_groups(ranker, request, rows)
    return BestGroups(groups, total, considered, found.exact, complete)


@dataclass(frozen=True, slots=True)
class _Found:
    """The statement that finds the best groups, or groups what was found before."""

    statement: sql.SQL
    parameters: dict[str, object]
    graph: bool
    exact: bool
    complete: bool = False

    def run(self, ranker: Ranker, request: FindRequest) -> list[tuple[Any, ...]]:
        own = {**self.parameters, "bonus": request.neighbour_bonus}
        vectors = ranker.vectors
        return vectors.run(
            self.statement, ranker.eligible, request.candidates, graph=self.graph, **own
        ).fetchall()


class _Grouping(NamedTuple):
    """How a statement groups leaves, as far as its text depends on that.

    `texts` is how many groups' texts it reads.
    """

    tree: TreeSettings
    level: int
    texts: int
    has_bonus: bool

    @classmethod
    def of(cls, ranker: Ranker, request: FindRequest) -> "_Grouping":
        settings = ranker.collection.settings
        texts = expected_passages(request, settings)
        return cls(settings.tree, request.level, texts, request.neighbour_bonus > 0)

    @property
    def height(self) -> sql.Literal:
        """Where a leaf's ancestor at the level is in `above`, from 1."""
        return sql.Literal(self.level - self.tree.embedding_level + 1)

    def of_leaves(
        self, found: sql.Composable, score: sql.Composable, *, has_nearest: bool
    ) -> sql.SQL:
        """Returns the statement that groups what `found` selects.

        Its last column is how many leaves the index gave, if `found` is `_NEAREST`.
        """
        statement = sql.SQL(_GROUPS).format(
            found=found,
            score=score,
            by_index=sql.SQL(_LEAVES_BY_INDEX if has_nearest else "NULL"),
            lifted=sql.SQL(_LIFTED if self.has_bonus else "score"),
            groups=sql.Literal(min(2 * self.texts + 2, _MOST_GROUPS)),
            texts=sql.Literal(self.texts),
            levels=sql.Literal(self.tree.top_level + 1),
            level=sql.Literal(self.level),
        )
        return rendered(statement)


def _nearest(ranker: Ranker, request: FindRequest) -> _Found:
    """The nearest leaves, found by the statement itself."""
    count = request.candidates
    graph = ranker.vectors.uses_graph(ranker.eligible, count)
    home, condition = ranker.collection.home, ranker.eligible.condition
    grouping = _Grouping.of(ranker, request)
    statement = _groups_of_nearest(home, condition, count, grouping, graph=graph)
    return _Found(statement, {}, graph, exact=not graph)


@lru_cache(maxsize=1024)
def _groups_of_nearest(
    home: int | None, condition: str, count: int, grouping: _Grouping, *, graph: bool
) -> sql.SQL:
    found = sql.SQL(_NEAREST).format(
        nearest=nearest_leaves(home, condition, count, graph=graph),
        height=grouping.height,
        count=sql.Literal(count),
    )
    return grouping.of_leaves(found, sql.SQL("dense"), has_nearest=True)


@lru_cache(maxsize=1024)
def _groups_of_given(
    home: int | None, grouping: _Grouping, *, is_hybrid: bool, is_convex: bool
) -> sql.SQL:
    dense = sql.SQL(_COSINE if is_hybrid else "NULL::real")
    parts = [
        sql.SQL(_GIVEN).format(table=table, height=grouping.height, dense=dense)
        for table in tables_of(home)
    ]
    score = _CONVEX if is_convex else "given" if is_hybrid else "lexical"
    return grouping.of_leaves(sql.SQL(" UNION ALL ").join(parts), sql.SQL(score), has_nearest=False)


def _given(ranker: Ranker, request: FindRequest) -> _Found | None:
    """What the words found, and in a hybrid search the nearest leaves, which are read with them."""
    first = ranker.first_candidates(request.candidates)
    if first is None:
        return None
    labels = np.union1d(first.lexical_labels, first.dense_labels)
    lexical = ranker.lexical.scores(labels)
    dense = np.full(len(labels), np.nan, np.float32)
    dense[np.searchsorted(labels, first.dense_labels)] = first.cosines
    given = np.zeros(len(labels), np.float32)
    is_hybrid = request.retrieval is Retrieval.HYBRID
    fusion = request.fusion
    is_convex = is_hybrid and fusion.method is FusionMethod.CONVEX
    if is_hybrid and not is_convex:
        by_terms = reciprocal_ranks(labels, first.lexical_labels, first.lexical_scores)
        by_vector = reciprocal_ranks(labels, first.dense_labels, first.cosines)
        given = weighted(by_terms, by_vector, fusion)
    parameters = {
        **parameters_of(labels),
        **{name: reals(each) for name, each in _columns(lexical, dense, given)},
        "weight": fusion.lexical_weight,
        "lowest": fusion.lowest_cosine,
        "scale": 1 - fusion.lowest_cosine,
    }
    home, grouping = ranker.collection.home, _Grouping.of(ranker, request)
    statement = _groups_of_given(home, grouping, is_hybrid=is_hybrid, is_convex=is_convex)
    return _Found(
        statement, parameters, graph=False, complete=first.complete, exact=not first.graph
    )


def _columns(lexical: Scores, dense: Scores, given: Scores) -> Sequence[tuple[str, Scores]]:
    return ("lexical", lexical), ("dense", dense), ("given", given)


def _ancestor_groups(
    ranker: Ranker, request: FindRequest, rows: Sequence[tuple[Any, ...]]
) -> AncestorGroups:
    counts = [len(row[3]) for row in rows]
    first = first_labels(np.array([row[7] for row in rows], np.uint64))
    labels: Labels = np.repeat(first, counts) | _flat(rows, 3, np.uint64)
    scores, lexical, dense = (_flat(rows, column, np.float32) for column in (4, 5, 6))
    order = np.argsort(labels)
    # Leaves are grouped already, so nobody asks for their ancestors.
    above = np.empty((0, len(labels)), np.uint32)
    table = FoundLeaves(ranker.collection.settings, labels[order], above, scores[order])
    starts = np.cumsum([0, *counts], dtype=np.uint32)
    keys = first | np.array([row[2] for row in rows], np.uint64)
    groups = Groups(keys, scores[starts[:-1]], starts, table.rows(labels), scores)
    return AncestorGroups(
        table,
        groups,
        request.level,
        lexical=None if ranker.is_dense else lexical,
        dense=None if request.retrieval is Retrieval.LEXICAL else dense,
    )


def _flat(rows: Sequence[tuple[Any, ...]], column: int, kind: type[Any]) -> NDArray[Any]:
    """The arrays of a column, joined."""
    return np.array([*chain.from_iterable(row[column] for row in rows)], kind)
