"""Ranks the rows of a view for one request.

The request is ranked by the lexical source, the dense source or both. Each source returns its best
rows as candidates, and the candidates are fused into one list of scored rows. If the best rows
belong to too few passages, the search calls `Ranker.best` again with a larger count. The statistics
of the query's terms are read once, when the `Ranker` is created, and used by all these calls.

If only the dense source is searched, and each leaf is represented by its ancestor at one level, one
compiled call ranks the rows and groups them.
"""

import hrag_fast
from hrag.engine.common.candidates import ScoredRows
from hrag.engine.common.fusion import fuse_scores, rank_one_source
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.sources.lexical_source import (
    LexicalQuery,
    LexicalSource,
    lexical_query,
)
from hrag.engine.embedded.search.sources.vector_source import VectorSource
from hrag.engine.embedded.search.view import View
from hrag.engine.find import FindRequest, Vector
from hrag.text.analysis import QueryTerm, analyzer
from hrag.values.search import Retrieval, SearchMode

# In these modes, other steps come between the ranking of leaves and their grouping.
_NOT_BY_LEVEL = (SearchMode.AUTO_MERGE, SearchMode.SUMMARY_FIRST)
_TERMS = LexicalSource()


class Ranker:
    """Ranks the rows of one view for one request.

    `terms` are the terms of the query's text. `terms` is empty if the query has no text or the view
    has no lexical index.
    `lexical` has the statistics of these terms, or is None if the request's retrieval is DENSE.
    """

    def __init__(self, view: View, request: FindRequest) -> None:
        self._view = view
        self._request = request
        self.terms: tuple[QueryTerm, ...] = ()
        self.lexical: LexicalQuery | None = None
        if request.text and view.settings.analyzer:
            analysis = analyzer(view.settings.analyzer)
            self.terms = analysis.query_terms(request.text, request.preferred)
        if request.retrieval is not Retrieval.LEXICAL:
            self._vectors = VectorSource(view, _vector(request))
        if request.retrieval is not Retrieval.DENSE:
            self.lexical = lexical_query(self.terms, view)

    def best(self, eligible: EligibleRows, count: int) -> ScoredRows:
        """Returns the best eligible rows, with their scores.

        * If the request's retrieval is DENSE, returns the `count` best rows by vectors.
        * If it is LEXICAL, returns the `count` best rows by terms.
        * If it is HYBRID, returns the `count` best rows by vectors together with the `count` best
          rows by terms, with fused scores. A row that is among both is returned once. So the result
          may have up to 2 * `count` rows.

        In the first round of a search by vectors, the rows are also grouped, if the request's mode
        groups them by their ancestors at one level.
        """
        request = self._request
        if self.lexical is None:
            if self._is_grouped and count == request.candidates:
                return self._vectors.grouped(eligible, count, request.level, request.aggregation)
            by_vector = self._vectors.candidates(eligible, count)
            return rank_one_source(self._view, by_vector, lexical=False)
        if request.retrieval is Retrieval.LEXICAL:
            by_terms = _TERMS.candidates(self.lexical, eligible, count)
            return rank_one_source(self._view, by_terms, lexical=True)
        by_vector = self._vectors.candidates(eligible, count)
        by_terms, lexical = _TERMS.candidates_and_scores(
            self.lexical, eligible, count, by_vector.rows
        )
        union = hrag_fast.join_candidates(
            by_terms.rows, by_terms.scores, by_vector.rows, by_vector.scores, lexical
        )
        union.dense[union.unscored] = self._vectors.cosines(union.rows[union.unscored])
        return fuse_scores(
            self._view,
            union.rows,
            union.lexical,
            union.dense,
            (by_terms, by_vector),
            request.fusion,
        )

    @property
    def _is_grouped(self) -> bool:
        """True if the groups of the first round depend only on the dense scores."""
        request = self._request
        return request.mode not in _NOT_BY_LEVEL and not request.neighbour_bonus


def _vector(request: FindRequest) -> Vector:
    if request.vector is None:
        raise TypeError("a request that is not LEXICAL needs the vector of its query")
    return request.vector
