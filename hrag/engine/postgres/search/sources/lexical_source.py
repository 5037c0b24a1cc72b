"""The lexical source: ranks leaves by the BM25 score of the query's terms.

The analyzer, the formula (`hrag.text.bm25`) and the statistics are the same in every engine. One
statement reads the postings of the query's terms, the term vectors of documents that have no
postings yet, and the tombstones of deleted documents. Scores are computed in this process for a
limited count of documents at a time, so that the memory for decoded postings does not grow with the
count of matches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.candidates import Scores
from hrag.engine.common.labels import Labels, labels_of, ordinals_of
from hrag.engine.common.sorted_sets import begins_run, is_in
from hrag.engine.postgres.indexes.postings import PostingArrays, StoredPostings
from hrag.engine.postgres.indexes.term_vectors import unpacked
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.text.analysis import QueryTerm
from hrag.text.bm25 import leaf_scores, length_norm, term_weights
from hrag.values.deadline import Deadline
from hrag_fast import forward_matches

# About this many postings are decoded and scored at a time; they take about 8 MB.
_SLICE_POSTINGS = 1 << 17
# A query needs its decoded postings twice: to count the leaves of each term, and then to compute
# the scores. If there are at most this many postings, they stay in memory between the two steps,
# where they take 20 MB. Otherwise they are decoded twice.
_MAX_CACHED_POSTINGS = 1 << 20

MATCHES = """
SELECT 0 AS kind, term, first_ordinal, postings, NULL::float8 FROM hrag.postings
JOIN hrag.postings_parts USING (tenant_id, collection_id, part)
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND term = ANY(%(terms)b::bigint[])
UNION ALL
SELECT 1, ordinal, leaf_count, vector, NULL FROM hrag.term_vectors
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
UNION ALL
SELECT 2, ordinal, 0, NULL, NULL FROM hrag.tombstones
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""
"""The SQL statement that reads postings, term vectors and tombstones.

`_StoredMatches.of` decodes its rows. A larger statement may append rows of other kinds by UNION
ALL.
"""
# The values of the column `kind` in the rows of the SQL statement MATCHES: 0 for postings, 1 for
# term vectors, 2 for tombstones.
_KINDS = range(3)

Row = tuple[int, int, int, bytes, float]


@dataclass(frozen=True, slots=True, eq=False)
class TermMatches:
    """The occurrences of terms in the leaves of documents that are not deleted.

    `labels`, `uint64[n]`, are the labels of the leaves with at least one of the terms, ascending.
    `lengths`, `uint32[n]`, are the lengths of these leaves. `rows`, `term_indices` and
    `frequencies` are `uint32[m]`, where m is the count of matches. Match j means that the leaf
    `labels[rows[j]]` contains a term `frequencies[j]` times. `term_indices[j]` is the index of this
    term among the terms that were looked up. The matches of each leaf are in order of terms.
    """

    labels: Labels
    lengths: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    term_indices: NDArray[np.uint32]
    frequencies: NDArray[np.uint32]

    def with_all(self, terms: int) -> Labels:
        """Returns the labels of the leaves that contain all looked-up terms, in ascending order.

        `terms` is the count of the looked-up terms.
        """
        counts = np.bincount(self.rows, minlength=len(self.labels))
        labels: Labels = self.labels[counts == terms]
        return labels


class LexicalQuery:
    """The BM25 scores of all leaves of a collection for a query.

    `terms` are the query's terms in ascending order of their ids. `rows` are the rows that the SQL
    statement MATCHES returned for these terms. `weights`, `float32[q]`, has the share of each of
    the q terms in the largest possible score. Creating the object computes the scores, and raises
    the errors of `Deadline.check`.
    """

    def __init__(
        self,
        collection: OpenedCollection,
        terms: Sequence[QueryTerm],
        rows: Sequence[Row],
        deadline: Deadline,
        *,
        slice_postings: int = _SLICE_POSTINGS,
        max_cached_postings: int = _MAX_CACHED_POSTINGS,
    ) -> None:
        """Computes the scores, for about `slice_postings` postings at a time to limit the memory.

        Decoded postings are needed twice: to count the leaves of each term, and to score. Up to
        `max_cached_postings` postings are decoded once and cached; more postings are decoded twice.
        """
        stored = _StoredMatches.of(rows, np.array([term.id for term in terms], np.uint64))
        is_small = stored.postings.count <= max_cached_postings
        slices = [*stored.slices(deadline, slice_postings)] if is_small else None
        frequencies = np.zeros(len(terms), np.int64)
        for matches in slices or stored.slices(deadline, slice_postings):
            frequencies += np.bincount(matches.term_indices, minlength=len(terms))
        weights = term_weights(terms, frequencies.tolist(), collection.leaves)
        self.weights = np.array(weights, np.float32)
        norm = length_norm(collection.leaves, collection.terms)
        labels, scores = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        for matches in slices or stored.slices(deadline, slice_postings):
            by_leaf = matches.by_leaf()
            labels.append(by_leaf.labels)
            columns = by_leaf.rows, by_leaf.term_indices, by_leaf.frequencies
            scores.append(leaf_scores(self.weights, norm, *columns, by_leaf.lengths))
        all_labels = np.concatenate(labels)
        order = np.argsort(all_labels, kind="stable")
        self._labels, self._scores = all_labels[order], np.concatenate(scores)[order]

    def best(self, eligible: EligibleLeaves, count: int) -> tuple[Labels, Scores, bool]:
        """Returns the `count` eligible leaves with the highest positive scores, ascending by label.

        Returns the labels of these leaves, their scores, and True if no other eligible leaf has a
        positive score.
        """
        inside = (self._scores > 0) & eligible.contains(self._labels)
        labels, scores = self._labels[inside], self._scores[inside]
        if len(labels) <= count:
            return labels, scores, True
        lowest = np.partition(scores, len(scores) - count)[-count]
        best = scores > lowest
        # If not all leaves with the score `lowest` can be returned, those with the lowest labels
        # are returned. They are first in `equal`, because `labels` is in ascending order.
        equal = np.flatnonzero(scores == lowest)
        best[equal[: count - np.count_nonzero(best)]] = True
        return labels[best], scores[best], False

    def scores(self, labels: Labels) -> Scores:
        """Returns the score of each of `labels`; 0 for leaves without any of the terms."""
        scores = np.zeros(len(labels), np.float32)
        has_score = is_in(labels, self._labels)
        scores[has_score] = self._scores[np.searchsorted(self._labels, labels[has_score])]
        return scores


def leaves_with_all(
    connection: Connection, collection: OpenedCollection, ids: NDArray[np.uint64]
) -> Labels:
    """Returns the labels of the leaves that contain every term in `ids`, in ascending order.

    `ids` are the ids of terms, in ascending order.
    """
    stored = _read_matches(connection, collection, ids)
    leaves = [m.by_leaf().with_all(len(ids)) for m in stored.slices(connection.deadline)]
    return np.sort(np.concatenate([np.empty(0, np.uint64), *leaves]))


def matches_of(
    connection: Connection, collection: OpenedCollection, ids: NDArray[np.uint64]
) -> TermMatches:
    """Returns where the terms in `ids` occur in the leaves of documents that are not deleted.

    `ids` are the ids of terms, in ascending order.
    """
    return _read_matches(connection, collection, ids).whole().by_leaf()


def _read_matches(
    connection: Connection, collection: OpenedCollection, ids: NDArray[np.uint64]
) -> "_StoredMatches":
    parameters = {**collection.key, "terms": bigints(ids)}
    return _StoredMatches.of(connection.execute(MATCHES, parameters).fetchall(), ids)


class _Matches(NamedTuple):
    """The label, term index, frequency and leaf length of each match.

    A match is the occurrence of a term in a leaf. The matches of each leaf are in order of terms.
    """

    labels: Labels
    term_indices: NDArray[np.uint32]
    frequencies: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    @classmethod
    def from_postings(cls, ids: NDArray[np.uint64], postings: PostingArrays) -> "_Matches":
        indices = np.searchsorted(ids, postings.terms).astype(np.uint32)
        term_indices = np.repeat(indices, np.diff(postings.starts))
        return cls(postings.labels, term_indices, postings.frequencies, postings.lengths)

    @classmethod
    def from_term_vectors(cls, ids: NDArray[np.uint64], vectors: Sequence[Row]) -> "_Matches":
        terms = unpacked([vector for _, _, _, vector, _ in vectors])
        count = len(terms.lengths)
        rows, term_indices, frequencies = forward_matches(
            terms.starts, terms.entries, 0, count, ids
        )
        labels = [labels_of(ordinal, leaves) for _, ordinal, leaves, *_ in vectors]
        all_labels = np.concatenate([np.empty(0, np.uint64), *labels])
        return cls(all_labels[rows], term_indices, frequencies, terms.lengths[rows])

    @classmethod
    def concatenated(cls, first: "_Matches", second: "_Matches") -> "_Matches":
        return cls(
            np.concatenate((first.labels, second.labels)),
            np.concatenate((first.term_indices, second.term_indices)),
            np.concatenate((first.frequencies, second.frequencies)),
            np.concatenate((first.lengths, second.lengths)),
        )

    def without(self, deleted: Labels) -> "_Matches":
        """Returns these matches, except the matches in deleted documents.

        `deleted` are the ordinals of deleted documents, in ascending order.
        """
        if not len(deleted):
            return self
        is_living: NDArray[Any] = ~is_in(ordinals_of(self.labels), deleted)
        return _Matches(*(column[is_living] for column in self))

    def by_leaf(self) -> TermMatches:
        """Returns these matches, in the same order, as a TermMatches.

        A TermMatches contains the label of each leaf with a match only once, in ascending order.
        Each match refers to its leaf by an index into these labels.
        """
        # This sort is fast, because the labels of each term are already ascending.
        order = np.argsort(self.labels, kind="stable")
        ordered = self.labels[order]
        first = begins_run(ordered)
        rows = np.empty(len(order), np.uint32)
        rows[order] = np.cumsum(first, dtype=np.uint32) - np.uint32(1)
        lengths = self.lengths[order[first]]
        return TermMatches(ordered[first], lengths, rows, self.term_indices, self.frequencies)


class _StoredMatches(NamedTuple):
    """The rows that the SQL statement MATCHES returned: postings, term vectors and tombstones.

    `ids` are the ids of the looked-up terms, in ascending order.
    """

    ids: NDArray[np.uint64]
    postings: StoredPostings
    vectors: Sequence[Row]
    deleted: Labels

    @classmethod
    def of(cls, rows: Sequence[Row], ids: NDArray[np.uint64]) -> "_StoredMatches":
        ordered = sorted(rows, key=itemgetter(0, 1))
        postings, vectors, tombstones = (
            [row for row in ordered if row[0] == kind] for kind in _KINDS
        )
        stored = StoredPostings([(term, first, row) for _, term, first, row, _ in postings])
        deleted = np.array([ordinal for _, ordinal, *_ in tombstones], np.uint64)
        return cls(ids, stored, vectors, deleted)

    def slices(
        self, deadline: Deadline, slice_postings: int = _SLICE_POSTINGS
    ) -> Iterator[_Matches]:
        """Yields the matches in slices of about `slice_postings` postings.

        All matches of a document are in the same slice. Checks the deadline before each slice, and
        raises the errors of `Deadline.check`.
        """
        for postings in self.postings.slices(slice_postings):
            deadline.check("scoring words")
            yield _Matches.from_postings(self.ids, postings).without(self.deleted)
        deadline.check("scoring words")
        yield _Matches.from_term_vectors(self.ids, self.vectors).without(self.deleted)

    def whole(self) -> _Matches:
        """Returns all matches at once, without the matches in deleted documents."""
        in_postings = _Matches.from_postings(self.ids, self.postings.whole())
        in_vectors = _Matches.from_term_vectors(self.ids, self.vectors)
        return _Matches.concatenated(in_postings, in_vectors).without(self.deleted)
