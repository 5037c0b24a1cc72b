"""Which rows answer a query best? One module for each kind of index.

A source searches the segments and the tail of a view. It uses the part of them that it needs:
vectors or postings. It knows nothing about levels, search modes or other sources.
"""

from typing import Protocol, TypeVar

from hrag.engine.common.candidates import Candidates
from hrag.engine.embedded.search.eligible_rows import EligibleRows

Query_contra = TypeVar("Query_contra", contravariant=True)


class CandidateSource(Protocol[Query_contra]):
    """Finds candidates for queries of one type, for instance a vector or the terms of a text."""

    def candidates(self, query: Query_contra, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` best eligible rows with their scores.

        Returns only eligible rows. Returns fewer than `count` rows only if the source has no
        more.
        """
