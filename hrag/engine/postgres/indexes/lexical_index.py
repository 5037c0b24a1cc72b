"""Builds the parts of the lexical index: postings of many documents, merged as they grow in number.

After the log-structured merge tree: term vectors are the newest leaves, as they were committed;
a part is made of many of them, and a part of many parts of one size. Parts are contiguous in
ordinals. Documents that are deleted while a part is built get their tombstone here or by the
writer, whoever commits second: each deletes the row that the other has read.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from hrag.analysis import LeafTerms
from hrag.engine.postgres.indexes.postings import PostingList, fits_a_part
from hrag.engine.postgres.indexes.term_vectors import unpacked
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import Key
from hrag.engine.search.sorted_sets import is_in
from hrag.engine.stored.labels import Labels, labels_of, ordinals_of

MIN_PART_LEAVES = 512
"""So many leaves are worth a part: their term vectors are 0.6 MB, which a search reads."""

_MAX_BUILT_LEAVES = 8192  # In one transaction; some 100 MB of postings in memory.
_FAN_IN = 8  # Parts of one size that become one: so a posting is written log8(n) times.
_MAX_PART_LEAVES = 1 << 19
_MOST_DELETED = 0.2  # Of a part's leaves; its postings are read with every search.
_ROWS_AT_ONCE = 20_000

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
    _write(connection, key, part, inverted(labels, terms))
    own = {**key, "ordinals": bigints(np.array(ordinals))}
    taken = {ordinal for (ordinal,) in connection.execute(_REMOVE_VECTORS, own)}
    lost = [(ordinal, count) for ordinal, count, _ in rows if ordinal not in taken]
    if lost:
        gone, counts = zip(*lost, strict=True)
        connection.execute(_ADD_TOMBSTONES, {**key, "ordinals": list(gone), "counts": list(counts)})
    return leaves


def inverted(labels: Labels, terms: LeafTerms) -> Iterator[tuple[int, PostingList]]:
    """Yields each term with its postings, terms ascending; `terms` are those of `labels`."""
    rows = np.repeat(np.arange(len(labels)), np.diff(terms.starts))
    ids = terms.entries >> np.uint64(8)
    frequencies = (terms.entries & np.uint64(0xFF)).astype(np.uint32)
    order = np.argsort(ids, kind="stable")
    ids, rows, frequencies = ids[order], rows[order], frequencies[order]
    starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])) if len(ids) else [])
    ends = np.append(starts[1:], len(ids))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=False):
        own = rows[start:end]
        yield int(ids[start]), PostingList(labels[own], frequencies[start:end], terms.lengths[own])


def merge_parts(connection: Connection, key: Key) -> int:
    """Merges parts of one size if there are enough, or rewrites one with many deleted leaves.

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
    """Returns neighbouring parts of one tier that are to become one; [] if none are due.

    Or a single part of whose leaves too many are deleted.
    """
    for _, group in groupby(parts, key=_tier):
        run = list(group)
        is_small = sum(each.leaves for each in run) <= _MAX_PART_LEAVES
        fits = is_small and fits_a_part(run[0].first_ordinal, run[-1].last_ordinal)
        if fits and len(run) >= _FAN_IN:
            return run
    return [part for part in parts if part.deleted > _MOST_DELETED * part.leaves][:1]


def _tier(part: Part) -> int:
    tier, size = 0, MIN_PART_LEAVES * _FAN_IN
    while part.leaves >= size:
        tier, size = tier + 1, size * _FAN_IN
    return tier


def _merged(
    connection: Connection, key: Key, parts: Sequence[Part], deleted: Labels
) -> Iterator[tuple[int, PostingList]]:
    """Yields each term of the parts with its postings of documents that are not deleted."""
    firsts = {part.number: part.first_ordinal for part in parts}
    for term, rows in groupby(_stored(connection, key, list(firsts)), key=itemgetter(0)):
        lists = [PostingList.unpacked(value, firsts[part]) for _, part, value in rows]
        whole = PostingList.merged(lists)
        living = whole.only(~is_in(ordinals_of(whole.labels), deleted))
        if len(living.labels):
            yield term, living


def _stored(connection: Connection, key: Key, parts: list[int]) -> Iterator[tuple[int, int, bytes]]:
    """Yields term, part and postings in order of terms; a page of rows at a time."""
    after: tuple[int, int] = (-1, 0)
    while True:
        own = {**key, "parts": parts, "term": after[0], "after": after[1], "rows": _ROWS_AT_ONCE}
        rows = connection.execute(_POSTINGS, own).fetchall()
        yield from rows
        if len(rows) < _ROWS_AT_ONCE:
            return
        after = rows[-1][:2]


def _write(
    connection: Connection,
    key: Key,
    part: Part,
    postings: Iterator[tuple[int, PostingList]],
) -> None:
    """Adds a part with its postings."""
    own = {"part": part.number, "first": part.first_ordinal, "last": part.last_ordinal}
    connection.execute(_ADD_PART, {**key, **own, "leaves": part.leaves})
    owner = (key["tenant_id"], key["collection_id"])
    for rows in _pages(postings):
        with connection.cursor() as cursor, cursor.copy(_COPY) as copying:
            copying.set_types(["text", "int8", "int8", "int8", "bytea"])
            for term, found in rows:
                value = found.packed(part.first_ordinal)
                copying.write_row((*owner, term, part.number, value))


def _pages(
    postings: Iterator[tuple[int, PostingList]],
) -> Iterator[list[tuple[int, PostingList]]]:
    """A page at a time: nothing else can be read on the connection while rows are copied."""
    page = []
    for each in postings:
        page.append(each)
        if len(page) == _ROWS_AT_ONCE:
            yield page
            page = []
    if page:
        yield page
