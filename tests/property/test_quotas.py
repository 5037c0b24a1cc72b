"""The usage and quotas of a tenant agree with a dictionary of sizes after any writes."""

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from hrag.engine import PreparedDocument
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance import reclaim
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.engine.protocols import Writer
from hrag.errors import CollectionNotFound, DocumentNotFound, StorageQuotaExceeded
from hrag.types import IngestOutcome, SummaryUnit
from hrag.values.quotas import Quota, QuotaOf, unlimited
from tests.support.documents.fakes import ModelCollection, collection_settings, prepared, sentences
from tests.support.engines.summary_model import EMBEDDER, ModelSummaries, summarise
from tests.support.servers.postgres_server import PostgresServer

SETTINGS = collection_settings(summaries=SummaryUnit.CHUNK)
NAMES = ("c", "d")

names = st.sampled_from(NAMES)
document_ids = st.sampled_from(["a", "b"])
lengths = st.sampled_from([1, 5, 20, 21])
seeds = st.integers(0, 2)


@cache
def _document(document_id: str, length: int, seed: int) -> PreparedDocument:
    metadata = {"n": seed, "words": ["x", "y"] * seed}
    return prepared(document_id, sentences(length, seed), SETTINGS, seed, metadata=metadata)


class Store(Protocol):
    """A new store of one of the engines."""

    writer: Writer

    def usage(self, tenant_id: str) -> tuple[int, ...]:
        """Returns the stored usage of a tenant: counts of collections and documents, and bytes."""

    def reclaim(self) -> None:
        """Deletes some of the rows that deleted collections have left."""

    def close(self) -> None:
        """Checks the store and removes it."""


OpenStore = Callable[[QuotaOf], Store]


class EmbeddedStore:
    """A store of the embedded engine. Implements `Store`."""

    def __init__(self, quota_of: QuotaOf) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._store = open_for_writing(self._folder)
        self.writer = EmbeddedWriter(self._store, quota_of=quota_of)

    def usage(self, tenant_id: str) -> tuple[int, ...]:
        with self._store.read() as txn:
            return read_usage(txn, tenant_id)[:3]

    def reclaim(self) -> None:
        reclaim.reclaim_some(self._store)

    def close(self) -> None:
        problems = check(self._store).problems
        self._store.close()
        shutil.rmtree(self._folder)
        assert problems == ()


class PostgresStore:
    """A store of the PostgreSQL engine. Implements `Store`."""

    def __init__(self, server: PostgresServer, quota_of: QuotaOf) -> None:
        from hrag.engine.postgres.store.database import PostgresDatabase
        from hrag.engine.postgres.write.writer import PostgresWriter

        self._server, self._name = server, server.new_database()
        self._database = PostgresDatabase(server.dsn(self._name), 2, "tests", is_writer=True)
        self.writer = PostgresWriter(self._database, quota_of=quota_of)

    def usage(self, tenant_id: str) -> tuple[int, ...]:
        from hrag.engine.postgres.store.queries import usage_of

        with self._database.read() as connection:
            return usage_of(connection, tenant_id)[:3]

    def reclaim(self) -> None:
        from hrag.engine.postgres.maintenance.reclaim import deleted_collections, reclaim_some

        for deleted in deleted_collections(self._database)[:1]:
            reclaim_some(self._database, deleted)

    def close(self) -> None:
        from hrag.engine.postgres.admin.check import check as checked

        problems = checked(self._database).problems
        self._database.close()
        self._server.drop(self._name)
        assert problems == ()


@cache
def _size(open_store: OpenStore, document_id: str, length: int, seed: int) -> int:
    """Returns the stored bytes of a document, measured in an empty store."""
    store = open_store(unlimited)
    try:
        store.writer.create_collection("t", "c", SETTINGS)
        store.writer.put(store.writer.open("t", "c"), _document(document_id, length, seed))
        return store.usage("t")[2]
    finally:
        store.close()


class QuotaMachine(RuleBasedStateMachine):
    """Writes documents of the tenant `t`, whose quota changes.

    The tenant `other` has no quota, and its usage must never change.
    """

    def __init__(self, open_store: OpenStore) -> None:
        super().__init__()
        self.open_store = open_store
        self.quota = Quota()
        self.store = open_store(lambda tenant: self.quota if tenant == "t" else Quota())
        self.writer = self.store.writer
        self.writer.create_collection("other", "c", collection_settings())
        self.writer.put(self.writer.open("other", "c"), _document("a", 5, 0))
        self.model: dict[str, dict[str, tuple[int, PreparedDocument]]] = {}
        for name in NAMES:
            self.create(name)
        self.summaries: dict[tuple[str, str], int] = {}

    def teardown(self) -> None:
        self.store.close()

    @property
    def stored(self) -> int:
        """The bytes that the tenant `t` must have stored."""
        sizes = (size for documents in self.model.values() for size, _ in documents.values())
        return sum(sizes) + sum(self.summaries.values())

    @property
    def documents(self) -> int:
        return sum(map(len, self.model.values()))

    @rule(data=st.data(), spare=st.integers(-3000, 6000))
    def bound(self, data: st.DataObject, spare: int) -> None:
        """Changes the quota of the tenant `t`."""
        counts = st.none() | st.integers(1, 6)
        self.quota = Quota(
            max_bytes=data.draw(st.sampled_from([None, max(1, self.stored + spare)])),
            max_documents=data.draw(counts),
            max_collections=data.draw(counts),
        )

    @rule(name=names)
    def create(self, name: str) -> None:
        if name in self.model:
            return
        limit = self.quota.max_collections
        if limit is not None and len(self.model) + 1 > limit:
            with pytest.raises(StorageQuotaExceeded):
                self.writer.create_collection("t", name, SETTINGS)
        else:
            self.writer.create_collection("t", name, SETTINGS)
            self.model[name] = {}

    @rule(name=names, document_id=document_ids, length=lengths, seed=seeds)
    def put(self, name: str, document_id: str, length: int, seed: int) -> None:
        if name not in self.model:
            return
        document = _document(document_id, length, seed)
        size = _size(self.open_store, document_id, length, seed)
        opened = self.writer.open("t", name)
        old_size, old = self.model[name].get(document_id, (0, None))
        if old is not None and old.content_hash == document.content_hash:
            assert self.writer.put(opened, document).outcome is IngestOutcome.UNCHANGED
        elif self._fits(size - old_size, is_new=old is None):
            self.writer.admit("t", name, document_id, "", size)
            self.writer.put(opened, document)
            self.model[name][document_id] = (size, document)
            self.summaries.pop((name, document_id), None)
        else:
            with pytest.raises(StorageQuotaExceeded):
                self.writer.admit("t", name, document_id, "", size)
            with pytest.raises(StorageQuotaExceeded):
                self.writer.put(opened, document)

    def _fits(self, more: int, *, is_new: bool) -> bool:
        documents, size = self.quota.max_documents, self.quota.max_bytes
        if is_new and documents is not None and self.documents + 1 > documents:
            return False
        return more <= 0 or size is None or self.stored + more <= size

    @rule(name=names, document_id=document_ids)
    def delete(self, name: str, document_id: str) -> None:
        if document_id in self.model.get(name, {}):
            self.writer.delete(self.writer.open("t", name), document_id)
            del self.model[name][document_id]
            self.summaries.pop((name, document_id), None)
        elif name in self.model:
            with pytest.raises(DocumentNotFound):
                self.writer.delete(self.writer.open("t", name), document_id)

    @rule(name=names)
    def delete_collection(self, name: str) -> None:
        if name not in self.model:
            with pytest.raises(CollectionNotFound):
                self.writer.delete_collection("t", name)
            return
        self.writer.delete_collection("t", name)
        del self.model[name]
        self.summaries = {key: size for key, size in self.summaries.items() if key[0] != name}

    @rule()
    def reclaim(self) -> None:
        self.store.reclaim()

    @rule()
    def summarise_one(self) -> None:
        """Summarises a document. Summaries are stored even if the tenant has reached its quota."""
        document = self.writer.next_unsummarised(EMBEDDER)
        if document is None:
            return
        before = self.store.usage("t")[2]
        summarise(self.writer, ModelSummaries(ModelCollection(SETTINGS)), 1)
        key = (document.collection.name, document.document_id)
        self.summaries[key] = self.store.usage("t")[2] - before
        assert self.summaries[key] > 0

    @invariant()
    def counters_are_the_sums(self) -> None:
        assert self.store.usage("t") == (len(self.model), self.documents, self.stored)

    @invariant()
    def the_other_tenant_is_as_it_was(self) -> None:
        assert self.store.usage("other")[:2] == (1, 1)


SETTINGS_OF_RUN = hypothesis_settings(max_examples=20, stateful_step_count=40)


def test_the_embedded_engine_enforces_quotas():
    run_state_machine_as_test(lambda: QuotaMachine(EmbeddedStore), settings=SETTINGS_OF_RUN)


@pytest.mark.postgres
def test_the_postgresql_engine_enforces_quotas(postgres):
    def open_store(quota_of: QuotaOf) -> Store:
        return PostgresStore(postgres, quota_of)

    run_state_machine_as_test(lambda: QuotaMachine(open_store), settings=SETTINGS_OF_RUN)
