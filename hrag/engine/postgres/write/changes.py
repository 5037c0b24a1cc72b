"""The statements that write what a transaction has decided, in one round trip with COMMIT.

Each statement takes the rows of a table as one array a column. What is deleted is deleted
first, so that a new version can have the id of the old one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import NamedTuple

import numpy as np
from psycopg import sql

from hrag.engine.common.filter_terms import terms_of
from hrag.engine.common.records import DocumentRecord, Usage
from hrag.engine.postgres.store.arrays import (
    bigints,
    binaries,
    booleans,
    halfvecs,
    integers,
    texts,
)
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import table_names
from hrag.engine.postgres.write.document_drafts import Draft

# A parameter has at most a gigabyte, and a document's text some tens of megabytes.
_STATEMENT_BYTES = 16 << 20

_DELETE_DOCUMENTS = """
DELETE FROM hrag.documents
WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
"""
_DELETE_LEAVES = """
DELETE FROM {} WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
"""
# It may name more pairs than there are; all that there are belong to these documents.
_DELETE_TERMS = """
DELETE FROM hrag.terms
WHERE tenant_id = %s AND collection_id = %s AND term = ANY(%s) AND ordinal = ANY(%s)
"""
# What has no term vector any more is held by a part of the postings.
_DELETE_TERM_VECTORS = """
WITH deleted AS (
  DELETE FROM hrag.term_vectors
  WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s) RETURNING ordinal
)
INSERT INTO hrag.tombstones (tenant_id, collection_id, ordinal, leaf_count)
SELECT %s, %s, ordinal, leaf_count FROM unnest(%s, %s) AS gone (ordinal, leaf_count)
WHERE ordinal NOT IN (SELECT ordinal FROM deleted)
"""
_INSERT_DOCUMENTS = """
INSERT INTO hrag.documents (tenant_id, collection_id, ordinal, document_id, content_hash,
  sequence, leaf_count, term_count, is_unsummarised, record, tree, body, summarised)
SELECT %s, collection_id, ordinal, document_id, content_hash, sequence, leaf_count, term_count,
  is_unsummarised, record, tree, body, nullif(summarised, '')
FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) AS new (collection_id, ordinal,
  document_id, content_hash, sequence, leaf_count, term_count, is_unsummarised, record, tree,
  body, summarised)
"""
# One array of all ancestors: the server cuts it, `heights` to a leaf. An array of no vectors
# gives null for each leaf.
_INSERT_LEAVES = """
INSERT INTO {} (tenant_id, collection_id, ordinal, leaf, above, embedding)
SELECT %s, %s, ordinal, leaf, (%s)[(number - 1) * %s + 1 : number * %s], embedding
FROM ROWS FROM (unnest(%s), unnest(%s), unnest(%s::halfvec[])) WITH ORDINALITY
  AS new (ordinal, leaf, embedding, number)
"""
_INSERT_TERMS = """
INSERT INTO hrag.terms (tenant_id, collection_id, term, ordinal)
SELECT %s, collection_id, term, ordinal
FROM unnest(%s, %s, %s) AS new (collection_id, term, ordinal)
"""
_INSERT_TERM_VECTORS = """
INSERT INTO hrag.term_vectors (tenant_id, collection_id, ordinal, leaf_count, vector)
SELECT %s, collection_id, ordinal, leaf_count, vector
FROM unnest(%s, %s, %s, %s) AS new (collection_id, ordinal, leaf_count, vector)
"""
_REVISE_DOCUMENT = """
UPDATE hrag.documents SET content_hash = %s, sequence = %s, record = %b
WHERE tenant_id = %s AND collection_id = %s AND ordinal = %s
"""
_MARK_SUMMARISED = """
UPDATE hrag.documents SET is_unsummarised = false
WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
"""
_COUNT = """
UPDATE hrag.collections SET sequence = greatest(sequence, %s), documents = documents + %s,
  chunks = chunks + %s, leaves = leaves + %s, tokens = tokens + %s, text_bytes = text_bytes + %s,
  vector_bytes = vector_bytes + %s, stored_bytes = stored_bytes + %s, terms = terms + %s,
  unsummarised = unsummarised + %s, summary_tokens = summary_tokens + %s
WHERE tenant_id = %s AND collection_id = %s
"""
_SET_USAGE = """
UPDATE hrag.tenants SET collections = %s, documents = %s, stored_bytes = %s, sequence = %s
WHERE tenant_id = %s
"""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a document, as it is stored or will be."""

    ordinal: int
    record: DocumentRecord
    term_count: int
    is_unsummarised: bool


class Counts(NamedTuple):
    """By how much a collection's totals change."""

    documents: int = 0
    chunks: int = 0
    leaves: int = 0
    tokens: int = 0
    text_bytes: int = 0
    vector_bytes: int = 0
    stored_bytes: int = 0
    terms: int = 0
    unsummarised: int = 0
    summary_tokens: int = 0

    @classmethod
    def of(cls, version: Version) -> "Counts":
        """What a document counts."""
        record = version.record
        return cls(
            documents=1,
            chunks=sum(record.chunks_per_level),
            leaves=record.leaf_count,
            tokens=record.token_count,
            text_bytes=record.text_bytes,
            vector_bytes=record.vector_bytes,
            stored_bytes=record.stored_bytes,
            terms=version.term_count,
        )

    def plus(self, more: "Counts") -> "Counts":
        return Counts(*map(add, self, more))

    def minus(self, less: "Counts") -> "Counts":
        return Counts(*map(sub, self, less))


@dataclass(slots=True)
class CollectionChanges:
    """What changes in one collection. `sequence` is that of its last change, 0 without one.

    A collection that `is_lexical` has an analyzer, so that its documents have term vectors.
    """

    home: int | None
    is_lexical: bool
    sequence: int = 0
    counts: Counts = field(default_factory=Counts)
    new: dict[int, tuple[Version, Draft, bytes]] = field(default_factory=dict)
    """By ordinal; the last is what a document of a summary collection summarises."""
    deleted: list[Version] = field(default_factory=list)
    revised: dict[int, tuple[DocumentRecord, Version]] = field(default_factory=dict)
    """By ordinal: what it was stored as, and is now."""
    summarised: list[int] = field(default_factory=list)
    """Ordinals of stored documents that wait for their summaries no longer."""


def write_changes(
    connection: Connection,
    tenant_id: str,
    collections: dict[int, CollectionChanges],
    usage: Usage,
    halfvec_oid: int,
) -> None:
    """Writes everything and commits."""
    with connection.pipeline():
        for number, changes in collections.items():
            _delete(connection, tenant_id, number, changes)
            _revise(connection, tenant_id, number, changes)
        for number, changes in collections.items():
            new = list(changes.new.values())
            for part in _parts(new):
                _insert(connection, tenant_id, number, part)
                _insert_leaves(connection, tenant_id, number, changes.home, part, halfvec_oid)
            counted = (changes.sequence, *changes.counts, tenant_id, number)
            connection.execute(_COUNT, counted)
        connection.execute(_SET_USAGE, (*usage, tenant_id))
        connection.execute(b"COMMIT", prepare=False)


def _delete(
    connection: Connection, tenant_id: str, number: int, changes: CollectionChanges
) -> None:
    if not changes.deleted:
        return
    deleted = bigints([each.ordinal for each in changes.deleted])
    of_collection = (tenant_id, number, deleted)
    connection.execute(_DELETE_DOCUMENTS, of_collection)
    for table in table_names(changes.home):
        statement = sql.SQL(_DELETE_LEAVES).format(sql.Identifier(*table))
        connection.execute(statement, of_collection)
    terms = sorted({term for each in changes.deleted for term in terms_of(each.record)})
    if terms:
        connection.execute(_DELETE_TERMS, (tenant_id, number, binaries(terms), deleted))
    if changes.is_lexical:
        leaf_counts = integers([each.record.leaf_count for each in changes.deleted])
        connection.execute(
            _DELETE_TERM_VECTORS, (*of_collection, tenant_id, number, deleted, leaf_counts)
        )


def _revise(
    connection: Connection, tenant_id: str, number: int, changes: CollectionChanges
) -> None:
    for ordinal, (old, version) in changes.revised.items():
        new = version.record
        about = (new.content_hash, new.sequence, new.to_bytes(), tenant_id, number, ordinal)
        connection.execute(_REVISE_DOCUMENT, about)
        before, after = set(terms_of(old)), set(terms_of(new))
        if gone := sorted(before - after):
            of_document = (tenant_id, number, binaries(gone), bigints([ordinal]))
            connection.execute(_DELETE_TERMS, of_document)
        _insert_terms(connection, tenant_id, number, [(ordinal, sorted(after - before))])
    if changes.summarised:
        connection.execute(_MARK_SUMMARISED, (tenant_id, number, bigints(changes.summarised)))


def _parts(
    new: Sequence[tuple[Version, Draft, bytes]],
) -> Iterator[Sequence[tuple[Version, Draft, bytes]]]:
    """Documents of one statement: as many as fit, one at least."""
    start, size = 0, 0
    for end, (_, draft, _) in enumerate(new):
        if end > start and size + draft.size_bytes > _STATEMENT_BYTES:
            yield new[start:end]
            start, size = end, 0
        size += draft.size_bytes
    if new:
        yield new[start:]


def _insert(
    connection: Connection,
    tenant_id: str,
    number: int,
    new: Sequence[tuple[Version, Draft, bytes]],
) -> None:
    versions = [version for version, _, _ in new]
    drafts = [draft for _, draft, _ in new]
    records = [version.record for version in versions]
    numbers = bigints(np.full(len(new), number))
    ordinals = bigints([each.ordinal for each in versions])
    leaf_counts = integers([each.leaf_count for each in records])
    connection.execute(
        _INSERT_DOCUMENTS,
        (
            tenant_id,
            numbers,
            ordinals,
            texts([each.document_id for each in records]),
            texts([each.content_hash for each in records]),
            bigints([each.sequence for each in records]),
            leaf_counts,
            bigints([each.term_count for each in versions]),
            booleans([each.is_unsummarised for each in versions]),
            binaries([each.to_bytes() for each in records]),
            binaries([each.document.tree.to_bytes() for each in drafts]),
            binaries([each.document.parsed.text.encode() for each in drafts]),
            binaries([summarised for _, _, summarised in new]),
        ),
    )
    terms = [(version.ordinal, draft.terms) for version, draft, _ in new]
    _insert_terms(connection, tenant_id, number, terms)
    vectors = [draft.term_vector for draft in drafts if draft.term_vector is not None]
    if vectors:
        own = (numbers, ordinals, leaf_counts, binaries(vectors))
        connection.execute(_INSERT_TERM_VECTORS, (tenant_id, *own))


def _insert_terms(
    connection: Connection,
    tenant_id: str,
    number: int,
    terms: Sequence[tuple[int, Sequence[bytes]]],
) -> None:
    """Inserts filter terms of documents, given by ordinal."""
    counts = [len(own) for _, own in terms]
    if not sum(counts):
        return
    ordinals = np.repeat([ordinal for ordinal, _ in terms], counts)
    flat = binaries([term for _, own in terms for term in own])
    numbers = bigints(np.full(len(ordinals), number))
    connection.execute(_INSERT_TERMS, (tenant_id, numbers, flat, bigints(ordinals)))


def _insert_leaves(
    connection: Connection,
    tenant_id: str,
    number: int,
    home: int | None,
    new: Sequence[tuple[Version, Draft, bytes]],
    halfvec_oid: int,
) -> None:
    ancestors = np.concatenate([draft.ancestors for _, draft, _ in new], axis=1)
    vectors = np.concatenate([draft.document.vectors for _, draft, _ in new])
    ordinals = np.repeat(
        [version.ordinal for version, _, _ in new], [len(d.document.vectors) for _, d, _ in new]
    )
    heights, dimension = len(ancestors), vectors.shape[1]
    table = sql.Identifier(*table_names(home)[-1])
    statement = sql.SQL(_INSERT_LEAVES).format(table)
    rows = max(1, _STATEMENT_BYTES // (2 * dimension + 32))
    for start in range(0, len(vectors), rows):
        part = slice(start, start + rows)
        values = (
            tenant_id,
            number,
            integers(ancestors[:, part].T.ravel()),
            heights,
            heights,
            bigints(ordinals[part]),
            integers(ancestors[0, part]),
            halfvecs(vectors[part] if dimension else vectors[:0], halfvec_oid),
        )
        connection.execute(statement, values)
