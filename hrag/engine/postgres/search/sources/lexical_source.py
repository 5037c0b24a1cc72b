"""The lexical source: the leaves that share most with the query's terms, by BM25.

The same formula, analyzer and statistics as every engine's; see
`hrag.text.analysis.term_weights` and `hrag_fast.bm25`. Postings of the query's terms, the term
vectors of documents that are in no part yet and the tombstones of those that are deleted are read
in one statement; scores are computed here, of some documents at a time, so that memory does not
grow with all their matches.
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
from hrag.engine.postgres.indexes.postings import Postings, StoredPostings
from hrag.engine.postgres.indexes.term_vectors import unpacked
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.text.analysis import QueryTerm, term_weights
from hrag.values.deadline import Deadline
from hrag_fast import bm25, forward_matches

_K1 = 1.2
_B = 0.75
_SLICE_POSTINGS = 1 << 17  # Unpacked and scored at a time: some 8 MB.
_KEPT_POSTINGS = 1 << 20  # More are unpacked twice, to be counted and to be scored: 20 MB.

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
"""What `_StoredMatches.of` takes; other kinds of rows may follow."""
_KINDS = range(3)  # Postings, term vectors, tombstones.

Row = tuple[int, int, int, bytes, float]


@dataclass(frozen=True, slots=True, eq=False)
class TermMatches:
    """Where terms occur in living leaves.

    `labels` are the leaves that have any, `uint64[n]`, ascending, with `lengths`, `uint32[n]`.
    Match j says that leaf `rows[j]` has term `which[j]` `frequencies[j]` times: `uint32[m]`;
    those of one leaf are in order of terms.
    """

    labels: Labels
    lengths: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    which: NDArray[np.uint32]
    frequencies: NDArray[np.uint32]

    def with_all(self, terms: int) -> Labels:
        """Returns the leaves that have all of the `terms` terms, ascending."""
        counts = np.bincount(self.rows, minlength=len(self.labels))
        found: Labels = self.labels[counts == terms]
        return found


class LexicalQuery:
    """A query's terms with the statistics of one collection, and the score of every leaf.

    `terms` are in ascending order of their ids, `rows` those of MATCHES for them. `weights`,
    `float32[q]`, are the share of each term in the largest possible score. Raises what
    `Deadline.check` raises.
    """

    def __init__(
        self,
        collection: OpenedCollection,
        terms: Sequence[QueryTerm],
        rows: Sequence[Row],
        deadline: Deadline,
    ) -> None:
        stored = _StoredMatches.of(rows, np.array([term.id for term in terms], np.uint64))
        slices = [*stored.slices(deadline)] if stored.are_few else None
        frequencies = np.zeros(len(terms), np.int64)
        for found in slices or stored.slices(deadline):
            frequencies += np.bincount(found.which, minlength=len(terms))
        weights = term_weights(terms, frequencies.tolist(), collection.leaves)
        self.weights = np.array(weights, np.float32)
        mean_length = collection.terms / max(collection.leaves, 1)
        b = _K1 * _B / max(mean_length, 1.0)
        labels, scores = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        for found in slices or stored.slices(deadline):
            own = found.by_leaf()
            labels.append(own.labels)
            matches = own.rows, own.which, own.frequencies
            scores.append(bm25(self.weights, _K1 * (1 - _B), b, *matches, own.lengths))
        every = np.concatenate(labels)
        order = np.argsort(every, kind="stable")
        self._labels, self._scores = every[order], np.concatenate(scores)[order]

    def best(self, eligible: EligibleLeaves, count: int) -> tuple[Labels, Scores, bool]:
        """Returns the `count` eligible leaves with the highest scores over 0, ascending by label.

        The last value is True if there are no more.
        """
        inside = (self._scores > 0) & eligible.contains(self._labels)
        labels, scores = self._labels[inside], self._scores[inside]
        if len(labels) <= count:
            return labels, scores, True
        lowest = np.partition(scores, len(scores) - count)[-count]
        best = scores > lowest
        equal = np.flatnonzero(scores == lowest)  # Ascending by label, as all are.
        best[equal[: count - np.count_nonzero(best)]] = True
        return labels[best], scores[best], False

    def scores(self, labels: Labels) -> Scores:
        """Returns the score of each of `labels`, 0 for leaves without any of the terms."""
        scores = np.zeros(len(labels), np.float32)
        found = is_in(labels, self._labels)
        scores[found] = self._scores[np.searchsorted(self._labels, labels[found])]
        return scores


def leaves_with_all(
    connection: Connection, collection: OpenedCollection, ids: NDArray[np.uint64]
) -> Labels:
    """Returns the living leaves that have each of the terms, by ascending ids; ascending."""
    stored = _stored(connection, collection, ids)
    found = [each.by_leaf().with_all(len(ids)) for each in stored.slices(connection.deadline)]
    return np.sort(np.concatenate([np.empty(0, np.uint64), *found]))


def matches_of(
    connection: Connection, collection: OpenedCollection, ids: NDArray[np.uint64]
) -> TermMatches:
    """Returns where the terms, by ascending ids, occur in living leaves of the collection."""
    return _stored(connection, collection, ids).whole().by_leaf()


def _stored(
    connection: Connection, collection: OpenedCollection, ids: NDArray[np.uint64]
) -> "_StoredMatches":
    parameters = {**collection.key, "terms": bigints(ids)}
    return _StoredMatches.of(connection.execute(MATCHES, parameters).fetchall(), ids)


class _Matches(NamedTuple):
    """The label, term, frequency and length of each match, in order of terms for each leaf."""

    labels: Labels
    which: NDArray[np.uint32]
    frequencies: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    @classmethod
    def in_postings(cls, ids: NDArray[np.uint64], found: Postings) -> "_Matches":
        which = np.searchsorted(ids, found.terms).astype(np.uint32)
        every = np.repeat(which, np.diff(found.starts))
        return cls(found.labels, every, found.frequencies, found.lengths)

    @classmethod
    def in_term_vectors(cls, ids: NDArray[np.uint64], vectors: Sequence[Row]) -> "_Matches":
        terms = unpacked([vector for _, _, _, vector, _ in vectors])
        count = len(terms.lengths)
        rows, which, frequencies = forward_matches(terms.starts, terms.entries, 0, count, ids)
        labels = [labels_of(ordinal, leaves) for _, ordinal, leaves, *_ in vectors]
        every = np.concatenate([np.empty(0, np.uint64), *labels])
        return cls(every[rows], which, frequencies, terms.lengths[rows])

    @classmethod
    def joined(cls, some: "_Matches", others: "_Matches") -> "_Matches":
        return cls(
            np.concatenate((some.labels, others.labels)),
            np.concatenate((some.which, others.which)),
            np.concatenate((some.frequencies, others.frequencies)),
            np.concatenate((some.lengths, others.lengths)),
        )

    def but_for(self, deleted: Labels) -> "_Matches":
        """Returns the matches in other documents than those, which are ascending."""
        if not len(deleted):
            return self
        chosen: NDArray[Any] = ~is_in(ordinals_of(self.labels), deleted)
        return _Matches(*(column[chosen] for column in self))

    def by_leaf(self) -> TermMatches:
        """Returns the matches in the same order, with the leaves that they are in."""
        order = np.argsort(self.labels, kind="stable")  # Fast: those of each term are ascending.
        ordered = self.labels[order]
        first = begins_run(ordered)
        rows = np.empty(len(order), np.uint32)
        rows[order] = np.cumsum(first, dtype=np.uint32) - np.uint32(1)
        lengths = self.lengths[order[first]]
        return TermMatches(ordered[first], lengths, rows, self.which, self.frequencies)


class _StoredMatches(NamedTuple):
    """Rows of MATCHES for terms with ascending ids, as they are stored."""

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

    @property
    def are_few(self) -> bool:
        return self.postings.count <= _KEPT_POSTINGS

    def slices(self, deadline: Deadline) -> Iterator[_Matches]:
        """Yields the matches of living leaves, not too many at a time; all of a document's.

        Raises what `Deadline.check` raises, before each.
        """
        for found in self.postings.slices(_SLICE_POSTINGS):
            deadline.check("scoring words")
            yield _Matches.in_postings(self.ids, found).but_for(self.deleted)
        deadline.check("scoring words")
        yield _Matches.in_term_vectors(self.ids, self.vectors).but_for(self.deleted)

    def whole(self) -> _Matches:
        """All matches of living leaves."""
        in_postings = _Matches.in_postings(self.ids, self.postings.whole())
        in_vectors = _Matches.in_term_vectors(self.ids, self.vectors)
        return _Matches.joined(in_postings, in_vectors).but_for(self.deleted)
