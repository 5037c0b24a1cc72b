"""Which rows answer a query best? One module for each kind of index.

A source searches the segments and the tail of a view. The dense source uses their vectors, and the
lexical source uses their terms. A source knows nothing about levels, search modes or other sources.
"""

from typing import Protocol, TypeVar

from hrag.engine.common.candidates import Candidates
from hrag.engine.embedded.search.eligible_rows import EligibleRows

Query_contra = TypeVar("Query_contra", contravariant=True)


class CandidateSource(Protocol[Query_contra]):
    """Finds the best rows for queries of one type, for instance for vectors or for terms."""

    def candidates(self, query: Query_contra, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` best of the eligible rows, with their scores.

        Returns fewer rows only if the source has no further eligible row.
        """
