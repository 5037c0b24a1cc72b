"""Runs the first round of a search in one or two statements.

A round finds candidate leaves and groups them by ancestor; a search that needs more candidates runs
another round. The result of this module is the best groups of leaves, with their documents.

A dense search needs one statement. A lexical or hybrid search needs two statements. The first
statement reads the postings of the query's terms and, in a hybrid search, the nearest leaves. Then
this process computes the lexical scores. For reciprocal rank fusion, it also computes the fused
scores; for a convex combination, the second statement computes them. The second statement then
groups the leaves by ancestor, and reads the documents of the best groups.

These statements support only requests in which the score of a passage is the score of its best
leaf, as in nearly all searches. Other searches, and searches that need more candidates, run step by
step; see `hrag.engine.common.search`. The statements and the steps compute in single precision and
in the same order, so their results are equal.

The module returns a few more groups than the request needs, because some groups may not become
passages.
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
    chunks_below,
)
from hrag.engine.postgres.search.eligible_leaves import parameters_of
from hrag.engine.postgres.search.found_leaves import CandidateLeaves
from hrag.engine.postgres.search.ranker import Ranker
from hrag.engine.postgres.search.sources.vector_source import (
    BY_INDEX,
    nearest_leaves,
    requested_from_index,
)
from hrag.engine.postgres.store.arrays import reals
from hrag.engine.postgres.store.leaf_tables import rendered, tables_of
from hrag.values.collections import CollectionSettings, TreeSettings
from hrag.values.search import Aggregation, FusionMethod, Retrieval, SearchMode
from hrag_fast import Groups

# A statement returns at most this many groups with their documents. A group is a chunk with its
# matched leaves.
_MAX_GROUPS = 64

_NEAREST = """
SELECT ordinal, leaf, above[{height}] AS ancestor,
  least(greatest(-distance, -1), 1)::real AS dense, {by_index} AS by_index
FROM ({nearest}) AS nearest ORDER BY distance, ordinal, leaf LIMIT {count}
"""
# In this and other statements, LATERAL and OFFSET 0 make PostgreSQL look up each leaf by its key,
# whatever the statistics of the table say. With many tenants, PostgreSQL expects one leaf per
# collection. Without LATERAL and OFFSET 0, it would compare each of the collection's thousands of
# leaves with each candidate.
_CANDIDATES = """
SELECT ordinal, leaf, above[{height}] AS ancestor, lexical, {dense} AS dense, fused
FROM unnest(%(ordinals)s, %(leaves)s, %(lexical)s, %(dense)s, %(fused)s)
  AS candidate (ordinal, leaf, lexical, dense, fused), LATERAL (
  SELECT above, embedding FROM {table} AS leaf_row
  WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
  AND leaf_row.ordinal = candidate.ordinal AND leaf_row.leaf = candidate.leaf OFFSET 0
) AS stored
"""
# A stored vector is rounded to 16 bits per dimension, so its length may be a little greater than 1.
# Therefore the cosine is limited to the range from -1 to 1.
_COSINE = """
CASE WHEN dense = 'NaN'
  THEN least(greatest(-(embedding <#> %(vector)b::halfvec), -1), 1)::real ELSE dense END
"""
_CONVEX = """
%(weight)s::real * lexical + (1::real - %(weight)s::real)
  * (greatest(dense - %(lowest)s::real, 0::real) / %(scale)s::real)
"""
# Citus plans the statement in each search, so it has few subqueries, and an expression of an unused
# value is NULL. OFFSET 0 makes PostgreSQL compute the values of the candidates only once.
_GROUPS = f"""
SELECT considered, total, ancestor, leaves, scores, lexical, dense, {DOCUMENT_COLUMNS}, by_index
FROM (
  SELECT ordinal, ancestor, max(score) AS score,
    array_agg(leaf ORDER BY score DESC, leaf) AS leaves,
    array_agg(score ORDER BY score DESC, leaf) AS scores,
    {{lexical}} AS lexical, {{dense}} AS dense, {{by_index}} AS by_index,
    sum(count(*)) OVER ()::bigint AS considered, count(*) OVER () AS total,
    row_number() OVER (ORDER BY max(score) DESC, ordinal, ancestor) AS rank
  FROM ({{scored}}) AS scored GROUP BY ordinal, ancestor ORDER BY 3 DESC, 1, 2 LIMIT {{groups}}
) AS {DOCUMENTS_OF_CHUNKS} ORDER BY rank
"""
_SCORED = "SELECT *, {score} AS score FROM ({candidates} OFFSET 0) AS candidates"
# The neighbour bonus adds to the score of a leaf a share of the highest score among the leaf
# itself, the previous leaf and the next leaf. Neighbours that are not candidates are ignored.
_BOOSTED = """
SELECT *, alone + %(bonus)s::real * greatest(alone,
  CASE WHEN lag(leaf) OVER of_document = leaf - 1 THEN lag(alone) OVER of_document END,
  CASE WHEN lead(leaf) OVER of_document = leaf + 1 THEN lead(alone) OVER of_document END) AS score
FROM (SELECT *, {score} AS alone FROM ({candidates} OFFSET 0) AS candidates) AS scored
WINDOW of_document AS (PARTITION BY ordinal ORDER BY leaf)
"""
_SCORES_OF_SOURCE = "array_agg({} ORDER BY score DESC, leaf)"


@dataclass(frozen=True, slots=True)
class BestGroups:
    """The best groups of the first round of a search.

    A group is a chunk with the candidate leaves in it. `considered` is the count of candidate
    leaves. `total` is the count of all groups that these leaves form; `groups` has the best of
    these groups. `exact` is True if it is certain that the candidates are the best leaves of each
    source. `complete` is True if no further leaf can become a candidate.
    """

    groups: AncestorGroups
    total: int
    considered: int
    exact: bool
    complete: bool


def can_find(request: FindRequest) -> bool:
    """Returns True if `best_groups` supports the request.

    It supports requests in which the score of a passage is the score of its best leaf, except
    requests in the modes AUTO_MERGE and SUMMARY_FIRST, whose scores depend on other leaves too, and
    requests whose first chunks a reranker has ordered: these chunks may rank below the groups that
    the statement returns.
    """
    is_ranked_by_score = request.aggregation is Aggregation.MAX and not request.rerank_scores
    modes = (SearchMode.AUTO_MERGE, SearchMode.SUMMARY_FIRST)
    return is_ranked_by_score and request.mode not in modes


def expected_passages(request: FindRequest, settings: CollectionSettings) -> int:
    """Returns how many of the best groups are nearly always enough for the request's passages.

    A group is a chunk with its matched leaves, and may become a passage. The caller reads the texts
    of this many groups in one statement. If the request has a token budget, the result is twice the
    count of full-size chunks that fit in the budget, because chunks may be shorter and may overlap.
    The result is at most the limit of the request.
    """
    if not request.token_budget:
        return request.limit
    filling = -(-request.token_budget // settings.tree.level_sizes[request.level])
    return min(request.limit, 2 * filling)


def best_groups(
    ranker: Ranker, request: FindRequest, documents: PostgresDocuments
) -> BestGroups | None:
    """Returns the best groups of the first round, and adds their documents to `documents`.

    A group is a chunk with its matched leaves. Returns None if the HNSW index returned fewer leaves
    than requested.
    """
    query = _dense_query(ranker, request) if ranker.is_dense else _lexical_query(ranker, request)
    if query is None:
        return None
    rows = query.run(ranker, request)
    considered, total = rows[0][:2] if rows else (0, 0)
    complete = query.complete
    if ranker.is_dense:
        by_index = rows[0][-1] if rows else 0
        if query.graph and by_index < requested_from_index(ranker.eligible, request.candidates):
            return None
        complete = ranker.has_all(considered, request.candidates)
    for row in rows:
        documents.add(*row[7:-1])
    groups = _ancestor_groups(ranker, request, rows)
    return BestGroups(groups, total, considered, query.exact, complete)


@dataclass(frozen=True, slots=True)
class _GroupQuery:
    """The statement that groups candidate leaves and returns the best groups, with its parameters.

    In a dense search, the statement also finds the candidate leaves. In other searches, the
    candidate leaves are parameters. `graph` is True if the statement uses the HNSW index. `exact`
    is True if it is certain that the candidates are the best leaves of each source. `complete` is
    True if no further leaf can become a candidate.
    """

    statement: sql.SQL
    parameters: dict[str, object]
    graph: bool
    exact: bool
    complete: bool = False

    def run(self, ranker: Ranker, request: FindRequest) -> list[tuple[Any, ...]]:
        parameters = {**self.parameters, "bonus": request.neighbour_bonus}
        vectors = ranker.vectors
        return vectors.run(
            self.statement, ranker.eligible, request.candidates, graph=self.graph, **parameters
        ).fetchall()


class _Grouping(NamedTuple):
    """The values of a request on which the text of the statement that groups leaves depends.

    The statement groups leaves by their ancestors at `level`. It reads the texts of the `texts`
    best groups.
    """

    tree: TreeSettings
    level: int
    texts: int
    has_bonus: bool
    retrieval: Retrieval

    @classmethod
    def of(cls, ranker: Ranker, request: FindRequest) -> "_Grouping":
        settings = ranker.collection.settings
        texts = expected_passages(request, settings)
        has_bonus = request.neighbour_bonus > 0
        return cls(settings.tree, request.level, texts, has_bonus, request.retrieval)

    @property
    def height(self) -> sql.Literal:
        """The SQL subscript, from 1, of the ancestor at `level` in the array `above` of a leaf."""
        return sql.Literal(self.level - self.tree.embedding_level + 1)

    @property
    def has_scores_of_sources(self) -> bool:
        """True if the score of a leaf may differ from its score in the only source."""
        return self.has_bonus or self.retrieval is Retrieval.HYBRID

    def of_leaves(
        self, candidates: sql.Composable, score: sql.Composable, *, has_index: bool
    ) -> sql.SQL:
        """Returns the statement that groups the leaves which the SQL query `candidates` returns.

        `score` is the SQL expression of a leaf's score. The columns of the scores in each source
        are NULL unless `has_scores_of_sources`; also for a source that is not searched. With
        `has_index`, the last column is the count of leaves that the HNSW index returned; otherwise
        it is NULL.
        """
        scored = sql.SQL(_BOOSTED if self.has_bonus else _SCORED)
        statement = sql.SQL(_GROUPS).format(
            scored=scored.format(score=score, candidates=candidates),
            lexical=self._scores_of("lexical", Retrieval.DENSE),
            dense=self._scores_of("dense", Retrieval.LEXICAL),
            by_index=sql.SQL("max(by_index)" if has_index else "NULL::bigint"),
            groups=sql.Literal(min(2 * self.texts + 2, _MAX_GROUPS)),
            has_text=sql.SQL("rank <= {}").format(sql.Literal(self.texts)),
            levels=sql.Literal(self.tree.top_level + 1),
            chunks_below=chunks_below(self.level),
        )
        return rendered(statement)

    def _scores_of(self, column: str, other: Retrieval) -> sql.Composable:
        """Returns the expression of a group's scores in one source.

        `other` is the retrieval that does not search this source.
        """
        if self.has_scores_of_sources and self.retrieval is not other:
            return sql.SQL(_SCORES_OF_SOURCE).format(sql.Identifier(column))
        return sql.SQL("NULL::real[]")


def _dense_query(ranker: Ranker, request: FindRequest) -> _GroupQuery:
    """Returns the SQL statement of a dense search.

    The statement both finds the nearest leaves and groups them.
    """
    count = request.candidates
    graph = ranker.vectors.uses_graph(ranker.eligible, count)
    home, condition = ranker.collection.home, ranker.eligible.condition
    grouping = _Grouping.of(ranker, request)
    statement = _dense_statement(home, condition, count, grouping, graph=graph)
    return _GroupQuery(statement, {}, graph, exact=not graph)


@lru_cache(maxsize=1024)
def _dense_statement(
    home: int | None, condition: str, count: int, grouping: _Grouping, *, graph: bool
) -> sql.SQL:
    candidates = sql.SQL(_NEAREST).format(
        nearest=nearest_leaves(home, condition, count, graph=graph),
        height=grouping.height,
        by_index=sql.SQL(BY_INDEX if graph else "NULL::bigint"),
        count=sql.Literal(count),
    )
    return grouping.of_leaves(candidates, sql.SQL("dense"), has_index=graph)


@lru_cache(maxsize=1024)
def _lexical_statement(
    home: int | None, grouping: _Grouping, *, is_hybrid: bool, is_convex: bool
) -> sql.SQL:
    dense = sql.SQL(_COSINE if is_hybrid else "NULL::real")
    parts = [
        sql.SQL(_CANDIDATES).format(table=table, height=grouping.height, dense=dense)
        for table in tables_of(home)
    ]
    score = _CONVEX if is_convex else "fused" if is_hybrid else "lexical"
    return grouping.of_leaves(sql.SQL(" UNION ALL ").join(parts), sql.SQL(score), has_index=False)


def _lexical_query(ranker: Ranker, request: FindRequest) -> _GroupQuery | None:
    """Finds the candidates of a lexical or hybrid search; returns the SQL statement to group them.

    The candidates' labels and scores are parameters of the statement. Returns None if the HNSW
    index returned fewer leaves than requested.
    """
    first = ranker.first_candidates(request.candidates)
    if first is None:
        return None
    labels = np.union1d(first.lexical_labels, first.dense_labels)
    lexical = ranker.lexical.scores(labels)
    dense = np.full(len(labels), np.nan, np.float32)
    dense[np.searchsorted(labels, first.dense_labels)] = first.cosines
    fused = np.zeros(len(labels), np.float32)
    is_hybrid = request.retrieval is Retrieval.HYBRID
    fusion = request.fusion
    is_convex = is_hybrid and fusion.method is FusionMethod.CONVEX
    if is_hybrid and not is_convex:
        by_terms = reciprocal_ranks(labels, first.lexical_labels, first.lexical_scores)
        by_vector = reciprocal_ranks(labels, first.dense_labels, first.cosines)
        fused = weighted(by_terms, by_vector, fusion)
    parameters = {
        **parameters_of(labels),
        **{name: reals(scores) for name, scores in _named_columns(lexical, dense, fused)},
        "weight": fusion.lexical_weight,
        "lowest": fusion.lowest_cosine,
        "scale": 1 - fusion.lowest_cosine,
    }
    home, grouping = ranker.collection.home, _Grouping.of(ranker, request)
    statement = _lexical_statement(home, grouping, is_hybrid=is_hybrid, is_convex=is_convex)
    return _GroupQuery(
        statement, parameters, graph=False, complete=first.complete, exact=not first.graph
    )


def _named_columns(lexical: Scores, dense: Scores, fused: Scores) -> Sequence[tuple[str, Scores]]:
    return ("lexical", lexical), ("dense", dense), ("fused", fused)


def _ancestor_groups(
    ranker: Ranker, request: FindRequest, rows: Sequence[tuple[Any, ...]]
) -> AncestorGroups:
    counts = [len(row[3]) for row in rows]
    first = first_labels(np.array([row[7] for row in rows], np.uint64))
    labels: Labels = np.repeat(first, counts) | _concatenate(rows, 3, np.uint64)
    scores = _concatenate(rows, 4, np.float32)
    is_lexical = request.retrieval is Retrieval.LEXICAL
    lexical: Scores | None = scores
    dense: Scores | None = scores
    if _Grouping.of(ranker, request).has_scores_of_sources:
        lexical = None if ranker.is_dense else _concatenate(rows, 5, np.float32)
        dense = None if is_lexical else _concatenate(rows, 6, np.float32)
    order = np.argsort(labels)
    # `CandidateLeaves` needs the ancestors of its leaves for one purpose: to group the leaves. The
    # SQL statement has already grouped them, so the array `above` has no rows.
    above = np.empty((0, len(labels)), np.uint32)
    table = CandidateLeaves(ranker.collection.settings, labels[order], above, scores[order])
    starts = np.cumsum([0, *counts], dtype=np.uint32)
    keys = first | np.array([row[2] for row in rows], np.uint64)
    groups = Groups(keys, scores[starts[:-1]], starts, table.rows(labels), scores)
    return AncestorGroups(
        table,
        groups,
        request.level,
        lexical=None if ranker.is_dense else lexical,
        dense=None if is_lexical else dense,
    )


def _concatenate(rows: Sequence[tuple[Any, ...]], column: int, dtype: type[Any]) -> NDArray[Any]:
    """Concatenates the arrays that all rows have in the column with the index `column`."""
    return np.array([*chain.from_iterable(row[column] for row in rows)], dtype)
