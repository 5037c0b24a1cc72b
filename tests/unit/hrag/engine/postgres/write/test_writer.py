"""Simultaneous writers lose no change, and failed transactions and deletions leave nothing."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import psycopg
import pytest

from hrag.engine.engine_documents import (
    CollectionHandle,
    DocumentSummaries,
    StoredDocument,
    Summary,
)
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.collections import MAX_DIMENSION
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import HragError, InvalidArgument, StorageQuotaExceeded, StoreUnavailable
from hrag.filters import Exists
from hrag.types import IngestOutcome, SummaryUnit, TreeSettings
from hrag.values.quotas import Quota
from tests.support.documents.fakes import collection_settings, prepared, sentences, unit_vectors

pytestmark = pytest.mark.postgres

TABLES = ("documents", "leaves", "terms", "term_vectors", "tombstones")


def rows(database: PostgresDatabase, table: str) -> int:
    """Returns the count of rows of a table."""
    with database.read() as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM hrag.{table}").fetchone()
    return int(count)


def contents(database: PostgresDatabase) -> dict[str, list[tuple]]:
    """Returns the rows of each table that a writer changes, as texts in ascending order."""
    names = (*TABLES, "tenants", "collections", "names", "deleted_collections")
    with database.read() as connection:
        return {
            name: connection.execute(f"SELECT t::text FROM hrag.{name} t ORDER BY 1").fetchall()
            for name in names
        }


def together(*work: Callable[[], object]) -> None:
    """Runs functions at the same time, each in a thread; raises the errors that they raise."""
    start = threading.Barrier(len(work))

    def run(function: Callable[[], object]) -> object:
        start.wait()
        return function()

    with ThreadPoolExecutor(len(work)) as threads:
        for task in [threads.submit(run, function) for function in work]:
            task.result()


def put_all(writer: PostgresWriter, handle: CollectionHandle, names: list[str]) -> list[int]:
    """Puts documents with these ids one by one; returns the sequence number of each commit."""
    return [writer.put(handle, prepared(name, sentences(9, 1), seed=1)).sequence for name in names]


def check_counters(database: PostgresDatabase) -> None:
    """Fails if a total differs from the stored rows, or a row belongs to no stored document."""
    with database.read() as connection:
        wrong = connection.execute("""
            SELECT c.* FROM hrag.collections c LEFT JOIN LATERAL (
              SELECT count(*) AS documents, coalesce(sum(leaf_count), 0) AS leaves,
                coalesce(sum(term_count), 0) AS terms, coalesce(sum(octet_length(body)), 0) AS text,
                count(*) FILTER (WHERE is_unsummarised) AS unsummarised
              FROM hrag.documents d
              WHERE d.tenant_id = c.tenant_id AND d.collection_id = c.collection_id
            ) AS own ON true
            WHERE (c.documents, c.leaves, c.terms, c.text_bytes, c.unsummarised)
              IS DISTINCT FROM (own.documents, own.leaves, own.terms, own.text, own.unsummarised)
        """).fetchall()
        assert wrong == []
        for table in ("leaves", "terms", "term_vectors"):
            stray = connection.execute(f"""
                SELECT count(*) FROM hrag.{table} x WHERE NOT EXISTS (SELECT FROM hrag.documents d
                WHERE (d.tenant_id, d.collection_id, d.ordinal)
                  = (x.tenant_id, x.collection_id, x.ordinal))
            """).fetchone()
            assert stray == (0,), table
        (leaves,) = connection.execute("SELECT sum(leaf_count) FROM hrag.documents").fetchone()
    assert rows(database, "leaves") == (leaves or 0)


# Tests of several writers at the same time.


def test_writers_of_one_tenant_lose_no_change(database, writer, collection):
    names = [[f"{letter}{n}" for n in range(12)] for letter in "abc"]
    sequences: list[int] = []

    def put(group: list[str]) -> None:
        sequences.extend(put_all(writer, collection, group))

    together(*(lambda group=group: put(group) for group in names))
    assert sorted(sequences) == list(range(2, 38))
    status = writer.status(collection)
    assert (status.document_count, status.committed_sequence) == (36, 37)
    assert status.tenant.documents == 36
    check_counters(database)


def test_writers_that_replace_the_same_documents_leave_one_version_of_each(
    database, writer, collection
):
    def replace_all(seed: int) -> None:
        order = range(6) if seed % 2 else range(5, -1, -1)
        for n in order:
            writer.put(collection, prepared(f"d{n}", sentences(5 + seed, seed), seed=seed))
        batch = [prepared(f"d{n}", sentences(9, n), seed=10 + seed) for n in order]
        results = writer.put_many([(collection, document) for document in batch])
        assert not [result for result in results if isinstance(result, HragError)]
        writer.delete(collection, f"d{seed}")

    together(*(lambda seed=seed: replace_all(seed) for seed in range(4)))
    status = writer.status(collection)
    assert status.committed_sequence == 1 + 4 * (6 + 6 + 1)
    check_counters(database)
    for n in range(6):
        writer.put(collection, prepared(f"d{n}", "text"))
    assert writer.status(collection).document_count == 6


def test_two_tenants_may_be_written_at_the_same_time(database, writer, collection):
    writer.create_collection("t2", "c", collection_settings())
    other = writer.open("t2", "c")
    names = [f"d{n}" for n in range(15)]
    sequences: dict[str, list[int]] = {}

    def put(handle: CollectionHandle) -> None:
        sequences[handle.tenant_id] = put_all(writer, handle, names)

    together(lambda: put(collection), lambda: put(other))
    assert sequences == {"t": list(range(2, 17)), "t2": list(range(2, 17))}
    check_counters(database)


def test_a_writer_does_not_wait_for_the_writer_of_another_tenant(postgres_dsn, writer, collection):
    writer.create_collection("t2", "c", collection_settings())
    with psycopg.connect(postgres_dsn) as other:
        other.execute("SELECT FROM hrag.tenants WHERE tenant_id = 't2' FOR UPDATE")
        assert writer.put(collection, prepared("d", "text")).sequence == 2


def test_the_first_collections_of_a_tenant_may_be_created_at_the_same_time(writer):
    def create(name: str) -> int:
        return writer.create_collection("t", name, collection_settings())[1]

    sequences: list[int] = []
    together(*(lambda name=name: sequences.append(create(name)) for name in "abcd"))
    assert sorted(sequences) == [1, 2, 3, 4]


def test_a_batch_of_several_tenants_is_one_commit_for_each_tenant(database, writer, collection):
    writer.create_collection("t2", "c", collection_settings())
    handles = [collection, writer.open("t2", "c")]
    documents = [(handles[n % 2], prepared(f"d{n}", "text", seed=n)) for n in range(6)]
    documents.insert(2, (collection, replace(documents[0][1], vectors=unit_vectors(3, 0))))
    results = writer.put_many(documents)
    assert isinstance(results.pop(2), InvalidArgument)
    assert [result.document_id for result in results] == [f"d{n}" for n in range(6)]
    assert [result.sequence for result in results] == [2, 2, 3, 3, 4, 4]
    check_counters(database)


# Tests of transactions that fail.


@contextmanager
def failing_usage(database: PostgresDatabase, failure: str) -> Iterator[None]:
    """Runs the SQL expression `failure` when a writer updates the usage of a tenant.

    The update is the last statement of a writer before it commits.
    """
    with database.write() as connection:
        connection.execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN PERFORM {failure}; RETURN NEW; END $$"
        )
        connection.execute(
            "CREATE TRIGGER fail BEFORE UPDATE ON hrag.tenants FOR EACH ROW EXECUTE FUNCTION fail()"
        )
    yield
    with database.write() as connection:
        connection.execute("DROP FUNCTION fail CASCADE")


def test_a_change_that_fails_changes_no_table(database, writer, collection):
    writer.put(collection, prepared("stored", sentences(9)))
    before = contents(database)
    with failing_usage(database, "1 / 0"):
        for change in (
            lambda: writer.put(collection, prepared("d", sentences(9))),
            lambda: writer.put(collection, prepared("stored", sentences(5))),
            lambda: writer.delete(collection, "stored"),
        ):
            with pytest.raises(psycopg.errors.DivisionByZero):
                change()
            assert contents(database) == before
    assert writer.put(collection, prepared("d", sentences(9))).sequence == 3


def test_a_change_whose_connection_ends_before_the_commit_changes_no_table(
    database, writer, collection
):
    writer.put(collection, prepared("stored", sentences(9)))
    before = contents(database)
    with (
        failing_usage(database, "pg_terminate_backend(pg_backend_pid())"),
        pytest.raises(StoreUnavailable),
    ):
        writer.put(collection, prepared("stored", sentences(5)))
    assert contents(database) == before
    assert writer.put(collection, prepared("stored", sentences(5))).outcome is IngestOutcome.UPDATED
    check_counters(database)


# Tests of the rows that a deleted document leaves.


def test_a_deleted_document_leaves_no_rows(database, writer, collection):
    for n in range(70):
        writer.put(collection, prepared(f"d{n}", sentences(3, n), metadata={"n": n, "same": "x"}))
    writer.delete(collection, "d3")
    writer.put(collection, prepared("d4", "another"))
    check_counters(database)
    list(writer.delete_matching(collection, Exists("document_id")))
    assert {table: rows(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)
    check_counters(database)


def test_a_deleted_document_whose_postings_are_in_a_part_leaves_a_tombstone(
    database, writer, collection
):
    for n in range(3):
        writer.put(collection, prepared(f"d{n}", sentences(9, n)))
    with database.write() as connection:
        connection.execute("DELETE FROM hrag.term_vectors WHERE ordinal <= 3")
    writer.put(collection, prepared("d0", sentences(2)))
    writer.delete(collection, "d2")
    with database.read() as connection:
        tombstones = connection.execute(
            "SELECT ordinal, leaf_count FROM hrag.tombstones"
        ).fetchall()
    assert tombstones == [(2, len(prepared("d0", sentences(9, 0)).vectors))]


def test_a_deleted_document_without_a_lexical_index_leaves_no_tombstone(database, writer):
    settings = collection_settings(analyzer="")
    writer.create_collection("t", "c", settings)
    writer.put(writer.open("t", "c"), prepared("d", sentences(9), settings))
    writer.delete(writer.open("t", "c"), "d")
    assert {table: rows(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_new_leaves_of_a_collection_with_a_home_are_stored_in_its_tail(
    database, writer, collection
):
    with database.write() as connection:
        connection.execute("CREATE TABLE hrag_homes.leaves_7 (LIKE hrag.leaves)")
        connection.execute("UPDATE hrag.collections SET home = 7")
    document = prepared("d", sentences(9))
    writer.put(collection, document)

    def leaves(name: str) -> list[tuple]:
        with database.read() as connection:
            query = f"SELECT ordinal, leaf, above FROM {name} ORDER BY 1, 2"
            return connection.execute(query).fetchall()

    home, tail = "hrag_homes.leaves_7", "hrag.leaves"
    above = document.tree.ancestors(0).T.tolist()
    assert leaves(tail) == [(2, leaf, ancestors) for leaf, ancestors in enumerate(above)]
    assert leaves(home) == []
    with database.write() as connection:
        connection.execute(f"INSERT INTO {home} SELECT * FROM {tail}")
    writer.put(collection, prepared("d", "text"))
    assert [leaves(home), [row[0] for row in leaves(tail)]] == [[], [3]]
    writer.delete(collection, "d")
    assert leaves(tail) == []


def test_a_document_put_twice_in_a_batch_is_stored_once(database, writer, collection):
    twice = [prepared("d", sentences(n), seed=n) for n in (3, 5)]
    results = writer.put_many([(collection, document) for document in (*twice, twice[1])])
    assert [result.outcome for result in results] == [
        IngestOutcome.CREATED,
        IngestOutcome.UPDATED,
        IngestOutcome.UNCHANGED,
    ]
    assert rows(database, "documents") == 1
    assert writer.document_with_text(collection, "d")[1] == sentences(5)
    check_counters(database)


def test_summaries_are_stored_and_deleted_with_their_document(database, writer):
    settings = collection_settings(summaries=SummaryUnit.CHUNK)
    writer.create_collection("t", "c", settings)
    collection = writer.open("t", "c")
    document = prepared("d", sentences(20), settings)
    texts = (Summary("The whole.", range(len(document.vectors))), Summary("A part.", range(2)))
    stored = StoredDocument(document, DocumentSummaries(texts, unit_vectors(2, 7)))
    writer.put_stored(collection, stored)
    assert rows(database, "documents") == 2
    check_counters(database)
    writer.put(collection, prepared("d", sentences(8), settings))
    assert rows(database, "documents") == 1
    waiting = writer.next_unsummarised("fake")
    other = Summary("Another.", range(1))
    assert writer.put_summaries(waiting, DocumentSummaries((other,), unit_vectors(1, 8)), 5)
    assert not writer.put_summaries(waiting, DocumentSummaries((other,), unit_vectors(1, 8)), 5)
    check_counters(database)
    writer.delete(collection, "d")
    assert {table: rows(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)
    status = writer.status(collection)
    assert (status.summary_tokens, status.tenant.stored_bytes) == (10, 0)


# Tests of the sizes of leaves and documents, and of quotas.


def test_the_widest_leaf_fits_on_a_page_of_its_table(writer):
    tenant_id, levels = "t" * 64, tuple(32 * 2**n for n in range(8))
    settings = collection_settings(TreeSettings(levels), MAX_DIMENSION)
    writer.create_collection(tenant_id, "c", settings)
    writer.put(writer.open(tenant_id, "c"), prepared("d", sentences(9), settings))
    too_wide = collection_settings(dimension=MAX_DIMENSION + 1)
    with pytest.raises(InvalidArgument, match=rf"{MAX_DIMENSION + 1}.*{MAX_DIMENSION}") as refused:
        writer.create_collection("t", "wide", too_wide)
    assert refused.value.field == "dimension"


def test_a_document_without_vectors_is_stored(database, writer):
    settings = collection_settings(dimension=0)
    writer.create_collection("t", "c", settings)
    writer.put(writer.open("t", "c"), prepared("d", sentences(9), settings))
    with database.read() as connection:
        leaves = connection.execute("SELECT leaf, embedding FROM hrag.leaves ORDER BY 1").fetchall()
    assert leaves == [(leaf, None) for leaf in range(len(leaves))]
    check_counters(database)


def test_a_document_that_needs_many_statements_is_stored_whole(database, writer):
    """The vectors of the second document exceed 16 MiB, which is the limit of one statement."""
    settings = collection_settings(dimension=MAX_DIMENSION)
    writer.create_collection("t", "c", settings)
    collection = writer.open("t", "c")
    counts = (9, 5000, 9, 9, 9)
    documents = [
        prepared(f"d{n}", sentences(count, n), settings, seed=n) for n, count in enumerate(counts)
    ]
    assert documents[1].vectors.astype(np.float16).nbytes > 16 << 20
    writer.put_many([(collection, document) for document in documents])
    assert rows(database, "leaves") == sum(len(document.vectors) for document in documents)
    check_counters(database)


def test_a_document_has_the_same_size_in_every_collection(writer, collection):
    sizes = []
    for tenant_id, name in (("t", "c"), ("another-tenant", "c"), ("t", "c2")):
        if (tenant_id, name) != ("t", "c"):
            writer.create_collection(tenant_id, name, collection_settings())
        handle = writer.open(tenant_id, name)
        before = writer.status(handle).tenant.stored_bytes
        writer.put(handle, prepared("d", sentences(9)))
        sizes.append(writer.status(handle).tenant.stored_bytes - before)
    assert len(set(sizes)) == 1


def test_a_document_that_a_quota_refuses_gets_no_sequence_number(database, collection):
    quota = Quota(max_documents=1)
    writer = PostgresWriter(database, quota_of=lambda _: quota)
    documents = [prepared(f"d{n}", "text", seed=n) for n in range(2)]
    results = writer.put_many([(collection, document) for document in documents])
    assert isinstance(results[1], StorageQuotaExceeded)
    assert writer.status(collection).committed_sequence == 2
    assert writer.put(collection, documents[0]).outcome is IngestOutcome.UNCHANGED
    assert writer.delete(collection, "d0") == 3
