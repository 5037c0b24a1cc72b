"""The lexical source: ranks leaves by the terms that they share with the query, with BM25.

`hrag.text.bm25` has the formula. The statistics in the formula are computed over all leaves of the
collection that are not deleted, in the segments and in the tail. So deleted leaves do not change
scores, and scores do not depend on how leaves are distributed over segments.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.candidates import Candidates, RowNumbers, Scores, best_of
from hrag.engine.common.sorted_sets import is_in
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments.segment_files import LoadedSegment
from hrag.text.analysis import QueryTerm
from hrag.text.bm25 import LengthNorm, leaf_scores, length_norm, term_weights
from hrag_fast import Postings, forward_matches

# A view caches the document frequencies of at most this many terms, which takes about two megabytes
# of memory.
_MAX_FREQUENCIES = 1 << 14


@dataclass(frozen=True, slots=True)
class TermMatches:
    """The occurrences of a query's terms in the tail, as three arrays `uint32[n]`.

    Occurrence i means: the row `rows[i]` of the view contains the query's term with the index
    `term_indices[i]`, and contains it `frequencies[i]` times.
    """

    rows: RowNumbers
    term_indices: NDArray[np.uint32]
    frequencies: NDArray[np.uint32]


_NO_ROWS = np.empty(0, np.uint32)
_NO_MATCHES = TermMatches(_NO_ROWS, _NO_ROWS, _NO_ROWS)


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """The q terms of a query, with the statistics of one view that BM25 needs.

    `ids` are the ids of the terms, ascending: `uint64[q]`. `weights` has the weight of each term,
    `float32[q]`: the fraction of the highest possible score that the term can contribute. `norm`
    has the parameters from which BM25's length normalisation of each leaf is computed. `in_tail`
    are the occurrences of the terms in the view's tail.
    """

    ids: NDArray[np.uint64]
    weights: Scores
    norm: LengthNorm
    in_tail: TermMatches


def lexical_query(terms: Sequence[QueryTerm], view: View) -> LexicalQuery:
    """Returns the terms of a query, with the statistics of `view` that BM25 needs.

    The result also includes terms that do not occur in the view.
    """
    terms = sorted(terms)
    term_ids = [term.id for term in terms]
    ids = np.array(term_ids, np.uint64)
    in_tail = _match_tail(ids, view)
    frequencies = _segment_frequencies(term_ids, view)
    if len(in_tail.rows):
        in_rows_of_tail = np.bincount(in_tail.term_indices, minlength=len(ids))
        frequencies = np.add(frequencies, in_rows_of_tail).tolist()
    weights = term_weights(terms, frequencies, view.living)
    return LexicalQuery(
        ids=ids,
        weights=np.array(weights, np.float32),
        norm=length_norm(view.living, view.living_terms),
        in_tail=in_tail,
    )


def _match_tail(ids: NDArray[np.uint64], view: View) -> TermMatches:
    """Returns the occurrences of terms in those rows of the tail that are not deleted.

    `ids` are the ids of the terms, ascending: `uint64[q]`.
    """
    used = view.count - view.tail_base
    if not used:
        return _NO_MATCHES
    starts = view.tail.term_starts[: used + 1]
    entries = view.tail.entries[: starts[-1]]
    rows, term_indices, frequencies = forward_matches(starts, entries, 0, used, ids)
    rows = rows + np.uint32(view.tail_base)
    living = view.alive[rows] != 0
    return TermMatches(rows[living], term_indices[living], frequencies[living])


def _segment_frequencies(ids: Sequence[int], view: View) -> list[int]:
    """Returns in how many rows of segments each term occurs, not counting deleted rows.

    `ids` are the ids of the terms, ascending.
    If a segment has deleted rows, counting the other rows takes long, because the whole posting
    list of each term must be read. So the counts are cached in the view. The longest posting lists
    are those of common terms, which many queries contain, so most of these counts are found in the
    cache.
    """
    cached = view.segment_frequencies  # All threads that search the view share this cache.
    frequencies = {term: cached.get(term) for term in ids}
    missing = [term for term, count in frequencies.items() if count is None]
    if missing:
        missing_ids, counts = np.array(missing, np.uint64), np.zeros(len(missing), np.int64)
        for segment, base, end in view.segment_rows():
            alive = view.liveness(base, end)
            if alive is not None and alive.all():
                alive = None
            counts += _postings(segment).document_frequencies(missing_ids, alive)
        counted = dict(zip(missing, counts.tolist(), strict=True))
        if len(cached) + len(counted) > _MAX_FREQUENCIES:
            cached.clear()
        cached.update(counted)
        frequencies.update(counted)
    return [frequencies[term] or 0 for term in ids]


class LexicalSource:
    """Ranks rows by BM25. Implements `CandidateSource`.

    The query that a method gets must be a result of `lexical_query` for the searched view.
    """

    def candidates(self, query: LexicalQuery, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` eligible rows with the highest scores. The result is exact.

        Rows that contain no term of the query are not returned.
        """
        return self.candidates_and_scores(query, eligible, count, _NO_ROWS)[0]

    def candidates_and_scores(
        self, query: LexicalQuery, eligible: EligibleRows, count: int, requested: RowNumbers
    ) -> tuple[Candidates, Scores]:
        """Returns the same as `candidates`, and the BM25 score of each row in `requested`.

        `requested` are eligible rows, ascending: `uint32[n]`. Their scores are `float32[n]`.
        """
        view, parts = eligible.view, []
        requested_scores = np.zeros(len(requested), np.float32)
        for segment, base, allowed in _segments_with_masks(eligible):
            end = base + segment.record.rows
            start, stop = bisect_left(requested, base), bisect_left(requested, end)
            rows, scores, requested_scores[start:stop] = _postings(segment).best_and_scores(
                query.ids,
                query.weights,
                *query.norm,
                view.lengths[base:end],
                allowed,
                count + 1,  # If more than `count` rows are found, there are further matches.
                requested[start:stop] - np.uint32(base),
            )
            complete = len(rows) <= count
            rows, scores = rows[:count] + np.uint32(base), scores[:count]
            parts.append(Candidates(rows, scores, exact=True, complete=complete))
        tail_rows, tail_scores = _tail_scores(query, view)
        if len(tail_rows):
            parts.append(_best_in_tail(tail_rows, tail_scores, eligible, count))
            positions = tail_rows.searchsorted(requested)
            has_term = np.append(tail_rows, np.uint32(0xFFFF_FFFF))[positions] == requested
            requested_scores[has_term] = tail_scores[positions[has_term]]
        return best_of(parts, count), requested_scores


def _best_in_tail(
    rows: RowNumbers, scores: Scores, eligible: EligibleRows, count: int
) -> Candidates:
    """Returns the `count` eligible rows of the tail with the highest scores.

    `rows` are the rows of the tail that contain a term of the query, and `scores` their scores.
    """
    if eligible.rows is not None:
        is_eligible = is_in(rows, eligible.rows)
        rows, scores = rows[is_eligible], scores[is_eligible]
    return best_of([Candidates(rows, scores, exact=True, complete=True)], count)


def _tail_scores(query: LexicalQuery, view: View) -> tuple[RowNumbers, Scores]:
    """Returns the rows of the tail that contain a term of the query, and the scores of these rows.

    The rows are ascending row numbers of the view. Deleted rows are left out.
    """
    matches = query.in_tail
    if not len(matches.rows):
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    rows, numbers = np.unique(matches.rows, return_inverse=True)
    scores = leaf_scores(
        query.weights,
        query.norm,
        numbers.astype(np.uint32),
        matches.term_indices,
        matches.frequencies,
        view.lengths[rows],
    )
    return rows, scores


def _segments_with_masks(
    eligible: EligibleRows,
) -> Iterator[tuple[LoadedSegment, int, NDArray[np.uint8] | None]]:
    """Yields each segment with the number of its first row and a mask of its eligible rows.

    The mask is `uint8[rows of the segment]`: 1 for an eligible row, 0 for any other row. The mask
    is None if all rows of the view are eligible. A segment without eligible rows may be left out.
    """
    view = eligible.view
    if eligible.rows is None:
        for segment, base, end in view.segment_rows():
            yield segment, base, view.liveness(base, end)
        return
    for segment, base, rows in eligible.in_segments():
        if len(rows):
            allowed = np.zeros(segment.record.rows, np.uint8)
            allowed[rows - np.uint32(base)] = 1
            yield segment, base, allowed


def _postings(segment: LoadedSegment) -> Postings:
    if segment.postings is None:
        raise TypeError("the segment's collection has no lexical index")
    return segment.postings


def rows_with_all(view: View, ids: NDArray[np.uint64]) -> RowNumbers:
    """Returns the rows of a view that contain all terms, ascending: `uint32[n]`.

    Leaves out deleted rows. `ids` are the ids of the terms: `uint64[q]`.
    """
    ids = np.unique(ids)
    in_segments = []
    for segment, base, _ in view.segment_rows():
        in_segments.append(_postings(segment).rows_with_all(ids) + np.uint32(base))
    in_tail = _match_tail(ids, view)
    rows, counts = np.unique(in_tail.rows, return_counts=True)
    rows = np.concatenate([*in_segments, rows[counts == len(ids)]]).astype(np.uint32)
    living: RowNumbers = rows[view.alive[rows] != 0]
    return living
