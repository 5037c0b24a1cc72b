"""The lexical source: the leaves that share most with the query's terms, by BM25.

The same formula, analyzer and statistics as every engine's; see `hrag.analysis.term_weights` and
`hrag_fast.bm25`. Postings of the query's terms, the term vectors of documents that are in no part
yet and the tombstones of those that are deleted are read in one statement; scores are computed
here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag.analysis import QueryTerm, term_weights
from hrag.engine.postgres.indexes.postings import Postings
from hrag.engine.postgres.indexes.term_vectors import unpacked
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.engine.search.candidates import Scores
from hrag.engine.search.sorted_sets import begins_run, is_in
from hrag.engine.stored.labels import Labels, labels_of, ordinals_of
from hrag_fast import bm25, forward_matches

_K1 = 1.2
_B = 0.75

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
"""What `TermMatches.of` takes; other kinds of rows may follow."""
_KINDS = range(3)  # Postings, term vectors, tombstones.

Row = tuple[int, int, int, bytes, float]


@dataclass(frozen=True, slots=True, eq=False)
class TermMatches:
    """Where terms occur in living leaves, ordered by leaf, then by term.

    `labels` are the leaves that have any, `uint64[n]`, ascending, with `lengths`, `uint32[n]`.
    Match j says that leaf `rows[j]` has term `which[j]` `frequencies[j]` times: `uint32[m]`.
    """

    labels: Labels
    lengths: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    which: NDArray[np.uint32]
    frequencies: NDArray[np.uint32]

    @classmethod
    def of(cls, rows: Sequence[Row], ids: NDArray[np.uint64]) -> "TermMatches":
        """Returns the matches in rows of MATCHES, for terms with ascending ids."""
        ordered = sorted(rows, key=itemgetter(0, 1))
        postings, vectors, tombstones = (
            [row for row in ordered if row[0] == kind] for kind in _KINDS
        )
        found = _Matches.joined(
            _Matches.in_postings(ids, postings), _Matches.in_term_vectors(ids, vectors)
        )
        return _ordered(found, np.array([ordinal for _, ordinal, *_ in tombstones], np.uint64))

    def with_all(self, terms: int) -> Labels:
        """Returns the leaves that have all of the `terms` terms, ascending."""
        counts = np.bincount(self.rows, minlength=len(self.labels))
        found: Labels = self.labels[counts == terms]
        return found


class LexicalQuery:
    """A query's terms with the statistics of one collection, and the score of every leaf.

    `terms` are in ascending order of their ids, `rows` those of MATCHES for them. `weights`,
    `float32[q]`, are the share of each term in the largest possible score.
    """

    def __init__(
        self, collection: OpenedCollection, terms: Sequence[QueryTerm], rows: Sequence[Row]
    ) -> None:
        matches = TermMatches.of(rows, np.array([term.id for term in terms], np.uint64))
        frequencies = np.bincount(matches.which, minlength=len(terms)).tolist()
        weights = term_weights(terms, frequencies, collection.leaves)
        self.weights = np.array(weights, np.float32)
        mean_length = collection.terms / max(collection.leaves, 1)
        self._labels = matches.labels
        self._scores = bm25(
            self.weights,
            _K1 * (1 - _B),
            _K1 * _B / max(mean_length, 1.0),
            matches.rows,
            matches.which,
            matches.frequencies,
            matches.lengths,
        )

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


def matches_of(
    connection: Connection, collection: OpenedCollection, ids: NDArray[np.uint64]
) -> TermMatches:
    """Returns where the terms, by ascending ids, occur in living leaves of the collection."""
    parameters = {**collection.key, "terms": bigints(ids)}
    return TermMatches.of(connection.execute(MATCHES, parameters).fetchall(), ids)


class _Matches(NamedTuple):
    """The label, term, frequency and length of each match; those of one leaf by term."""

    labels: Labels
    which: NDArray[np.uint32]
    frequencies: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    @classmethod
    def in_postings(cls, ids: NDArray[np.uint64], postings: Sequence[Row]) -> "_Matches":
        found = Postings.unpacked([(term, first, row) for _, term, first, row, _ in postings])
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

    def only(self, chosen: NDArray[Any]) -> "_Matches":
        return _Matches(*(column[chosen] for column in self))


def _ordered(matches: _Matches, deleted: Labels) -> TermMatches:
    """The matches of living leaves by leaf; those of one leaf in the order that they have."""
    if len(deleted):
        matches = matches.only(~is_in(ordinals_of(matches.labels), deleted))
    labels, which, frequencies, lengths = matches.only(np.argsort(matches.labels, kind="stable"))
    first = begins_run(labels)
    rows = (np.cumsum(first) - 1).astype(np.uint32)
    return TermMatches(labels[first], lengths[first], rows, which, frequencies)
