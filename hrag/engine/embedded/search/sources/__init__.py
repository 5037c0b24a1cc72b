"""Which rows answer a query best? One module for each kind of index.

A source searches a view: its segments and its tail, each by the part that the source needs.
It knows nothing of levels, modes or other sources.
"""

from typing import Protocol, TypeVar

from hrag.engine.common.candidates import Candidates
from hrag.engine.embedded.search.eligible_rows import EligibleRows

Query_contra = TypeVar("Query_contra", contravariant=True)


class CandidateSource(Protocol[Query_contra]):
    """Finds candidates for queries of one type, such as a vector or the terms of a text."""

    def candidates(self, query: Query_contra, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` best of the eligible rows, or all that the source can give.

        Never returns a row that is not eligible, and fewer than `count` only if there are no
        more.
        """
