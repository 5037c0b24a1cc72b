"""Writes the changes of a transaction and commits them, all in one round trip to the server.

Each statement receives the rows of a table as one array per column. Rows are deleted before new
rows are inserted, because a new version of a document has the same document id as the old version.

Each INSERT also reads the tenant's row from `hrag.tenants`. So Citus sends the whole statement to
the one node that has the tenant's rows. An INSERT from arrays alone would be evaluated by the
coordinator, which sends the rows to the node by COPY; row-level security does not allow this.
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
from hrag.engine.postgres.write.document_drafts import DocumentDraft

# The rows of one INSERT statement have about this many bytes. A single document may have more, but
# at most some tens of megabytes; PostgreSQL allows 1 GB for a parameter.
_STATEMENT_BYTES = 16 << 20

_DELETE_DOCUMENTS = """
DELETE FROM hrag.documents
WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
"""
_DELETE_LEAVES = """
DELETE FROM {} WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
"""
# Deletes each row whose filter term is one of the given terms and whose ordinal is one of the given
# ordinals. Only the documents with these ordinals lose rows.
_DELETE_TERMS = """
DELETE FROM hrag.terms
WHERE tenant_id = %s AND collection_id = %s AND term = ANY(%s) AND ordinal = ANY(%s)
"""
# A deleted document has either a term vector, which is deleted, or postings in the lexical index.
# Postings are deleted only by a later merge, so a document without a term vector gets a tombstone.
# The first statement waits for a transaction that builds a part from some of the term vectors. The
# second statement then sees which term vectors this transaction has deleted.
_LOCK_TERM_VECTORS = """
SELECT FROM hrag.term_vectors
WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s) ORDER BY ordinal FOR UPDATE
"""
_INSERT_TOMBSTONES = """
INSERT INTO hrag.tombstones (tenant_id, collection_id, ordinal, leaf_count)
SELECT t.tenant_id, %s, removed.ordinal, removed.leaf_count
FROM hrag.tenants t, unnest(%s, %s) AS removed (ordinal, leaf_count)
WHERE t.tenant_id = %s AND NOT EXISTS (
  SELECT FROM hrag.term_vectors v
  WHERE v.tenant_id = t.tenant_id AND v.collection_id = %s AND v.ordinal = removed.ordinal)
"""
_DELETE_TERM_VECTORS = """
DELETE FROM hrag.term_vectors
WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
"""
_INSERT_DOCUMENTS = """
INSERT INTO hrag.documents (tenant_id, collection_id, ordinal, document_id, content_hash,
  sequence, leaf_count, term_count, is_unsummarised, record, tree, body, summarised, original)
SELECT t.tenant_id, collection_id, ordinal, document_id, content_hash, new.sequence, leaf_count,
  term_count, is_unsummarised, record, tree, body, nullif(summarised, ''), nullif(original, '')
FROM hrag.tenants t, unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) AS new (
  collection_id, ordinal, document_id, content_hash, sequence, leaf_count, term_count,
  is_unsummarised, record, tree, body, summarised, original)
WHERE t.tenant_id = %s
"""
# The ancestors of all leaves are in one array, of which each leaf gets one slice. If the array of
# vectors is empty, `embedding` is null for each leaf.
_INSERT_LEAVES = """
INSERT INTO hrag.leaves (tenant_id, collection_id, ordinal, leaf, above, embedding)
SELECT t.tenant_id, %s, ordinal, leaf, (%s)[(number - 1) * %s + 1 : number * %s], embedding
FROM hrag.tenants t,
  ROWS FROM (unnest(%s), unnest(%s), unnest(%s::halfvec[])) WITH ORDINALITY
  AS new (ordinal, leaf, embedding, number)
WHERE t.tenant_id = %s
"""
_INSERT_TERMS = """
INSERT INTO hrag.terms (tenant_id, collection_id, term, ordinal)
SELECT t.tenant_id, collection_id, term, ordinal
FROM hrag.tenants t, unnest(%s, %s, %s) AS new (collection_id, term, ordinal)
WHERE t.tenant_id = %s
"""
_INSERT_TERM_VECTORS = """
INSERT INTO hrag.term_vectors (tenant_id, collection_id, ordinal, leaf_count, vector)
SELECT t.tenant_id, collection_id, ordinal, leaf_count, vector
FROM hrag.tenants t,
  unnest(%s, %s, %s, %s) AS new (collection_id, ordinal, leaf_count, vector)
WHERE t.tenant_id = %s
"""
_REVISE_DOCUMENT = """
UPDATE hrag.documents SET content_hash = %s, sequence = %s, record = %b
WHERE tenant_id = %s AND collection_id = %s AND ordinal = %s
"""
_MARK_SUMMARISED = """
UPDATE hrag.documents SET is_unsummarised = false
WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
"""
_UPDATE_TOTALS = """
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
class DocumentVersion:
    """A version of a document that is already stored or that the transaction will store."""

    ordinal: int
    record: DocumentRecord
    term_count: int
    is_unsummarised: bool


class Counts(NamedTuple):
    """The amounts that a transaction adds to the totals of a collection; they may be negative."""

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
    def of(cls, version: DocumentVersion) -> "Counts":
        """Returns the counts of one version of a document.

        `unsummarised` and `summary_tokens` are 0 in the result.
        """
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
        """Returns the sum of these counts and `more`, field by field."""
        return Counts(*map(add, self, more))

    def minus(self, less: "Counts") -> "Counts":
        """Returns these counts minus `less`, field by field."""
        return Counts(*map(sub, self, less))


@dataclass(slots=True)
class CollectionChanges:
    """The changes of one collection in a transaction.

    `sequence` is the sequence number of the last of these changes; 0 if there is no change.
    `analyzer` is the analyzer of the documents' term vectors; it is empty if they have none.
    """

    home: int | None
    analyzer: str
    sequence: int = 0
    counts: Counts = field(default_factory=Counts)
    new: dict[int, tuple[DocumentVersion, DocumentDraft, bytes]] = field(default_factory=dict)
    """The new versions of documents, by ordinal.

    In a summary collection, the bytes are the encoded `Summarised` of the document; otherwise b"".
    """
    deleted: list[DocumentVersion] = field(default_factory=list)
    """The stored versions to delete."""
    revised: dict[int, tuple[DocumentRecord, DocumentVersion]] = field(default_factory=dict)
    """The stored record and the new version of each document whose metadata changes, by ordinal."""
    summarised: list[int] = field(default_factory=list)
    """Ordinals of stored documents that no longer wait for their summaries."""


def write_changes(
    connection: Connection,
    tenant_id: str,
    collections: dict[int, CollectionChanges],
    usage: Usage,
    halfvec_oid: int,
) -> None:
    """Writes the changes of all collections and the tenant's usage, and commits.

    `collections` has the changes of each collection, by its id. `halfvec_oid` is the OID of
    pgvector's type halfvec.
    """
    with connection.pipeline():
        for number, changes in collections.items():
            _delete(connection, tenant_id, number, changes)
            _revise(connection, tenant_id, number, changes)
        for number, changes in collections.items():
            new = list(changes.new.values())
            for batch in _batches(new):
                _insert(connection, tenant_id, number, batch)
                _insert_leaves(connection, tenant_id, number, batch, halfvec_oid)
            parameters = (changes.sequence, *changes.counts, tenant_id, number)
            connection.execute(_UPDATE_TOTALS, parameters)
        connection.execute(_SET_USAGE, (*usage, tenant_id))
        connection.execute(b"COMMIT", prepare=False)


def _delete(
    connection: Connection, tenant_id: str, number: int, changes: CollectionChanges
) -> None:
    if not changes.deleted:
        return
    deleted = bigints([version.ordinal for version in changes.deleted])
    parameters = (tenant_id, number, deleted)
    connection.execute(_DELETE_DOCUMENTS, parameters)
    for table in table_names(changes.home):
        statement = sql.SQL(_DELETE_LEAVES).format(sql.Identifier(*table))
        connection.execute(statement, parameters)
    terms = sorted({term for version in changes.deleted for term in terms_of(version.record)})
    if terms:
        connection.execute(_DELETE_TERMS, (tenant_id, number, binaries(terms), deleted))
    if changes.analyzer:
        leaf_counts = integers([version.record.leaf_count for version in changes.deleted])
        connection.execute(_LOCK_TERM_VECTORS, parameters)
        connection.execute(_INSERT_TOMBSTONES, (number, deleted, leaf_counts, tenant_id, number))
        connection.execute(_DELETE_TERM_VECTORS, parameters)


def _revise(
    connection: Connection, tenant_id: str, number: int, changes: CollectionChanges
) -> None:
    for ordinal, (old, version) in changes.revised.items():
        new = version.record
        parameters = (new.content_hash, new.sequence, new.to_bytes(), tenant_id, number, ordinal)
        connection.execute(_REVISE_DOCUMENT, parameters)
        before, after = set(terms_of(old)), set(terms_of(new))
        if removed := sorted(before - after):
            term_parameters = (tenant_id, number, binaries(removed), bigints([ordinal]))
            connection.execute(_DELETE_TERMS, term_parameters)
        _insert_terms(connection, tenant_id, number, [(ordinal, sorted(after - before))])
    if changes.summarised:
        connection.execute(_MARK_SUMMARISED, (tenant_id, number, bigints(changes.summarised)))


def _batches(
    new: Sequence[tuple[DocumentVersion, DocumentDraft, bytes]],
) -> Iterator[Sequence[tuple[DocumentVersion, DocumentDraft, bytes]]]:
    """Yields batches of new documents, one batch for each INSERT statement.

    A batch has at most about `_STATEMENT_BYTES`, but at least one document.
    """
    start, size_bytes = 0, 0
    for end, (_, draft, _) in enumerate(new):
        if end > start and size_bytes + draft.size_bytes > _STATEMENT_BYTES:
            yield new[start:end]
            start, size_bytes = end, 0
        size_bytes += draft.size_bytes
    if new:
        yield new[start:]


def _insert(
    connection: Connection,
    tenant_id: str,
    number: int,
    new: Sequence[tuple[DocumentVersion, DocumentDraft, bytes]],
) -> None:
    versions = [version for version, _, _ in new]
    drafts = [draft for _, draft, _ in new]
    records = [version.record for version in versions]
    numbers = bigints(np.full(len(new), number))
    ordinals = bigints([version.ordinal for version in versions])
    leaf_counts = integers([record.leaf_count for record in records])
    connection.execute(
        _INSERT_DOCUMENTS,
        (
            numbers,
            ordinals,
            texts([record.document_id for record in records]),
            texts([record.content_hash for record in records]),
            bigints([record.sequence for record in records]),
            leaf_counts,
            bigints([version.term_count for version in versions]),
            booleans([version.is_unsummarised for version in versions]),
            binaries([record.to_bytes() for record in records]),
            binaries([draft.document.tree.to_bytes() for draft in drafts]),
            binaries([draft.document.parsed.text.encode() for draft in drafts]),
            binaries([summarised for _, _, summarised in new]),
            binaries([draft.document.original or b"" for draft in drafts]),
            tenant_id,
        ),
    )
    terms = [(version.ordinal, draft.terms) for version, draft, _ in new]
    _insert_terms(connection, tenant_id, number, terms)
    vectors = [draft.term_vector for draft in drafts if draft.term_vector is not None]
    if vectors:
        columns = (numbers, ordinals, leaf_counts, binaries(vectors))
        connection.execute(_INSERT_TERM_VECTORS, (*columns, tenant_id))


def _insert_terms(
    connection: Connection,
    tenant_id: str,
    number: int,
    terms: Sequence[tuple[int, Sequence[bytes]]],
) -> None:
    """Inserts filter terms; `terms` has pairs of a document's ordinal and its filter terms."""
    counts = [len(document_terms) for _, document_terms in terms]
    if not sum(counts):
        return
    ordinals = np.repeat([ordinal for ordinal, _ in terms], counts)
    all_terms = binaries([term for _, document_terms in terms for term in document_terms])
    numbers = bigints(np.full(len(ordinals), number))
    connection.execute(_INSERT_TERMS, (numbers, all_terms, bigints(ordinals), tenant_id))


def _insert_leaves(
    connection: Connection,
    tenant_id: str,
    number: int,
    new: Sequence[tuple[DocumentVersion, DocumentDraft, bytes]],
    halfvec_oid: int,
) -> None:
    ancestors = np.concatenate([draft.ancestors for _, draft, _ in new], axis=1)
    vectors = np.concatenate([draft.document.vectors for _, draft, _ in new])
    ordinals = np.repeat(
        [version.ordinal for version, _, _ in new], [len(d.document.vectors) for _, d, _ in new]
    )
    heights, dimension = len(ancestors), vectors.shape[1]
    rows = max(1, _STATEMENT_BYTES // (2 * dimension + 32))
    for start in range(0, len(vectors), rows):
        batch = slice(start, start + rows)
        values = (
            number,
            integers(ancestors[:, batch].T.ravel()),
            heights,
            heights,
            bigints(ordinals[batch]),
            integers(ancestors[0, batch]),
            halfvecs(vectors[batch] if dimension else vectors[:0], halfvec_oid),
            tenant_id,
        )
        connection.execute(_INSERT_LEAVES, values)
