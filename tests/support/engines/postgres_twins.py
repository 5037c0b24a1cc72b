"""A store in PostgreSQL and an exact store in memory, with the same documents.

A method that changes something changes both stores. `assert_same` compares the documents that the
stores list and the passages that they return, and checks the tables.

A home is a table with the leaves of a large collection; see `hrag.engine.postgres.indexes.homes`.
"""

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from hrag.engine.engine_documents import PreparedDocument
from hrag.engine.find import FindResult
from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.indexes.home_slots import clear_unused_slot
from hrag.engine.postgres.indexes.homes import move_collection
from hrag.engine.postgres.maintenance.reclaim import deleted_collections, reclaim_some
from hrag.engine.postgres.maintenance.worker import MaintenanceLimits, MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.filters import Filter, Match, NoneOf
from hrag.types import CollectionSettings, Passage, Retrieval, SearchMode
from tests.support.documents.fakes import collection_settings, find, query_vector
from tests.support.documents.vocabulary import question
from tests.support.engines.memory_engine import MemoryEngine
from tests.support.until import until

TOLERANCE = 1e-4
FILTERS: tuple[Filter | None, ...] = (
    None,
    Match("metadata.n", (1.0,)),
    NoneOf((Match("metadata.n", (2.0,)),)),
)
# With this retention, a replaced home can be dropped at once, if no transaction reads it.
NO_RETENTION = timedelta(0)
LIMITS = MaintenanceLimits(home_retention=NO_RETENTION)
_MODES = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG, SearchMode.SUMMARY_FIRST)


class Twins:
    """Both stores. `worker` maintains the store in PostgreSQL only when a test demands it."""

    def __init__(
        self, database: PostgresDatabase, home_leaves: int = 50, limits: MaintenanceLimits = LIMITS
    ) -> None:
        self.database = database
        self.writer = PostgresWriter(database)
        self.reader = PostgresReader(database)
        self.worker = MaintenanceWorker(database, home_leaves, limits)
        self.memory = MemoryEngine()
        self.memory.writer()

    def collection_id(self, tenant_id: str = "t", name: str = "c") -> int:
        return self.writer.open(tenant_id, name).collection_id

    def key(self, tenant_id: str = "t", name: str = "c") -> dict[str, object]:
        return {"tenant_id": tenant_id, "collection_id": self.collection_id(tenant_id, name)}

    def create(
        self, tenant_id: str = "t", name: str = "c", settings: CollectionSettings | None = None
    ) -> None:
        for store in (self.writer, self.memory):
            store.create_collection(tenant_id, name, settings or collection_settings())

    def drop(self, tenant_id: str = "t", name: str = "c") -> None:
        for store in (self.writer, self.memory):
            store.delete_collection(tenant_id, name)

    def put(self, *documents: PreparedDocument, tenant_id: str = "t", name: str = "c") -> None:
        for store in (self.writer, self.memory):
            handle = store.open(tenant_id, name)
            store.put_many([(handle, document) for document in documents])

    def delete(self, document_id: str, tenant_id: str = "t", name: str = "c") -> None:
        for store in (self.writer, self.memory):
            store.delete(store.open(tenant_id, name), document_id)

    def maintain(self, tenant_id: str = "t", name: str = "c", *, every_leaf: bool = True) -> None:
        collection_id = self.collection_id(tenant_id, name)
        self.worker.maintain(tenant_id, collection_id, every_leaf=every_leaf)

    def move(self, tenant_id: str = "t", name: str = "c") -> int:
        """Moves a collection to a new home; returns the count of leaves in it."""
        collection_id = self.collection_id(tenant_id, name)
        return move_collection(self.database, tenant_id, collection_id, NO_RETENTION)

    def reclaim(self) -> None:
        """Removes the rows of deleted collections, and the homes that no collection uses."""
        self.reclaim_rows()
        while self._due_slots():
            self.clear_slot()

    def reclaim_rows(self) -> None:
        """Removes the rows of deleted collections, except those in homes."""
        for deleted in deleted_collections(self.database):
            while reclaim_some(self.database, deleted, NO_RETENTION):
                pass

    def clear_slot(self) -> None:
        """Examines a slot of a home that is due, or waits until it is no longer due.

        A transaction that has just ended here may still be ending in the server. While the server
        lists it, `clear_unused_slot` examines no slot that it may read.
        """
        until(lambda: clear_unused_slot(self.database) or not self._due_slots())

    def _due_slots(self) -> int:
        return self.rows("hrag.home_slots WHERE drop_after < now()")

    def home(self, tenant_id: str = "t", name: str = "c") -> int | None:
        """Returns the id of a collection's home; None if the collection has none."""
        with self.database.read() as connection:
            key = self.key(tenant_id, name)
            statement = (
                "SELECT home FROM hrag.collections"
                " WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s"
            )
            return connection.execute(statement, key).fetchone()[0]

    def unused_slots(self) -> int:
        """Returns the count of places in homes that are not known to be used."""
        return self.rows("hrag.home_slots WHERE drop_after IS NOT NULL")

    def rows(self, table: str) -> int:
        """Returns the count of rows of a table."""
        with self.database.read() as connection:
            return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    def assert_same(self, seed: int = 0) -> None:
        """Fails unless the tables are sound, and both stores list and find the same documents."""
        assert check(self.database).problems == ()
        expected = [
            (collection.tenant_id, collection.name)
            for collection in self.memory.reader().collections()
        ]
        assert [
            (collection.tenant_id, collection.name) for collection in self.reader.collections()
        ] == expected
        for tenant_id, name in expected:
            infos, others = (
                store.documents(store.open(tenant_id, name), 1000, "").items
                for store in (self.writer, self.memory)
            )
            assert [info.document_id for info in infos] == [info.document_id for info in others]
            self.assert_same_results(tenant_id, name, seed)

    def assert_same_results(self, tenant_id: str, name: str, seed: int, searches: int = 12) -> None:
        """Fails unless random searches of one collection return the same from both stores."""
        draw = random.Random(seed)
        for _ in range(searches):
            search = partial(_search, draw.random(), tenant_id, name)
            assert_alike(search(self.reader), search(self.memory.reader()))


def _search(seed: float, tenant_id: str, name: str, reader: Any) -> FindResult[Passage]:
    """Runs a random search, which the seed determines."""
    draw = random.Random(seed)
    retrieval, mode = draw.choice(list(Retrieval)), draw.choice(_MODES)
    filter, count = draw.choice(FILTERS), draw.choice([1, 3, 10, 1000])
    query = query_vector(draw.randrange(1000))
    text = draw.choice([question(draw), f"Sentence {draw.randrange(6)} story"])
    with reader.snapshot(tenant_id, name) as plain:
        settings = plain.settings
    if not settings.dimension:
        retrieval = Retrieval.LEXICAL
    has_summaries = settings.summaries.value != "none"
    if mode is SearchMode.SUMMARY_FIRST and not has_summaries:
        mode = SearchMode.STANDARD
    level = settings.tree.top_level if mode is SearchMode.SMALL_TO_BIG else 0
    with reader.snapshot(tenant_id, name, summaries=has_summaries) as snapshot:
        vector = None if retrieval is Retrieval.LEXICAL else query
        return find(
            snapshot, vector, count, level, mode, text=text, retrieval=retrieval, filter=filter
        )


def assert_alike(result: FindResult[Passage], expected: FindResult[Passage]) -> None:
    """Fails unless both results have the same passages.

    Passages with equal scores may be in another order. At the limit of the search, a passage may be
    replaced by another one with an equal score.
    """
    scores, others = ([passage.score for passage in found.passages] for found in (result, expected))
    assert scores == pytest.approx(others, abs=TOLERANCE)
    worst = others[-1] + TOLERANCE if others else 0.0
    names, expected_names = (
        {passage.chunk.chunk_id for passage in found.passages if passage.score > worst}
        for found in (result, expected)
    )
    all_names, all_expected_names = (
        {passage.chunk.chunk_id for passage in found.passages} for found in (result, expected)
    )
    assert names <= all_expected_names
    assert expected_names <= all_names
    texts = {passage.chunk.chunk_id: passage.chunk.content for passage in expected.passages}
    for passage in result.passages:
        assert texts.get(passage.chunk.chunk_id, passage.chunk.content) == passage.chunk.content
    assert result.eligible_leaves == expected.eligible_leaves
    assert len(result.sections) == len(expected.sections)


@contextmanager
def twins_at(dsn: str, **options: Any) -> Iterator[Twins]:
    """Yields twins on an empty store. `options` are further arguments of `Twins`."""
    with closing(PostgresDatabase(dsn, 8, "tests", is_writer=True)) as database:
        yield Twins(database, **options)
