"""Ranks the leaves of a collection for a request.

The leaves that were read are rows of a table; a ranking refers to leaves by their row numbers.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from psycopg import sql

from hrag.engine.common.candidates import Candidates, ScoredRows, Scores
from hrag.engine.common.fusion import fuse_scores, rank_one_source
from hrag.engine.common.labels import Labels
from hrag.engine.find import FindRequest
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.found_leaves import CandidateLeaves
from hrag.engine.postgres.search.sources.lexical_source import MATCHES, LexicalQuery, Row
from hrag.engine.postgres.search.sources.vector_source import (
    BY_INDEX,
    VectorSource,
    nearest_leaves,
    requested_from_index,
)
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.leaf_tables import rendered
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.passages.cited_place import TermLocator
from hrag.text.analysis import QueryTerm, analyzer
from hrag.values.search import Retrieval

_MATCHES_AND_NEAREST = f"""
{{matches}} UNION ALL
(SELECT 3, ordinal << 20 | leaf, {BY_INDEX}, NULL, least(greatest(-distance, -1), 1)
 FROM ({{nearest}}) AS nearest
 ORDER BY distance, ordinal, leaf LIMIT {{count}})
"""
_NEAREST_KIND = 3


class _NearestLeaves(NamedTuple):
    """The leaves that the dense source returned, ascending by label.

    `exact` is True if it is certain that no other eligible leaf is nearer to the query's vector.
    `complete` is True if there are no other eligible leaves.
    """

    leaves: CandidateLeaves
    exact: bool
    complete: bool


class FirstCandidates(NamedTuple):
    """The leaves and scores that each source returned in a search's first round, by label.

    A search ranks leaves in rounds, each with more candidates than the round before. The labels are
    in ascending order. `graph` is True if the nearest leaves come from the HNSW index. `complete`
    is True if no other eligible leaf can be a candidate.
    """

    lexical_labels: Labels
    lexical_scores: Scores
    dense_labels: Labels
    cosines: Scores
    graph: bool
    complete: bool


class Ranker:
    """Ranks the eligible leaves of one collection in one snapshot for one request.

    A request may be ranked in several rounds, each with more candidates than the previous one. The
    table of candidates has the leaves of all rounds so far.
    """

    def __init__(
        self,
        connection: Connection,
        collection: OpenedCollection,
        request: FindRequest,
        eligible: EligibleLeaves,
    ) -> None:
        self.collection = collection
        self.eligible = eligible
        self.is_dense = request.retrieval is Retrieval.DENSE
        self._connection = connection
        self._request = request
        self._analyzer = None
        terms: Sequence[QueryTerm] = ()
        if collection.settings.analyzer:
            self._analyzer = analyzer(collection.settings.analyzer)
            terms = self._analyzer.query_terms(request.text, request.preferred)
        self._terms = sorted(terms)
        self._ids = np.array([term.id for term in self._terms], np.uint64)
        is_lexical = request.retrieval is Retrieval.LEXICAL
        vector = None if is_lexical else request.vector
        self.vectors = VectorSource(connection, collection, vector)
        self._table = CandidateLeaves.none(collection.settings)
        self._lexical: LexicalQuery | None = None

    @property
    def lexical(self) -> LexicalQuery:
        """The BM25 scores of leaves for the query; the first access reads the postings.

        A dense search does not use these scores.
        """
        if self._lexical is None:
            parameters = {**self.collection.key, "terms": bigints(self._ids)}
            self._set_lexical(self._connection.execute(MATCHES, parameters).fetchall())
        assert self._lexical is not None
        return self._lexical

    def _set_lexical(self, rows: Sequence[Row]) -> None:
        self._lexical = LexicalQuery(self.collection, self._terms, rows, self._connection.deadline)

    @property
    def locator(self) -> TermLocator:
        """The object that finds the query's terms in passages.

        In a dense search, all terms have the same weight. In other searches, rare terms have
        higher weights.
        """
        weights = np.ones(len(self._ids), np.float32) if self.is_dense else self.lexical.weights
        return TermLocator(self._analyzer, self._ids, weights)

    def has_all(self, returned: int, count: int) -> bool:
        """Returns True if a source has no more eligible leaves than the leaves that it returned.

        The source was asked for at most `count` leaves, and it returned `returned` leaves.
        """
        return returned < count or returned >= self.eligible.count

    def first_candidates(self, count: int) -> FirstCandidates | None:
        """Reads the candidates of the first round of a lexical or hybrid search in one statement.

        Each source returns at most `count` leaves. Returns None if the HNSW index returned fewer
        leaves than requested. A dense search does not use this method.
        """
        empty = np.empty(0, np.uint64), np.empty(0, np.float32)
        if self._request.retrieval is Retrieval.LEXICAL:
            labels, scores, complete = self.lexical.best(self.eligible, count)
            return FirstCandidates(labels, scores, *empty, graph=False, complete=complete)
        graph = self.vectors.uses_graph(self.eligible, count)
        home, condition = self.collection.home, self.eligible.condition
        statement = _matches_and_nearest(home, condition, count, graph=graph)
        rows = self.vectors.run(
            statement, self.eligible, count, graph=graph, terms=bigints(self._ids)
        ).fetchall()
        self._set_lexical(rows)
        nearest = sorted(row for row in rows if row[0] == _NEAREST_KIND)
        if graph and (not nearest or nearest[0][2] < requested_from_index(self.eligible, count)):
            return None
        labels, scores, _ = self.lexical.best(self.eligible, count)
        return FirstCandidates(
            labels,
            scores,
            np.array([row[1] for row in nearest], np.uint64),
            np.array([row[4] for row in nearest], np.float32),
            graph,
            self.has_all(len(nearest), count),
        )

    def best(self, count: int) -> ScoredRows:
        """Returns the best eligible leaves, with their scores.

        A lexical or a dense search has one source, and returns the `count` best leaves of this
        source. A hybrid search takes the `count` best leaves of the lexical source and the `count`
        best leaves of the dense source. It returns all these leaves together, each leaf once, with
        fused scores. So the result may have up to 2 * `count` leaves.
        """
        if self.is_dense:
            by_vector = self._candidates_of(self._search_dense(count))
            return rank_one_source(self._table, by_vector, lexical=False)
        labels, scores, complete = self.lexical.best(self.eligible, count)
        dense = None
        if self._request.retrieval is Retrieval.HYBRID:
            dense = self._search_dense(count)
        self._table = self._table.plus(self.vectors.leaves(self._table.missing(labels)))
        table = self._table
        by_terms = Candidates(table.rows(labels), scores, exact=True, complete=complete)
        if dense is None:
            return rank_one_source(table, by_terms, lexical=True)
        by_vector = self._candidates_of(dense)
        rows = np.union1d(by_terms.rows, by_vector.rows)
        return fuse_scores(
            table,
            rows,
            self.lexical.scores(table.labels[rows]),
            table.cosines[rows],
            (by_terms, by_vector),
            self._request.fusion,
        )

    def _search_dense(self, count: int) -> _NearestLeaves:
        leaves, exact = self.vectors.nearest(self.eligible, count)
        self._table = self._table.plus(leaves)
        return _NearestLeaves(leaves, exact, self.has_all(len(leaves.labels), count))

    def _candidates_of(self, nearest: _NearestLeaves) -> Candidates:
        rows = self._table.rows(nearest.leaves.labels)
        return Candidates(rows, nearest.leaves.cosines, nearest.exact, nearest.complete)


@lru_cache(maxsize=1024)
def _matches_and_nearest(home: int | None, condition: str, count: int, *, graph: bool) -> sql.SQL:
    statement = sql.SQL(_MATCHES_AND_NEAREST).format(
        matches=sql.SQL(MATCHES),
        nearest=nearest_leaves(home, condition, count, graph=graph),
        count=sql.Literal(count),
    )
    return rendered(statement)
