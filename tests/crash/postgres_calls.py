"""Calls of all kinds on a store in PostgreSQL, which tests interrupt at each of their statements.

A call can be made any number of times, also after one of its kind has been interrupted. `CALLS`
has a call for each method of the writer, the reader, maintenance and administration that sends
statements. Each of them succeeds whenever the server works.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count

from hrag.engine.engine_documents import (
    CollectionHandle,
    DocumentSummaries,
    StoredDocument,
    Summary,
)
from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.admin.reindex import reindex
from hrag.engine.postgres.indexes.home_slots import clear_unused_slot
from hrag.engine.postgres.indexes.homes import move_collection
from hrag.engine.postgres.maintenance.reclaim import deleted_collections, reclaim_some
from hrag.engine.postgres.maintenance.worker import MaintenanceLimits, MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import AliasNotFound, CollectionNotFound, DocumentNotFound
from hrag.filters import Match
from hrag.types import Retrieval, SearchMode, SummaryUnit
from hrag.values.ids import parse_chunk_id
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    query_vector,
    unit_vectors,
)
from tests.support.documents.vocabulary import wordy
from tests.support.until import until

TENANT = "t"
LARGE, SMALL, SUMMARISED = "large", "small", "summarised"
"""Collections of the tenant: the first one has a home, and the last one has summaries."""
_SUMMARISES = collection_settings(summaries=SummaryUnit.CHUNK)
_OLD_ANALYZER = collection_settings(analyzer="english/1")
_NO_TIME = timedelta(0)
_LIMITS = MaintenanceLimits(
    min_part_leaves=4, tail_leaves=1, drained_leaves=4, home_retention=_NO_TIME
)
_HOME_LEAVES = 20
_IDS = 4
# A search finds at most this many leaves.
_LIMIT = 1000
_MAKE_DUE = """
UPDATE hrag.home_slots SET drop_after = now() - interval '1 s' WHERE drop_after IS NOT NULL
"""


class Calls:
    """The calls on one store, and the numbers that make each of them change something."""

    def __init__(self, database: PostgresDatabase, numbers: Iterator[int] | None = None) -> None:
        """Stores the arguments. Calls on the same store must share `numbers`."""
        self.database = database
        self.writer = PostgresWriter(database)
        self.reader = PostgresReader(database)
        self.worker = MaintenanceWorker(database, _HOME_LEAVES, _LIMITS)
        self._numbers = count(1) if numbers is None else numbers

    def through(self, database: PostgresDatabase) -> "Calls":
        """Returns the calls on the same store, through other connections."""
        return Calls(database, self._numbers)

    def fill(self) -> None:
        """Creates the collections in the empty store."""
        for name in (LARGE, SMALL):
            self.writer.create_collection(TENANT, name, collection_settings())
        self.writer.create_collection(TENANT, SUMMARISED, _SUMMARISES)
        for name in (LARGE, SMALL):
            handle = self._open(name)
            documents = [wordy(f"kept-{n}", n, sentences=8) for n in range(_IDS)]
            self.writer.put_many([(handle, document) for document in documents])
        self.maintain()

    def _open(self, name: str) -> CollectionHandle:
        return self.writer.open(TENANT, name)

    def _number(self) -> int:
        return next(self._numbers)

    # Calls that write.

    def create_and_delete_collection(self) -> None:
        name = f"passing-{self._number()}"
        self.writer.create_collection(TENANT, name, collection_settings())
        self.writer.delete_collection(TENANT, name)

    def set_and_delete_alias(self) -> None:
        with suppress(AliasNotFound):
            self.writer.delete_alias(TENANT, "alias")
        self.writer.set_alias(TENANT, "alias", LARGE)
        self.writer.set_alias(TENANT, "alias", SMALL)
        self.writer.delete_alias(TENANT, "alias")

    def put(self) -> None:
        number = self._number()
        self.writer.put(self._open(LARGE), wordy(f"put-{number % _IDS}", number, sentences=6))

    def put_many(self) -> None:
        number = self._number()
        pairs = [
            (self._open(name), wordy(f"many-{n}", number + n, sentences=3))
            for name in (LARGE, SMALL)
            for n in range(3)
        ]
        for result in self.writer.put_many(pairs):
            if isinstance(result, Exception):
                raise result

    def put_stored(self) -> None:
        number = self._number()
        document = prepared(f"stored-{number % _IDS}", f"{number} stored.", _SUMMARISES, number)
        stored = StoredDocument(document, self._summaries(number))
        self.writer.put_stored(self._open(SUMMARISED), stored)

    def summarise(self) -> None:
        number = self._number()
        document = prepared(f"new-{number % _IDS}", f"{number} is new.", _SUMMARISES, number)
        self.writer.put(self._open(SUMMARISED), document)
        while (waiting := self.writer.next_unsummarised("fake")) is not None:
            self.writer.put_summaries(waiting, self._summaries(number))

    @staticmethod
    def _summaries(seed: int) -> DocumentSummaries:
        texts = tuple(Summary(f"Summary {seed} {n}.", range(1)) for n in range(2))
        return DocumentSummaries(texts, unit_vectors(2, seed))

    def put_metadata(self) -> None:
        handle = self._open(LARGE)
        info = self.writer.document(handle, "kept-1")
        metadata = {"n": self._number()}
        self.writer.put_metadata(handle, "kept-1", info.sequence, metadata, "elsewhere")

    def put_and_delete(self) -> None:
        handle, number = self._open(SMALL), self._number()
        self.writer.put(handle, wordy("short-lived", number, sentences=2))
        self.writer.delete(handle, "short-lived")

    def delete_matching(self) -> None:
        handle, number = self._open(SMALL), self._number()
        metadata = {"kind": "passing"}
        self.writer.put(handle, wordy("matching", number, sentences=2, metadata=metadata))
        list(self.writer.delete_matching(handle, Match("metadata.kind", ("passing",))))

    # Calls that read.

    def list_everything(self) -> None:
        writer, handle = self.writer, self._open(LARGE)
        matching = Match("metadata.tags", ("a",))
        assert writer.collection(TENANT, SMALL).name == SMALL
        assert writer.collections(TENANT, 10, "").items
        assert writer.aliases(TENANT) is not None
        assert writer.admit(TENANT, SMALL, "kept-0", "another hash").unchanged is None
        assert writer.document(handle, "kept-0").document_id == "kept-0"
        assert writer.document_with_text(handle, "kept-0")[1]
        assert writer.documents(handle, 10, "", filter=matching).items
        assert writer.count(handle, matching).documents
        assert writer.status(handle).document_count
        assert writer.totals().documents

    def search(self) -> None:
        for name in (LARGE, SMALL):
            with self.reader.snapshot(TENANT, name) as snapshot:
                for retrieval in Retrieval:
                    options = {"retrieval": retrieval, "text": "valve pressure pump"}
                    assert find(snapshot, query_vector(1), 3, **options).passages

    def search_with_filter(self) -> None:
        for name in (LARGE, SMALL):
            with self.reader.snapshot(TENANT, name) as snapshot:
                options = {"filter": Match("metadata.tags", ("a",)), "text": "valve"}
                assert find(snapshot, query_vector(2), 3, **options).passages

    def search_by_summaries(self) -> None:
        with self.reader.snapshot(TENANT, SUMMARISED, summaries=True) as snapshot:
            find(snapshot, query_vector(3), 3, mode=SearchMode.SUMMARY_FIRST, text="new")

    def browse_and_export(self) -> None:
        with self.reader.snapshot(TENANT, LARGE) as snapshot:
            assert snapshot.chunk(parse_chunk_id("kept-0#0.0")).chunk.content
        assert list(self.reader.export(TENANT, LARGE))
        assert list(self.reader.collections())
        assert self.reader.sequence(TENANT)
        assert self.reader.aliases(TENANT) is not None

    # Calls of maintenance and administration.

    def maintain(self) -> None:
        handle, number = self._open(LARGE), self._number()
        self.writer.put(handle, wordy(f"indexed-{number % _IDS}", number, sentences=8))
        self.worker.maintain(TENANT, handle.collection_id, every_leaf=True)

    def move(self) -> None:
        move_collection(self.database, TENANT, self._open(LARGE).collection_id, _NO_TIME)

    def reclaim(self) -> None:
        name = f"deleted-{self._number()}"
        self.writer.create_collection(TENANT, name, collection_settings())
        self.writer.put(self._open(name), wordy("d", 1, sentences=3))
        self.writer.delete_collection(TENANT, name)
        for deleted in deleted_collections(self.database):
            while reclaim_some(self.database, deleted, _NO_TIME):
                pass

    def drop_homes(self) -> None:
        with self.database.write() as connection:
            connection.execute(_MAKE_DUE)
        while clear_unused_slot(self.database):
            pass

    def reindex(self) -> None:
        with suppress(CollectionNotFound):
            self.writer.delete_collection(TENANT, "old")
        self.writer.create_collection(TENANT, "old", _OLD_ANALYZER)
        self.writer.put(self._open("old"), wordy("d", 1, _OLD_ANALYZER, sentences=8))
        assert list(reindex(self.database))

    def check(self) -> None:
        assert check(self.database).problems == ()

    def assert_complete(self) -> None:
        """Fails unless the tables are sound, and a search finds each leaf, or the nearest ones."""
        self.check()
        for name in (LARGE, SMALL):
            leaves = min(self.writer.status(self._open(name)).leaf_count, _LIMIT)
            with self.reader.snapshot(TENANT, name) as snapshot:
                found = len(find(snapshot, query_vector(4), _LIMIT).passages)
            assert found == leaves, f"a search of {name} finds {found} of {leaves} leaves"

    def _completes(self) -> bool:
        """Deletes what is not used any more; returns True if nothing of it remains."""
        self.reclaim()
        self.drop_homes()
        with self.database.read() as connection:
            return not any(
                connection.execute(f"SELECT FROM hrag.{rows} LIMIT 1").fetchall()
                for rows in ("deleted_collections", "home_slots WHERE drop_after IS NOT NULL")
            )

    def finish(self) -> None:
        """Completes all maintenance that was interrupted. Fails if something remains.

        Sessions of lost connections may still be ending in the server. Homes are dropped later.
        """
        self.maintain()
        until(self._completes)
        with suppress(DocumentNotFound):
            self.writer.delete(self._open(SMALL), "short-lived")
        self.assert_complete()


Call = Callable[[Calls], None]

_OF_CLIENTS: tuple[Call, ...] = (
    Calls.create_and_delete_collection,
    Calls.set_and_delete_alias,
    Calls.put,
    Calls.put_many,
    Calls.put_stored,
    Calls.summarise,
    Calls.put_metadata,
    Calls.put_and_delete,
    Calls.delete_matching,
    Calls.list_everything,
    Calls.search,
    Calls.search_with_filter,
    Calls.search_by_summaries,
    Calls.browse_and_export,
)
_WITHOUT_CLIENT: tuple[Call, ...] = (
    Calls.maintain,
    Calls.move,
    Calls.reclaim,
    Calls.drop_homes,
    Calls.reindex,
    Calls.check,
)

CALLS = {call.__name__: call for call in (*_OF_CLIENTS, *_WITHOUT_CLIENT)}
"""All calls, by their names."""
MAINTENANCE = tuple(call.__name__ for call in _WITHOUT_CLIENT)
"""The names of the calls that run without a client, and without a deadline."""
