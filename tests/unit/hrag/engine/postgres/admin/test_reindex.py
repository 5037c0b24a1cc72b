"""A collection of an older analyzer version gets the newest version, while its tenant works.

The collection in PostgreSQL has the old version, and the collection in the memory engine has the
new one. After the reindexing, searches find the same in both.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.admin.reindex import reindex
from hrag.engine.reports import ReindexedCollection
from hrag.errors import DataLoss
from hrag.types import CollectionSettings, SummaryUnit
from tests.support.documents.fakes import collection_settings
from tests.support.documents.vocabulary import wordy
from tests.support.engines.postgres_statements import before_statement
from tests.support.engines.postgres_twins import Twins, twins_at
from tests.support.until import until

pytestmark = pytest.mark.postgres

OLD = collection_settings(analyzer="english/1")
NEW = collection_settings()
_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
_DAMAGE = "UPDATE hrag.documents SET tree = '\\x00' WHERE document_id = 'd3' AND tenant_id = 't'"


@pytest.fixture
def twins(postgres_dsn: str) -> Iterator[Twins]:
    with twins_at(postgres_dsn) as twins:
        create(twins)
        yield twins


def create(twins: Twins, name: str = "c") -> None:
    twins.writer.create_collection("t", name, OLD)
    twins.memory.create_collection("t", name, NEW)


def fill(twins: Twins, count: int = 6, name: str = "c", sentences: int = 12) -> None:
    twins.put(*(wordy(f"d{n}", n, NEW, sentences) for n in range(count)), name=name)


def settings_of(twins: Twins, name: str = "c") -> CollectionSettings:
    return twins.writer.open("t", name).settings


def test_a_reindexed_collection_equals_one_of_the_new_version(twins):
    fill(twins)
    twins.maintain()
    twins.delete("d1")  # This leaves a tombstone.
    twins.put(wordy("late", 70, NEW, 5))
    assert check(twins.database).problems == ()
    leaves = twins.writer.status(twins.writer.open("t", "c")).leaf_count
    assert list(reindex(twins.database)) == [ReindexedCollection("t", "c", leaves)]
    assert settings_of(twins) == NEW
    twins.assert_same()
    assert list(reindex(twins.database)) == []
    twins.maintain()
    twins.put(wordy("d0", 80, NEW, 5), wordy("later", 81, NEW, 5))
    twins.delete("late")
    twins.assert_same()


def test_the_terms_of_many_documents_become_a_part_at_once(twins):
    fill(twins, 6, sentences=250)
    list(reindex(twins.database))
    assert twins.rows("hrag.postings_parts") == 1
    twins.assert_same()


def test_an_empty_collection_gets_the_newest_version(twins):
    assert list(reindex(twins.database)) == [ReindexedCollection("t", "c", 0)]
    assert settings_of(twins) == NEW
    fill(twins)
    twins.assert_same()


def test_summary_collections_are_reindexed(postgres_dsn):
    settings = collection_settings(summaries=SummaryUnit.CHUNK, analyzer="english/1")
    with twins_at(postgres_dsn) as twins:
        twins.writer.create_collection("t", "c", settings)
        reports = list(reindex(twins.database))
        assert [(report.tenant_id, report.name) for report in reports] == 2 * [("t", "c")]
        assert check(twins.database).problems == ()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def test_a_writer_that_waits_computes_its_terms_again(twins, threads, monkeypatch):
    """The writers have analysed their documents by the old version before they wait."""
    fill(twins)
    handle = twins.writer.open("t", "c")
    documents = wordy("new", 60, NEW, 6), wordy("d2", 61, NEW, 6)
    tasks: list[Future[Any]] = []

    def blocked() -> bool:
        with twins.database.read() as connection:
            return connection.execute(_WAITING).fetchone() != (0,)

    def begin_writing() -> None:
        tasks.append(threads.submit(twins.writer.put_many, [(handle, d) for d in documents]))
        until(blocked)

    before_statement(monkeypatch, "INSERT INTO hrag.term_vectors", begin_writing)
    list(reindex(twins.database))
    assert [task.result() for task in tasks]
    memory = twins.memory.open("t", "c")
    twins.memory.put_many([(memory, document) for document in documents])
    twins.assert_same()


def test_searches_use_the_old_index_until_the_new_one_is_complete(twins, monkeypatch):
    fill(twins)
    found: list[Any] = []
    before_statement(
        monkeypatch, "INSERT INTO hrag.term_vectors", lambda: found.append(settings_of(twins))
    )
    list(reindex(twins.database))
    assert found == [OLD]


def test_a_collection_with_a_damaged_document_is_not_changed(twins):
    create(twins, "c2")
    fill(twins)
    fill(twins, name="c2")
    damaged = _DAMAGE + f" AND collection_id = {twins.collection_id()}"
    with twins.database.write() as connection:
        connection.execute(damaged)
    reindexing = reindex(twins.database)
    assert next(reindexing).name == "c2"
    with pytest.raises(DataLoss, match="1 of 2 collections were not reindexed") as caught:
        next(reindexing)
    assert "of collection 't/c' is damaged" in caught.value.message
    assert (settings_of(twins).analyzer, settings_of(twins, "c2")) == ("english/1", NEW)
    twins.assert_same_results("t", "c2", 0)
