"""A tenant's counters and bounds against a dictionary of sizes, whatever is written."""

import shutil
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hrag.engine import PreparedDocument
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance import reclaim
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import CollectionNotFound, DocumentNotFound, StorageQuotaExceeded
from hrag.quota.quotas import Quota
from hrag.types import IngestOutcome, SummaryUnit
from tests.fakes import ModelCollection, collection_settings, prepared, sentences
from tests.summary_model import EMBEDDER, ModelSummaries, summarise

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


@cache
def _size(document_id: str, length: int, seed: int) -> int:
    """What it takes in a store where nothing else is."""
    with ExitStack() as closing:
        folder = closing.enter_context(tempfile.TemporaryDirectory())
        store = open_for_writing(Path(folder))
        closing.callback(store.close)
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", SETTINGS)
        opened = writer.open("t", "c")
        writer.put(opened, _document(document_id, length, seed))
        return writer.status(opened).tenant.stored_bytes


class QuotaMachine(RuleBasedStateMachine):
    """One tenant whose quota changes, beside one that has none and never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = open_for_writing(self.folder)
        self.quota = Quota()
        self.writer = EmbeddedWriter(
            self.store, quota_of=lambda tenant: self.quota if tenant == "t" else Quota()
        )
        self.writer.create_collection("other", "c", collection_settings())
        self.writer.put(self.writer.open("other", "c"), _document("a", 5, 0))
        self.model: dict[str, dict[str, tuple[int, PreparedDocument]]] = {}
        for name in NAMES:
            self.create(name)
        self.summaries: dict[tuple[str, str], int] = {}

    def teardown(self) -> None:
        problems = check(self.store).problems
        self.store.close()
        shutil.rmtree(self.folder)
        assert problems == ()

    @property
    def stored(self) -> int:
        documents = (size for own in self.model.values() for size, _ in own.values())
        return sum(documents) + sum(self.summaries.values())

    @property
    def documents(self) -> int:
        return sum(map(len, self.model.values()))

    @rule(data=st.data(), spare=st.integers(-3000, 6000))
    def bound(self, data: st.DataObject, spare: int) -> None:
        few = st.none() | st.integers(1, 6)
        most = data.draw(st.sampled_from([None, max(1, self.stored + spare)]))
        self.quota = Quota(
            max_bytes=most, max_documents=data.draw(few), max_collections=data.draw(few)
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
        document, size = _document(document_id, length, seed), _size(document_id, length, seed)
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
        self.summaries = {place: size for place, size in self.summaries.items() if place[0] != name}

    @rule()
    def reclaim(self) -> None:
        reclaim.reclaim_some(self.store)

    @rule()
    def summarise_one(self) -> None:
        """However full the tenant is."""
        document = self.writer.next_unsummarised(EMBEDDER)
        if document is None:
            return
        before = self._usage().stored_bytes
        summarise(self.writer, ModelSummaries(ModelCollection(SETTINGS)), 1)
        place = (document.collection.name, document.document_id)
        self.summaries[place] = self._usage().stored_bytes - before
        assert self.summaries[place] > 0

    def _usage(self, tenant_id: str = "t"):
        with self.store.read() as txn:
            return read_usage(self.store, txn, tenant_id)

    @invariant()
    def counters_are_the_sums(self) -> None:
        assert self._usage()[:3] == (len(self.model), self.documents, self.stored)

    @invariant()
    def the_other_tenant_is_as_it_was(self) -> None:
        assert self._usage("other")[:2] == (1, 1)


QuotaMachine.TestCase.settings = hypothesis_settings(max_examples=20, stateful_step_count=40)
TestQuotas = QuotaMachine.TestCase
