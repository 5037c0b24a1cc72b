"""The lexical source: the leaves that share most with the query's terms, by BM25.

Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the
idf of Lucene, k1 1.2 and b 0.75. Scores are divided by the largest that the query's terms
allow, so they lie in 0..1 whatever the query. Statistics are those of the living leaves of the
whole collection, over segments and tail: a deleted leaf counts no more, and how leaves are
spread over segments changes no score.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.candidates import Candidates, RowNumbers, Scores, best_of
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments.segment_files import LoadedSegment
from hrag.text.analysis import QueryTerm, term_weights
from hrag_fast import Postings, bm25, forward_matches

_K1 = 1.2
_B = 0.75
_MAX_FREQUENCIES = 1 << 14  # Of a view; about two megabytes.


@dataclass(frozen=True, slots=True)
class TermMatches:
    """Where terms occur in the tail: `uint32[n]` rows of the view, which term, how often."""

    rows: RowNumbers
    which: NDArray[np.uint32]
    frequencies: NDArray[np.uint32]


_NONE = np.empty(0, np.uint32)
_NO_MATCHES = TermMatches(_NONE, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """A query's terms with the statistics of one view.

    `ids` are `uint64[q]`, ascending; `weights` `float32[q]`, the share of each in the largest
    possible score. A leaf of n terms has the norm `a + b * n`.
    """

    ids: NDArray[np.uint64]
    weights: Scores
    a: float
    b: float
    in_tail: TermMatches


def lexical_query(terms: Sequence[QueryTerm], view: View) -> LexicalQuery:
    """Returns the query for a view; its terms may occur nowhere in it."""
    terms = sorted(terms)
    ids = np.array([term.id for term in terms], np.uint64)
    in_tail = _in_tail(ids, view)
    frequencies = np.bincount(in_tail.which, minlength=len(ids)) + _in_segments(ids, view)
    weights = term_weights(terms, frequencies.tolist(), view.living)
    mean_length = view.living_terms / max(view.living, 1)
    return LexicalQuery(
        ids=ids,
        weights=np.array(weights, np.float32),
        a=_K1 * (1 - _B),
        b=_K1 * _B / max(mean_length, 1.0),
        in_tail=in_tail,
    )


def _in_tail(ids: NDArray[np.uint64], view: View) -> TermMatches:
    """Where the terms occur in living rows of the tail."""
    used = view.count - view.tail_base
    if not used:
        return _NO_MATCHES
    starts = view.tail.term_starts[: used + 1]
    entries = view.tail.entries[: starts[-1]]
    rows, which, frequencies = forward_matches(starts, entries, 0, used, ids)
    rows = rows + np.uint32(view.tail_base)
    living = view.alive[rows] != 0
    return TermMatches(rows[living], which[living], frequencies[living])


def _in_segments(ids: NDArray[np.uint64], view: View) -> NDArray[np.int64]:
    """How many living rows of the segments have each term.

    Where rows were deleted, that is counted in the terms' lists: common terms, which most queries
    share, have the long ones.
    """
    known = view.segment_frequencies  # Of all threads.
    found = {term: known.get(term) for term in ids.tolist()}
    missing = ids[[count is None for count in found.values()]]
    if len(missing):
        counts = np.zeros(len(missing), np.int64)
        for segment, base, end in view.segment_rows():
            alive = view.liveness(base, end)
            if alive is not None and alive.all():
                alive = None
            counts += _postings(segment).document_frequencies(missing, alive)
        counted = dict(zip(missing.tolist(), counts.tolist(), strict=True))
        if len(known) + len(counted) > _MAX_FREQUENCIES:
            known.clear()
        known.update(counted)
        found.update(counted)
    return np.array([found[term] for term in ids.tolist()], np.int64)


class LexicalSource:
    """See `CandidateSource`. Queries are those of the view that is searched."""

    def candidates(self, query: LexicalQuery, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` eligible rows with the highest scores over 0; they are exact."""
        found = [_best_in_tail(query, eligible, count)]
        for segment, base, allowed in _allowed(eligible):
            end = base + segment.record.rows
            rows, scores = _postings(segment).best(
                query.ids,
                query.weights,
                query.a,
                query.b,
                eligible.view.lengths[base:end],
                allowed,
                count + 1,  # One more shows whether there are more.
            )
            complete = len(rows) <= count
            found.append(Candidates(rows + np.uint32(base), scores, exact=True, complete=complete))
        return best_of(found, count)

    def scores(self, query: LexicalQuery, view: View, rows: RowNumbers) -> Scores:
        """Returns the score of each of `rows`, which are ascending: `float32[n]`."""
        scores = np.zeros(len(rows), np.float32)
        tail_rows, tail_scores = _tail_scores(query, view)
        first = np.searchsorted(rows, view.tail_base)
        at = np.searchsorted(tail_rows, rows[first:])
        found = np.append(tail_rows, np.uint32(0xFFFF_FFFF))[at] == rows[first:]
        scores[first:][found] = tail_scores[at[found]]
        for segment, base, end in view.segment_rows():
            start, stop = np.searchsorted(rows, (base, end))
            if start < stop:
                scores[start:stop] = _postings(segment).scores(
                    query.ids,
                    query.weights,
                    query.a,
                    query.b,
                    view.lengths[base:end],
                    rows[start:stop] - np.uint32(base),
                )
        return scores


def _best_in_tail(query: LexicalQuery, eligible: EligibleRows, count: int) -> Candidates:
    rows, scores = _tail_scores(query, eligible.view)
    if eligible.rows is not None:
        inside = eligible.contains(rows)
        rows, scores = rows[inside], scores[inside]
    return best_of([Candidates(rows, scores, exact=True, complete=True)], count)


def _tail_scores(query: LexicalQuery, view: View) -> tuple[RowNumbers, Scores]:
    """The tail's living rows with a term of the query, ascending, and their scores."""
    matches = query.in_tail
    if not len(matches.rows):
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    rows, numbers = np.unique(matches.rows, return_inverse=True)
    scores = bm25(
        query.weights,
        query.a,
        query.b,
        numbers.astype(np.uint32),
        matches.which,
        matches.frequencies,
        view.lengths[rows],
    )
    return rows, scores


def _allowed(
    eligible: EligibleRows,
) -> Iterator[tuple[LoadedSegment, int, NDArray[np.uint8] | None]]:
    """Each segment with its first row and a byte for each row that is 0 if it is not eligible.

    None instead of the bytes if all rows are.
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
    """Returns the living rows that have every one of the terms, `uint64[q]`: ascending."""
    ids = np.unique(ids)
    found = []
    for segment, base, _ in view.segment_rows():
        found.append(_postings(segment).rows_with_all(ids) + np.uint32(base))
    in_tail = _in_tail(ids, view)
    rows, counts = np.unique(in_tail.rows, return_counts=True)
    rows = np.concatenate([*found, rows[counts == len(ids)]]).astype(np.uint32)
    living: RowNumbers = rows[view.alive[rows] != 0]
    return living
