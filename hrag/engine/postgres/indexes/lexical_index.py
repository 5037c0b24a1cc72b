"""Builds the parts of the lexical index: postings of many documents, merged as they grow in number.

After the log-structured merge tree: term vectors are the newest leaves, as they were committed;
a part is made of many of them, and a larger part of smaller ones. Parts are contiguous in
ordinals. Documents that are deleted while a part is built get their tombstone here or by the
writer, whoever commits second: each deletes the row that the other has read.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hrag.engine.common.labels import Labels, labels_of, ordinals_of
from hrag.engine.common.sorted_sets import is_in
from hrag.engine.postgres.indexes.postings import Postings, fits_a_part
from hrag.engine.postgres.indexes.term_vectors import unpacked
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import Key
from hrag.text.analysis import LeafTerms

MIN_PART_LEAVES = 512
"""So many leaves are worth a part: their term vectors are 0.6 MB, which a search reads."""

_MAX_BUILT_LEAVES = 8192  # In one transaction; some 100 MB of postings in memory.
_FAN_IN = 8  # By how much the sizes of tiers differ.
_MAX_PART_LEAVES = 1 << 19
_MOST_DELETED = 0.2  # Of a part's leaves; its postings are read with every search.
_ROWS_AT_ONCE = 20_000
_BYTES_AT_ONCE = 4 << 20  # Of packed postings; some 100 MB when they are unpacked.
_FREQUENCY_BITS = np.uint64(8)  # Of an entry of `LeafTerms`.

_Row = tuple[int, int, bytes]
"""Term, part and postings."""

_VECTORS = """
SELECT ordinal, leaf_count, vector FROM (
    SELECT *, sum(leaf_count) OVER (ORDER BY ordinal) - leaf_count AS before
    FROM hrag.term_vectors WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
) numbered WHERE before < %(most)s ORDER BY ordinal
"""
_REMOVE_VECTORS = """
DELETE FROM hrag.term_vectors
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal = ANY(%(ordinals)b::bigint[]) RETURNING ordinal
"""
_ADD_TOMBSTONES = """
INSERT INTO hrag.tombstones (tenant_id, collection_id, ordinal, leaf_count)
SELECT %(tenant_id)s, %(collection_id)s, *
FROM unnest(%(ordinals)s::bigint[], %(counts)s::integer[])
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
_COPY = """
COPY hrag.postings (tenant_id, collection_id, term, part, postings) FROM STDIN (FORMAT BINARY)
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


class Part(NamedTuple):
    """One part. `deleted` of its leaves are those of documents with a tombstone.

    Its number is the ordinal of its first document, or that of the first part that it was made
    of, negated: so it differs from those of the parts that it replaces.
    """

    number: int
    first_ordinal: int
    last_ordinal: int
    leaves: int
    deleted: int = 0


def build_part(connection: Connection, key: Key, least: int) -> int:
    """Makes a part of the oldest term vectors, if they have `least` leaves; returns how many."""
    rows = connection.execute(_VECTORS, {**key, "most": _MAX_BUILT_LEAVES}).fetchall()
    while rows and not fits_a_part(rows[0][0], rows[-1][0]):
        rows.pop()
    leaves: int = sum(count for _, count, _ in rows)
    if not rows or leaves < least:
        return 0
    ordinals = [ordinal for ordinal, _, _ in rows]
    terms = unpacked([vector for _, _, vector in rows])
    labels = np.concatenate([labels_of(ordinal, count) for ordinal, count, _ in rows])
    part = Part(ordinals[0], ordinals[0], ordinals[-1], leaves)
    _write(connection, key, part, [inverted(labels, terms)])
    own = {**key, "ordinals": bigints(np.array(ordinals))}
    taken = {ordinal for (ordinal,) in connection.execute(_REMOVE_VECTORS, own)}
    lost = [(ordinal, count) for ordinal, count, _ in rows if ordinal not in taken]
    if lost:
        gone, counts = zip(*lost, strict=True)
        connection.execute(_ADD_TOMBSTONES, {**key, "ordinals": list(gone), "counts": list(counts)})
    return leaves


def inverted(labels: Labels, terms: LeafTerms) -> Postings:
    """Returns the postings of the terms, ascending; `terms` are those of `labels`."""
    rows = np.repeat(np.arange(len(labels)), np.diff(terms.starts))
    order = np.argsort(terms.entries >> _FREQUENCY_BITS, kind="stable")
    rows, entries = rows[order], terms.entries[order]
    frequencies = (entries & np.uint64(0xFF)).astype(np.uint32)
    starts = np.arange(len(entries) + 1)
    each = Postings(
        entries >> _FREQUENCY_BITS, starts, labels[rows], frequencies, terms.lengths[rows]
    )
    return each.merged()


def merge_parts(connection: Connection, key: Key) -> int:
    """Merges small parts if there are enough, or rewrites one with many deleted leaves.

    Returns how many leaves these parts had, 0 if nothing was due.
    """
    parts = [Part(*row) for row in connection.execute(_PARTS, key)]
    chosen = due_merge(parts)
    if not chosen:
        return 0
    first, last = chosen[0].first_ordinal, chosen[-1].last_ordinal
    rows = connection.execute(_DELETED, {**key, "first": first, "last": last})
    deleted = np.array([ordinal for (ordinal,) in rows], np.uint64)
    numbers = [part.number for part in chosen]
    # Postings of the new part lie beside those of the old ones until these are removed.
    leaves = sum(part.leaves - part.deleted for part in chosen)
    if leaves:
        new = Part(-chosen[0].number, first, last, leaves)
        _write(connection, key, new, _merged(connection, key, chosen, deleted))
    own = {**key, "parts": numbers, "ordinals": bigints(deleted)}
    for statement in _REMOVE:
        connection.execute(statement, own)
    return sum(part.leaves for part in chosen)


def due_merge(parts: Sequence[Part]) -> list[Part]:
    """Returns neighbouring parts, oldest first, that are to become one; [] if none are due.

    Or a single part of whose leaves too many are deleted.

    A part of tier t has 8**t to 8**(t + 1) - 1 living leaves. Neighbours of a tier and of lower
    ones are due as soon as they have enough leaves for the next tier. So each merge takes a
    posting to a higher tier: it is written log8(n) times at most. What is left between two parts
    of higher tiers has fewer leaves than they.
    """
    least = _FAN_IN
    while least <= _MAX_PART_LEAVES:
        for run in _runs_of_smaller(parts, least):
            if len(run) > 1 and sum(map(_living, run)) >= least:
                return run
        least *= _FAN_IN
    return [part for part in parts if part.deleted > _MOST_DELETED * part.leaves][:1]


def _runs_of_smaller(parts: Sequence[Part], least: int) -> Iterator[list[Part]]:
    """Yields neighbours with fewer than `least` leaves each, as many as fit into one part."""
    run: list[Part] = []
    leaves = 0
    for part in parts:
        is_smaller = _living(part) < least
        leaves += _living(part)
        fits = leaves <= _MAX_PART_LEAVES
        if run and not (is_smaller and fits and _fit_together(run[0], part)):
            yield run
            run, leaves = [], _living(part)
        if is_smaller:
            run.append(part)
        else:
            leaves = 0
    yield run


def _fit_together(first: Part, last: Part) -> bool:
    return fits_a_part(first.first_ordinal, last.last_ordinal)


def _living(part: Part) -> int:
    return part.leaves - part.deleted


def _merged(
    connection: Connection, key: Key, parts: Sequence[Part], deleted: Labels
) -> Iterator[Postings]:
    """Yields the postings of the parts but for those of deleted documents, terms ascending."""
    firsts = {part.number: part.first_ordinal for part in parts}
    for rows in _whole_terms(_stored(connection, key, list(firsts))):
        ordered = sorted((term, firsts[part], row) for term, part, row in rows)
        found = Postings.unpacked(ordered).merged()
        yield found.only(~is_in(ordinals_of(found.labels), deleted))


def _whole_terms(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yields rows, which are in order of terms, together; those of one term are not parted."""
    together: list[_Row] = []
    size_bytes = 0
    for row in rows:
        if size_bytes >= _BYTES_AT_ONCE and row[0] != together[-1][0]:
            yield together
            together, size_bytes = [], 0
        together.append(row)
        size_bytes += len(row[2])
    if together:
        yield together


def _stored(connection: Connection, key: Key, parts: list[int]) -> Iterator[_Row]:
    """Yields the rows of the parts in order of terms, reading a page of them at a time."""
    after: tuple[int, int] = (-1, 0)
    while True:
        own = {**key, "parts": parts, "term": after[0], "after": after[1], "rows": _ROWS_AT_ONCE}
        rows = connection.execute(_POSTINGS, own).fetchall()
        yield from rows
        if len(rows) < _ROWS_AT_ONCE:
            return
        after = rows[-1][:2]


def _write(connection: Connection, key: Key, part: Part, postings: Iterable[Postings]) -> None:
    """Adds a part with its postings."""
    own = {"part": part.number, "first": part.first_ordinal, "last": part.last_ordinal}
    connection.execute(_ADD_PART, {**key, **own, "leaves": part.leaves})
    owner = (key["tenant_id"], key["collection_id"])
    # A COPY for each, since a merge reads from the connection what comes next.
    for found in postings:
        rows = zip(found.terms.tolist(), found.packed(part.first_ordinal), strict=True)
        with connection.cursor() as cursor, cursor.copy(_COPY) as copying:
            copying.set_types(["text", "int8", "int8", "int8", "bytea"])
            for term, row in rows:
                copying.write_row((*owner, term, part.number, row))
