"""Builds and merges the parts of the lexical index.

A part is immutable, like a segment of Lucene: it has the posting lists of the leaves of many
documents. The structure follows the log-structured merge tree. A commit writes one term vector for
each document. Maintenance builds a part from many term vectors, and merges smaller parts into a
larger part. Each part covers a contiguous range of ordinals.

A document may be deleted while a part is built from its term vector. Then both this module and the
writer delete the row of the term vector. The transaction that commits second finds that the row is
already deleted, and inserts the tombstone.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hrag.engine.common.labels import Labels, labels_of, ordinals_of
from hrag.engine.common.sorted_sets import is_in
from hrag.engine.postgres.indexes.postings import PostingArrays, fits_a_part
from hrag.engine.postgres.indexes.term_vectors import unpacked
from hrag.engine.postgres.store.arrays import bigints, binaries
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import Key
from hrag.text.analysis import LeafTerms

MIN_PART_LEAVES = 512
"""A new part is built from at least this many leaves.

Until a part is built from them, each search reads their term vectors, which have 0.6 MB in total.
"""

FAN_IN = 8
"""Parts are in tiers by their count of leaves.

The smallest count of leaves of a tier is this many times the smallest count of the tier below.
"""

# A part is built from at most this many leaves, because their postings take about 100 MB of memory.
_MAX_BUILT_LEAVES = 8192
# Parts are merged only if the merged part has at most this many leaves.
_MAX_PART_LEAVES = 1 << 19
# A part with a larger share of deleted leaves is rewritten without them, because searches read the
# postings of deleted leaves too.
_MAX_DELETED = 0.2
# A merge reads at most this many rows of the table `postings` in one statement.
_ROWS_AT_ONCE = 20_000
# A merge decodes about this many bytes of rows at once. When decoded, they take about 100 MB.
_BYTES_AT_ONCE = 4 << 20
# In an entry of `LeafTerms`, this many of the lowest bits are the frequency of a term. The higher
# bits are the id of the term.
_FREQUENCY_BITS = np.uint64(8)

_Row = tuple[int, int, bytes]
"""A row of the table `postings`: the term, the part's id and the encoded postings."""

_VECTORS = """
SELECT ordinal, leaf_count, vector FROM (
    SELECT *, sum(leaf_count) OVER (ORDER BY ordinal) - leaf_count AS before
    FROM hrag.term_vectors WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
) numbered WHERE before < %(max_leaves)s ORDER BY ordinal
"""
_REMOVE_VECTORS = """
DELETE FROM hrag.term_vectors
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal = ANY(%(ordinals)b::bigint[]) RETURNING ordinal
"""
_ADD_TOMBSTONES = """
INSERT INTO hrag.tombstones (tenant_id, collection_id, ordinal, leaf_count)
SELECT t.tenant_id, %(collection_id)s, ordinal, leaf_count FROM hrag.tenants t,
  unnest(%(ordinals)s::bigint[], %(counts)s::integer[]) AS deleted (ordinal, leaf_count)
WHERE t.tenant_id = %(tenant_id)s
"""
_PARTS = """
SELECT part, first_ordinal, last_ordinal, leaf_count, (
    SELECT coalesce(sum(t.leaf_count), 0)::bigint FROM hrag.tombstones t
    WHERE t.tenant_id = %(tenant_id)s AND t.collection_id = %(collection_id)s
    AND t.ordinal BETWEEN first_ordinal AND last_ordinal)
FROM hrag.postings_parts
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s ORDER BY first_ordinal
"""
_ADD_PART = """
INSERT INTO hrag.postings_parts
VALUES (%(tenant_id)s, %(collection_id)s, %(part)s, %(first)s, %(last)s, %(leaves)s)
"""
# On Citus, COPY would commit in two phases; see `hrag.engine.postgres.write.changes`.
_ADD_POSTINGS = """
INSERT INTO hrag.postings (tenant_id, collection_id, term, part, postings)
SELECT t.tenant_id, %(collection_id)s, term, %(part)s, postings
FROM hrag.tenants t,
  unnest(%(terms)b::bigint[], %(postings)b::bytea[]) AS new (term, postings)
WHERE t.tenant_id = %(tenant_id)s
"""
_DELETED = """
SELECT ordinal FROM hrag.tombstones
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal BETWEEN %(first)s AND %(last)s ORDER BY ordinal
"""
_POSTINGS = """
SELECT term, part, postings FROM hrag.postings
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND part = ANY(%(parts)s) AND (term, part) > (%(term)s, %(after)s)
ORDER BY term, part LIMIT %(rows)s
"""
_REMOVE = (
    """
DELETE FROM hrag.postings WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND part = ANY(%(parts)s)
""",
    """
DELETE FROM hrag.postings_parts WHERE tenant_id = %(tenant_id)s
AND collection_id = %(collection_id)s AND part = ANY(%(parts)s)
""",
    """
DELETE FROM hrag.tombstones WHERE tenant_id = %(tenant_id)s
AND collection_id = %(collection_id)s AND ordinal = ANY(%(ordinals)b::bigint[])
""",
)


class IndexPart(NamedTuple):
    """A part of the lexical index: the postings of documents with a contiguous range of ordinals.

    `leaves` is the count of leaves in the part. `deleted` is the count of its leaves whose document
    has a tombstone. `number` is the id of the part in its collection. The id of a part that is
    built from term vectors is the ordinal of its first document. The id of a merged part is the id
    of the first part that it replaces, multiplied by -1. So the new part and the parts that it
    replaces can exist in the table at the same time.
    """

    number: int
    first_ordinal: int
    last_ordinal: int
    leaves: int
    deleted: int = 0


def build_part(connection: Connection, key: Key, min_leaves: int) -> int:
    """Builds a part of the lexical index from the oldest term vectors of a collection.

    Returns the count of leaves in the new part. Builds no part and returns 0 if the term vectors
    have fewer than `min_leaves` leaves.
    """
    rows = connection.execute(_VECTORS, {**key, "max_leaves": _MAX_BUILT_LEAVES}).fetchall()
    while rows and not fits_a_part(rows[0][0], rows[-1][0]):
        rows.pop()
    leaves: int = sum(count for _, count, _ in rows)
    if not rows or leaves < min_leaves:
        return 0
    ordinals = [ordinal for ordinal, _, _ in rows]
    terms = unpacked([vector for _, _, vector in rows])
    labels = np.concatenate([labels_of(ordinal, count) for ordinal, count, _ in rows])
    part = IndexPart(ordinals[0], ordinals[0], ordinals[-1], leaves)
    _write(connection, key, part, [inverted(labels, terms)])
    parameters = {**key, "ordinals": bigints(np.array(ordinals))}
    removed = {ordinal for (ordinal,) in connection.execute(_REMOVE_VECTORS, parameters)}
    deleted = [(ordinal, count) for ordinal, count, _ in rows if ordinal not in removed]
    if deleted:
        deleted_ordinals, counts = zip(*deleted, strict=True)
        connection.execute(
            _ADD_TOMBSTONES, {**key, "ordinals": list(deleted_ordinals), "counts": list(counts)}
        )
    return leaves


def inverted(labels: Labels, terms: LeafTerms) -> PostingArrays:
    """Returns the posting lists of leaves, in ascending order of terms.

    `labels` are the labels of the leaves. `terms` has the terms of each leaf, in the order of
    `labels`.
    """
    rows = np.repeat(np.arange(len(labels)), np.diff(terms.starts))
    order = np.argsort(terms.entries >> _FREQUENCY_BITS, kind="stable")
    rows, entries = rows[order], terms.entries[order]
    frequencies = (entries & np.uint64(0xFF)).astype(np.uint32)
    starts = np.arange(len(entries) + 1)
    postings = PostingArrays(
        entries >> _FREQUENCY_BITS, starts, labels[rows], frequencies, terms.lengths[rows]
    )
    return postings.merged()


def merge_parts(connection: Connection, key: Key, fan_in: int = FAN_IN) -> int:
    """Merges the parts of the lexical index that `due_merge` selects, or rewrites a single part.

    `fan_in` is the argument of `due_merge` that determines how many parts are merged at a time.
    Returns how many leaves, including deleted leaves, the replaced parts had; 0 if no merge is due.
    """
    parts = [IndexPart(*row) for row in connection.execute(_PARTS, key)]
    merged = due_merge(parts, fan_in)
    if not merged:
        return 0
    first, last = merged[0].first_ordinal, merged[-1].last_ordinal
    rows = connection.execute(_DELETED, {**key, "first": first, "last": last})
    deleted = np.array([ordinal for (ordinal,) in rows], np.uint64)
    numbers = [part.number for part in merged]
    # The rows of the old parts are deleted only after the rows of the new part were inserted, so
    # the new part needs an id that no old part has.
    leaves = sum(part.leaves - part.deleted for part in merged)
    if leaves:
        new = IndexPart(-merged[0].number, first, last, leaves)
        _write(connection, key, new, _merge_postings(connection, key, merged, deleted))
    parameters = {**key, "parts": numbers, "ordinals": bigints(deleted)}
    for statement in _REMOVE:
        connection.execute(statement, parameters)
    return sum(part.leaves for part in merged)


def due_merge(parts: Sequence[IndexPart], fan_in: int = FAN_IN) -> list[IndexPart]:
    """Returns adjacent parts, oldest first, that must be merged into one; [] if no merge is due.

    It may also return a single part that must be rewritten because too many of its leaves are
    deleted.

    With a `fan_in` of 8, a part of tier t has 8**t to 8**(t + 1) - 1 leaves that are not deleted.
    Adjacent parts of tier t or lower tiers must be merged as soon as they together have enough
    leaves for tier t + 1. Each merge moves a posting to a higher tier, so in a collection of n
    leaves each posting is written at most log8(n) times. Small parts that remain between two parts
    of higher tiers together have fewer leaves than either of these two parts.
    """
    min_leaves = fan_in
    while min_leaves <= _MAX_PART_LEAVES:
        for run in _small_runs(parts, min_leaves):
            if len(run) > 1 and sum(map(_living_leaves, run)) >= min_leaves:
                return run
        min_leaves *= fan_in
    return [part for part in parts if part.deleted > _MAX_DELETED * part.leaves][:1]


def _small_runs(parts: Sequence[IndexPart], limit: int) -> Iterator[list[IndexPart]]:
    """Yields runs of adjacent parts of fewer than `limit` leaves each, not counting deleted leaves.

    The parts of a run can be merged: they do not have too many leaves for one part in total, and
    their ordinals are not too far apart.
    """
    run: list[IndexPart] = []
    leaves = 0
    for part in parts:
        is_small = _living_leaves(part) < limit
        leaves += _living_leaves(part)
        fits = leaves <= _MAX_PART_LEAVES
        if run and not (is_small and fits and _fit_in_one_part(run[0], part)):
            yield run
            run, leaves = [], _living_leaves(part)
        if is_small:
            run.append(part)
        else:
            leaves = 0
    yield run


def _fit_in_one_part(first: IndexPart, last: IndexPart) -> bool:
    return fits_a_part(first.first_ordinal, last.last_ordinal)


def _living_leaves(part: IndexPart) -> int:
    return part.leaves - part.deleted


def _merge_postings(
    connection: Connection, key: Key, parts: Sequence[IndexPart], deleted: Labels
) -> Iterator[PostingArrays]:
    """Yields the merged postings of the parts, in ascending order of terms.

    Leaves out the documents whose ordinals are in `deleted`.
    """
    firsts = {part.number: part.first_ordinal for part in parts}
    for rows in _group_by_term(_read_postings(connection, key, list(firsts))):
        ordered = sorted((term, firsts[part], row) for term, part, row in rows)
        postings = PostingArrays.unpacked(ordered).merged()
        yield postings.only(~is_in(ordinals_of(postings.labels), deleted))


def _group_by_term(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yields groups of consecutive rows; all rows of a term are in the same group.

    The rows must be in order of terms. Except the last one, each group has at least
    `_BYTES_AT_ONCE` bytes.
    """
    group: list[_Row] = []
    size_bytes = 0
    for row in rows:
        if size_bytes >= _BYTES_AT_ONCE and row[0] != group[-1][0]:
            yield group
            group, size_bytes = [], 0
        group.append(row)
        size_bytes += len(row[2])
    if group:
        yield group


def _read_postings(connection: Connection, key: Key, parts: list[int]) -> Iterator[_Row]:
    """Yields the rows of the parts in order of terms; one statement reads `_ROWS_AT_ONCE` rows."""
    after: tuple[int, int] = (-1, 0)
    while True:
        parameters = {
            **key,
            "parts": parts,
            "term": after[0],
            "after": after[1],
            "rows": _ROWS_AT_ONCE,
        }
        rows = connection.execute(_POSTINGS, parameters).fetchall()
        yield from rows
        if len(rows) < _ROWS_AT_ONCE:
            return
        after = rows[-1][:2]


def _write(
    connection: Connection, key: Key, part: IndexPart, postings: Iterable[PostingArrays]
) -> None:
    """Inserts the row of a part and the rows of its postings."""
    numbers = {"part": part.number, "first": part.first_ordinal, "last": part.last_ordinal}
    connection.execute(_ADD_PART, {**key, **numbers, "leaves": part.leaves})
    for batch in postings:
        rows = {
            "terms": bigints(batch.terms),
            "postings": binaries(batch.packed(part.first_ordinal)),
        }
        connection.execute(_ADD_POSTINGS, {**key, **rows, "part": part.number})
