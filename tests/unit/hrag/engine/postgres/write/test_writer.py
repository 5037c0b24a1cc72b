"""What several writers do to one database, and what is left of a transaction that fails."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from hrag.engine.engine_documents import (
    CollectionHandle,
    DocumentSummaries,
    StoredDocument,
    Summary,
)
from hrag.engine.postgres.store.database import Database
from hrag.engine.postgres.write import changes
from hrag.engine.postgres.write.collections import MAX_DIMENSION
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import HragError, InvalidArgument, StorageQuotaExceeded, StoreUnavailable
from hrag.filters import Exists
from hrag.types import IngestOutcome, SummaryUnit, TreeSettings
from hrag.values.quotas import Quota
from tests.support.documents.fakes import collection_settings, prepared, sentences, unit_vectors

pytestmark = pytest.mark.postgres

TABLES = ("documents", "leaves", "terms", "term_vectors", "tombstones")


def rows(database: Database, table: str) -> int:
    with database.read() as connection:
        (found,) = connection.execute(f"SELECT count(*) FROM hrag.{table}").fetchone()
    return int(found)


def contents(database: Database) -> dict[str, list[tuple]]:
    """All rows of all tables, in order."""
    names = (*TABLES, "tenants", "collections", "names", "deleted_collections")
    with database.read() as connection:
        return {
            name: connection.execute(f"SELECT t::text FROM hrag.{name} t ORDER BY 1").fetchall()
            for name in names
        }


def together(*work: Callable[[], object]) -> None:
    """Runs functions at once, each in a thread; raises what they raise."""
    start = threading.Barrier(len(work))

    def run(one: Callable[[], object]) -> object:
        start.wait()
        return one()

    with ThreadPoolExecutor(len(work)) as threads:
        for done in [threads.submit(run, each) for each in work]:
            done.result()


def put_all(writer: PostgresWriter, handle: CollectionHandle, names: list[str]) -> list[int]:
    return [writer.put(handle, prepared(name, sentences(9, 1), seed=1)).sequence for name in names]


def check_counters(database: Database) -> None:
    """Totals equal what is stored, and every row belongs to a living document."""
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


# Side by side


def test_writers_of_one_tenant_lose_no_change(database, writer, collection):
    names = [[f"{letter}{n}" for n in range(12)] for letter in "abc"]
    sequences: list[int] = []
    together(*(lambda own=own: sequences.extend(put_all(writer, collection, own)) for own in names))
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
        results = writer.put_many([(collection, each) for each in batch])
        assert not [each for each in results if isinstance(each, HragError)]
        writer.delete(collection, f"d{seed}")

    together(*(lambda seed=seed: replace_all(seed) for seed in range(4)))
    status = writer.status(collection)
    assert status.committed_sequence == 1 + 4 * (6 + 6 + 1)
    check_counters(database)
    for n in range(6):
        writer.put(collection, prepared(f"d{n}", "text"))
    assert writer.status(collection).document_count == 6


def test_tenants_are_written_to_side_by_side(database, writer, collection):
    writer.create_collection("t2", "c", collection_settings())
    other = writer.open("t2", "c")
    names = [f"d{n}" for n in range(15)]
    sequences: dict[str, list[int]] = {}

    def put(handle: CollectionHandle) -> None:
        sequences[handle.tenant_id] = put_all(writer, handle, names)

    together(lambda: put(collection), lambda: put(other))
    assert sequences == {"t": list(range(2, 17)), "t2": list(range(2, 17))}
    check_counters(database)


def test_a_writer_does_not_wait_for_another_tenants(postgres_dsn, writer, collection):
    writer.create_collection("t2", "c", collection_settings())
    with psycopg.connect(postgres_dsn) as other:
        other.execute("SELECT FROM hrag.tenants WHERE tenant_id = 't2' FOR UPDATE")
        assert writer.put(collection, prepared("d", "text")).sequence == 2


def test_the_first_collections_of_a_tenant_may_be_created_at_once(writer):
    def create(name: str) -> int:
        return writer.create_collection("t", name, collection_settings())[1]

    found: list[int] = []
    together(*(lambda name=name: found.append(create(name)) for name in "abcd"))
    assert sorted(found) == [1, 2, 3, 4]


def test_a_batch_of_several_tenants_is_one_commit_for_each(database, writer, collection):
    writer.create_collection("t2", "c", collection_settings())
    handles = [collection, writer.open("t2", "c")]
    documents = [(handles[n % 2], prepared(f"d{n}", "text", seed=n)) for n in range(6)]
    documents.insert(2, (collection, replace(documents[0][1], vectors=unit_vectors(3, 0))))
    results = writer.put_many(documents)
    assert isinstance(results.pop(2), InvalidArgument)
    assert [each.document_id for each in results] == [f"d{n}" for n in range(6)]
    assert [each.sequence for each in results] == [2, 2, 3, 3, 4, 4]
    check_counters(database)


# Failures


def test_a_change_that_fails_leaves_nothing(database, writer, collection, monkeypatch):
    writer.put(collection, prepared("kept", sentences(9)))
    before = contents(database)
    monkeypatch.setattr(changes, "_SET_USAGE", "SELECT 1 / 0, %s, %s, %s, %s, %s")
    for change in (
        lambda: writer.put(collection, prepared("d", sentences(9))),
        lambda: writer.put(collection, prepared("kept", sentences(5))),
        lambda: writer.delete(collection, "kept"),
    ):
        with pytest.raises(psycopg.errors.DivisionByZero):
            change()
        assert contents(database) == before
    monkeypatch.undo()
    assert writer.put(collection, prepared("d", sentences(9))).sequence == 3


def test_a_connection_that_is_cut_in_the_middle_leaves_nothing(
    postgres, database, writer, collection, monkeypatch
):
    writer.put(collection, prepared("kept", sentences(9)))
    before = contents(database)
    cut = "SELECT pg_terminate_backend(pg_backend_pid()), %s, %s, %s, %s, %s"
    monkeypatch.setattr(changes, "_SET_USAGE", cut)
    with pytest.raises(StoreUnavailable):
        writer.put(collection, prepared("kept", sentences(5)))
    monkeypatch.undo()
    assert contents(database) == before
    assert writer.put(collection, prepared("kept", sentences(5))).outcome is IngestOutcome.UPDATED
    check_counters(database)


# What a document leaves behind


def test_a_deleted_document_leaves_nothing(database, writer, collection):
    for n in range(70):
        writer.put(collection, prepared(f"d{n}", sentences(3, n), metadata={"n": n, "same": "x"}))
    writer.delete(collection, "d3")
    writer.put(collection, prepared("d4", "another"))
    check_counters(database)
    list(writer.delete_matching(collection, Exists("document_id")))
    assert {table: rows(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)
    check_counters(database)


def test_a_document_whose_postings_are_in_a_part_leaves_a_tombstone(database, writer, collection):
    for n in range(3):
        writer.put(collection, prepared(f"d{n}", sentences(9, n)))
    with database.write() as connection:
        connection.execute("DELETE FROM hrag.term_vectors WHERE ordinal <= 3")
    writer.put(collection, prepared("d0", sentences(2)))
    writer.delete(collection, "d2")
    with database.read() as connection:
        found = connection.execute("SELECT ordinal, leaf_count FROM hrag.tombstones").fetchall()
    assert found == [(2, len(prepared("d0", sentences(9, 0)).vectors))]


def test_a_document_without_a_lexical_index_leaves_no_tombstone(database, writer):
    settings = collection_settings(analyzer="")
    writer.create_collection("t", "c", settings)
    writer.put(writer.open("t", "c"), prepared("d", sentences(9), settings))
    writer.delete(writer.open("t", "c"), "d")
    assert {table: rows(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_leaves_of_a_collection_with_a_home_go_to_its_tail(database, writer, collection):
    with database.write() as connection:
        for name in ("leaves_7", "tail_7"):
            connection.execute(
                f"CREATE TABLE hrag_homes.{name} (LIKE hrag.leaves, PRIMARY KEY (ordinal, leaf))"
            )
        connection.execute("UPDATE hrag.collections SET home = 7")
    document = prepared("d", sentences(9))
    writer.put(collection, document)

    def leaves(name: str) -> list[tuple]:
        with database.read() as connection:
            query = f"SELECT ordinal, leaf, above FROM hrag_homes.{name} ORDER BY 1, 2"
            return connection.execute(query).fetchall()

    above = document.tree.ancestors(0).T.tolist()
    assert leaves("tail_7") == [(2, leaf, own) for leaf, own in enumerate(above)]
    assert rows(database, "leaves") == 0
    with database.write() as connection:
        connection.execute("INSERT INTO hrag_homes.leaves_7 SELECT * FROM hrag_homes.tail_7")
    writer.put(collection, prepared("d", "text"))
    assert [leaves("leaves_7"), [row[0] for row in leaves("tail_7")]] == [[], [3]]
    writer.delete(collection, "d")
    assert leaves("tail_7") == []


def test_a_document_put_twice_in_a_batch_is_stored_once(database, writer, collection):
    twice = [prepared("d", sentences(n), seed=n) for n in (3, 5)]
    results = writer.put_many([(collection, each) for each in (*twice, twice[1])])
    assert [each.outcome for each in results] == [
        IngestOutcome.CREATED,
        IngestOutcome.UPDATED,
        IngestOutcome.UNCHANGED,
    ]
    assert rows(database, "documents") == 1
    assert writer.document_with_text(collection, "d")[1] == sentences(5)
    check_counters(database)


def test_summaries_go_and_come_with_their_document(database, writer):
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


# Sizes


def test_the_widest_leaf_fits_on_a_page(writer):
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
        found = connection.execute("SELECT leaf, embedding FROM hrag.leaves ORDER BY 1").fetchall()
    assert found == [(leaf, None) for leaf in range(len(found))]
    check_counters(database)


def test_a_document_of_many_statements_is_stored_whole(database, writer, collection, monkeypatch):
    monkeypatch.setattr(changes, "_STATEMENT_BYTES", 300)
    documents = [prepared(f"d{n}", sentences(9, n), seed=n) for n in range(5)]
    writer.put_many([(collection, each) for each in documents])
    assert rows(database, "leaves") == sum(len(each.vectors) for each in documents)
    check_counters(database)


def test_a_document_takes_as_much_wherever_it_is_stored(writer, collection):
    sizes = []
    for tenant_id, name in (("t", "c"), ("another-tenant", "c"), ("t", "c2")):
        if (tenant_id, name) != ("t", "c"):
            writer.create_collection(tenant_id, name, collection_settings())
        handle = writer.open(tenant_id, name)
        before = writer.status(handle).tenant.stored_bytes
        writer.put(handle, prepared("d", sentences(9)))
        sizes.append(writer.status(handle).tenant.stored_bytes - before)
    assert len(set(sizes)) == 1


def test_what_a_quota_refuses_takes_no_sequence(database, collection):
    quota = Quota(max_documents=1)
    writer = PostgresWriter(database, quota_of=lambda _: quota)
    documents = [prepared(f"d{n}", "text", seed=n) for n in range(2)]
    results = writer.put_many([(collection, each) for each in documents])
    assert isinstance(results[1], StorageQuotaExceeded)
    assert writer.status(collection).committed_sequence == 2
    assert writer.put(collection, documents[0]).outcome is IngestOutcome.UNCHANGED
    assert writer.delete(collection, "d0") == 3
