"""Which rows answer a query best? One module for each kind of index.

A row is the position of one leaf in a view, the form of a collection in memory. A source is one way
to rank the rows of a view: the dense source ranks them by their vectors, and the lexical source by
their terms. A source knows nothing about levels, search modes or other sources.
"""

from typing import Protocol, TypeVar

from hrag.engine.common.candidates import Candidates
from hrag.engine.embedded.search.eligible_rows import EligibleRows

Query_contra = TypeVar("Query_contra", contravariant=True)


class CandidateSource(Protocol[Query_contra]):
    """Finds the rows of a view that match a query best.

    A source has one type of query, for example vectors or terms.
    """

    def candidates(self, query: Query_contra, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` best of the eligible rows, with their scores.

        Returns fewer rows only if no other eligible row matches the query.
        """
