"""A process that works on a store in PostgreSQL until it is killed.

The first argument is the role of the process: a `writer` writes and maintains the store, and a
`reader` searches it. The other arguments are the DSN, the file of the ledger, a seed, n, and the
delay of the kill in seconds. The process kills itself at its n-th statement. If n is 0, it does not
kill itself.

A home is the vector index of a collection, and parts are its lexical index. Collections get both as
soon as they have a few dozen leaves.
"""

import random
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hrag.engine.engine_documents import DocumentSummaries, PreparedDocument, Summary
from hrag.engine.postgres.maintenance.worker import MaintenanceLimits, MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import CollectionExists, CollectionNotFound, DocumentNotFound, StoreUnavailable
from hrag.types import Retrieval, SearchMode
from tests.crash.documents import EMBEDDER, SETTINGS, SMALL, prepared_of, random_query
from tests.crash.ledger import Write
from tests.crash.postgres_ledger import DocumentKey, FileLedger
from tests.crash.statements import end_at_statement
from tests.support.documents.fakes import find, unit_vectors
from tests.support.documents.vocabulary import question

TENANTS = ("large", SMALL)
COLLECTION = "c"
PASSING = "passing"
"""A collection that is deleted and created again several times."""
HOME_LEAVES = 60
LIMITS = MaintenanceLimits(
    min_part_leaves=16,
    tail_leaves=8,
    drained_leaves=16,
    home_retention=timedelta(0),
    pause_s=0.0,
    survey_s=0.1,
)
"""Homes and parts are built from few leaves, at once and without a pause."""
_IDS = 12


def version_of(tenant_id: str, document_id: str, version: int) -> PreparedDocument:
    """Returns a version of a document as it is stored, with the version in its metadata."""
    document = prepared_of(tenant_id, document_id, version)
    return replace(document, metadata={"version": version}, metadata_json=b"")


class _Load:
    """Makes random writes to a store, and records them in the ledger."""

    def __init__(self, writer: PostgresWriter, ledger: FileLedger, seed: int) -> None:
        self._writer = writer
        self._ledger = ledger
        self._draw = random.Random(seed)
        self._actions = (self.put, self.put_many, self.delete, self.summarise, self.replace_all)

    def run(self) -> None:
        """Works until the process ends.

        A write that fails because the server was killed may be committed or not.
        """
        while True:
            (action,) = self._draw.choices(self._actions, (50, 10, 25, 10, 5))
            with suppress(StoreUnavailable):
                action()

    def put(self) -> None:
        self._put([self._random_key()])

    def put_many(self) -> None:
        self._put(sorted({self._random_key() for _ in range(4)}))

    def delete(self) -> None:
        key = self._random_key()
        write = self._ledger.send(key, stores=False)
        with suppress(DocumentNotFound):  # Like a deleted document, it is not stored.
            self._writer.delete(self._writer.open(key[0], COLLECTION), key[1])
        self._ledger.acknowledge(key, write)

    def summarise(self) -> None:
        document = self._writer.next_unsummarised(EMBEDDER.name)
        if document is not None:
            leaves = document.tree.counts[document.collection.settings.tree.embedding_level]
            texts = tuple(Summary(f"Summary {n}.", range(leaves)) for n in range(2))
            vectors = unit_vectors(2, 0, EMBEDDER.dimension)
            self._writer.put_summaries(document, DocumentSummaries(texts, vectors))

    def replace_all(self) -> None:
        """Replaces the collection PASSING, whose documents are not in the ledger."""
        tenant_id = self._draw.choice(TENANTS)
        with suppress(CollectionNotFound):
            self._writer.delete_collection(tenant_id, PASSING)
        with suppress(CollectionExists):
            self._writer.create_collection(tenant_id, PASSING, SETTINGS)
        handle = self._writer.open(tenant_id, PASSING)
        documents = [prepared_of(tenant_id, f"p{n}", self._draw.randrange(5)) for n in range(6)]
        self._writer.put_many([(handle, document) for document in documents])

    def _random_key(self) -> DocumentKey:
        return self._draw.choice(TENANTS), f"d{self._draw.randrange(_IDS)}"

    def _put(self, keys: list[DocumentKey]) -> None:
        sent = [(key, self._ledger.send(key, stores=True)) for key in keys]
        handles = [self._writer.open(key[0], COLLECTION) for key in keys]
        documents = [version_of(*key, write.number) for key, write in sent]
        results = self._writer.put_many(list(zip(handles, documents, strict=True)))
        for (key, write), result in zip(sent, results, strict=True):
            self._acknowledge(key, write, result)

    def _acknowledge(self, key: DocumentKey, write: Write, result: object) -> None:
        if not isinstance(result, StoreUnavailable):
            assert not isinstance(result, Exception), result
            self._ledger.acknowledge(key, write)


def _search(database: PostgresDatabase, seed: int) -> None:
    """Makes random searches until the process ends."""
    draw, reader = random.Random(seed), PostgresReader(database)
    options = {"mode": SearchMode.STANDARD, "retrieval": Retrieval.HYBRID}
    while True:
        with (
            suppress(StoreUnavailable),
            reader.snapshot(draw.choice(TENANTS), COLLECTION) as snapshot,
        ):
            query = unit_vectors(1, draw.randrange(99), len(random_query(draw)))[0]
            find(snapshot, query, 10, text=question(draw), **options)


def main(role: str, dsn: str, ledger: str, seed: str, at: str, delay_s: str) -> None:
    if int(at):
        end_at_statement(int(at), float(delay_s))
    database = PostgresDatabase(dsn, 8, f"hrag-{role}", is_writer=role == "writer")
    if role == "reader":
        _search(database, int(seed))
    worker = MaintenanceWorker(database, HOME_LEAVES, LIMITS)
    worker.start()
    _Load(PostgresWriter(database, worker), FileLedger(Path(ledger)), int(seed)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
