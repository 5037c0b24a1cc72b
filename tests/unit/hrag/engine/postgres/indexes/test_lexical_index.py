"""The parts of the lexical index stay correct while documents are added and deleted."""

from functools import partial

import pytest

from hrag.engine.postgres.admin.administration import PostgresAdministration
from hrag.engine.postgres.indexes.lexical_index import build_part, merge_parts
from tests.support.documents.vocabulary import wordy
from tests.support.engines.postgres_statements import before_statement

pytestmark = pytest.mark.postgres

KEY = {"tenant_id": "t", "collection_id": 1}


@pytest.fixture
def counts(database):
    """A function that returns how many rows of the tenant `t` a table has."""

    def count(table: str) -> int:
        with database.read() as connection:
            statement = f"SELECT count(*) FROM hrag.{table} WHERE tenant_id = 't'"
            return connection.execute(statement).fetchone()[0]

    return count


@pytest.fixture
def step(database):
    """A function that runs a step of maintenance in a transaction and returns its result."""

    def run(work) -> int:
        with database.write() as connection:
            return work(connection, KEY)

    return run


def test_a_part_is_built_from_enough_leaves_and_merged_with_parts_of_its_size(
    writer, collection, counts, step, database
):
    leaves = part_count = 0
    while leaves < 64:
        assert step(merge_parts) == 0
        writer.put(collection, wordy(f"d{part_count}", part_count, sentences=30))
        assert step(partial(build_part, min_leaves=10_000)) == 0
        part = step(partial(build_part, min_leaves=10))
        assert 10 <= part < 64
        leaves, part_count = leaves + part, part_count + 1
    assert (counts("term_vectors"), counts("postings_parts")) == (0, part_count)
    rows = counts("postings")
    assert step(merge_parts) == leaves
    assert counts("postings_parts") == 1
    assert counts("postings") < rows
    assert PostgresAdministration(database).check().problems == ()


def test_deleted_documents_leave_tombstones_until_their_part_is_rewritten(
    writer, collection, counts, step, database
):
    writer.put_many([(collection, wordy(f"d{n}", n)) for n in range(10)])
    step(partial(build_part, min_leaves=1))
    writer.delete(collection, "d3")
    assert counts("tombstones") == 1
    assert step(merge_parts) == 0
    for number in (4, 5, 6):
        writer.delete(collection, f"d{number}")
    assert PostgresAdministration(database).check().problems == ()
    assert step(merge_parts) > 0
    assert (counts("tombstones"), counts("postings_parts")) == (0, 1)
    assert PostgresAdministration(database).check().problems == ()
    for number in (0, 1, 2, 7, 8, 9):
        writer.delete(collection, f"d{number}")
    step(merge_parts)
    assert (counts("tombstones"), counts("postings_parts"), counts("postings")) == (0, 0, 0)


def test_a_document_that_is_deleted_while_a_part_is_built_gets_a_tombstone(
    writer, collection, counts, step, database, monkeypatch
):
    writer.put_many([(collection, wordy(f"d{n}", n)) for n in range(5)])
    deletes_term_vectors = "DELETE FROM hrag.term_vectors"
    before_statement(monkeypatch, deletes_term_vectors, lambda: writer.delete(collection, "d2"))
    step(partial(build_part, min_leaves=1))
    assert counts("tombstones") == 1
    assert PostgresAdministration(database).check().problems == ()
