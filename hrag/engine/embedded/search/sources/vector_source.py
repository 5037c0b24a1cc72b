"""The dense source: ranks leaves by the cosine between their vectors and the query's vector.

`hrag_fast.DenseSearch` decides for each segment whether its HNSW graph (Malkov, Yashunin 2016) is
searched or its eligible rows are scanned.
"""

import hrag_fast
from hrag.engine.common.ancestor_groups import KERNEL_CODE
from hrag.engine.common.candidates import Candidates, RowNumbers, ScoredRows, Scores
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.view import View
from hrag.engine.find import Vector
from hrag.values.search import Aggregation


class VectorSource:
    """Ranks the rows of a view by the cosine between their vectors and the vector of one query.

    `vector` is `float32[dimension]`, of unit length. If the source is searched again with a larger
    `count`, the graph searches continue where they stopped. Searching the graph for one row is
    assumed to cost as much as scanning `search_cost` rows. Not safe to use from several threads.
    """

    def __init__(
        self, view: View, vector: Vector, search_cost: int = hrag_fast.SEARCH_COST
    ) -> None:
        """Raises TypeError if the vectors of a segment are not loaded."""
        self._view = view
        self._search = hrag_fast.DenseSearch(
            vector,
            [segment.vectors for segment in view.segments],
            view.tail.vectors,
            view.alive,
            view.count,
            view.living,
            search_cost,
        )

    def candidates(self, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` nearest eligible rows, or all eligible rows if there are fewer.

        The scores are cosines. The result is exact if the vectors of all eligible rows were
        compared with the query. Otherwise it is approximate.
        """
        return Candidates(*self._search.nearest(count, eligible.rows, eligible.exact))

    def grouped(
        self, eligible: EligibleRows, count: int, level: int, aggregation: Aggregation
    ) -> ScoredRows:
        """Returns the same rows as `candidates`, grouped by their ancestors at `level`."""
        view = self._view
        (rows, scores, exact, complete), groups = self._search.climb(
            count,
            view.labels,
            view.ancestors[level - view.settings.tree.embedding_level],
            KERNEL_CODE[aggregation],
            eligible.rows,
            eligible.exact,
        )
        return ScoredRows(view, rows, scores, None, scores, exact, complete, groups)

    def cosines(self, rows: RowNumbers) -> Scores:
        """Returns the exact cosine of each row in `rows` with the query: `float32[n]`.

        `rows` are row numbers of the view, ascending.
        """
        return self._search.scores(rows)
