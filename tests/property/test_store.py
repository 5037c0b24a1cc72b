"""The embedded engine agrees with a plain model after any writes, seals and restarts."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance import reclaim, segment_build
from hrag.engine.embedded.maintenance.build_plan import segment_stats
from hrag.engine.embedded.maintenance.merge_policy import FACTOR, MAX_DELETED_SHARE
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.segments import manifest, segment_files
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import CollectionNotFound, DocumentNotFound
from hrag.filters import Filter
from hrag.types import (
    DocumentCount,
    IngestOutcome,
    SearchMode,
    SummaryScope,
    SummaryUnit,
    TreeSettings,
)
from tests.support.documents.fakes import (
    ModelCollection,
    collection_settings,
    find,
    matched_leaves,
    prepared,
    query_vector,
    recall,
    run_maintenance,
    seal,
    search_leaves,
    search_passages,
    sentences,
)
from tests.support.engines import filter_model
from tests.support.engines.summarisers import summary_collection
from tests.support.engines.summary_model import EMBEDDER, ModelSummaries, summarise

TENANTS = ("t", "t2")
MIN_RECALL = 0.99

tenants = st.sampled_from(TENANTS)
document_ids = st.sampled_from([f"d{number}" for number in range(6)])
# There are few seeds, so that documents share vectors.
seeds = st.integers(0, 5)
# A search for few leaves uses HNSW, and a search for many leaves is an exact scan.
counts = st.sampled_from([1, 2, 3, 8, 50, 1000])


class StoreMachine(RuleBasedStateMachine):
    """Changes and searches the collections of two tenants, which have the same name.

    `models` and `summaries` have the models of the collections and of their summaries. `sealed` has
    the tenants whose collections may have segments, so that their recall may be below 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.models: dict[str, ModelCollection] = {}
        self.summaries: dict[str, ModelSummaries] = {}
        self.sealed: set[str] = set()
        self.sequences = dict.fromkeys(TENANTS, 0)
        self.recalls = [1.0]
        self._open()

    def _open(self) -> None:
        self.store = open_for_writing(self.folder)
        self.writer = EmbeddedWriter(self.store, max_log_entries=4)
        self.reader = EmbeddedReader(self.store, vector_budget_bytes=0)

    def _close(self) -> None:
        self.reader.close()
        problems = check(self.store).problems
        self.store.close()
        assert problems == ()

    def teardown(self) -> None:
        self._close()
        shutil.rmtree(self.folder)
        assert sum(self.recalls) / len(self.recalls) >= MIN_RECALL

    @initialize(levels=st.sampled_from([(32,), (32, 64), (32, 50, 200)]), data=st.data())
    def create_all(self, levels: tuple[int, ...], data: st.DataObject) -> None:
        embedded = data.draw(st.integers(0, len(levels) - 1))
        tree = TreeSettings(levels, 0.1, embedded)
        self.settings = collection_settings(tree, summaries=SummaryUnit.CHUNK)
        for tenant_id in TENANTS:
            self._create(tenant_id)

    def _create(self, tenant_id: str) -> None:
        _, sequence = self.writer.create_collection(tenant_id, "c", self.settings)
        self._advance(tenant_id, sequence)
        self.models[tenant_id] = ModelCollection(self.settings)
        self.summaries[tenant_id] = ModelSummaries(self.models[tenant_id])

    def _advance(self, tenant_id: str, sequence: int) -> None:
        """Fails unless `sequence` is the next sequence number of the tenant; records it."""
        assert sequence == self.sequences[tenant_id] + 1
        self.sequences[tenant_id] = sequence

    @rule(
        tenant_id=tenants,
        document_id=document_ids,
        seed=seeds,
        size=st.integers(1, 100),
        metadata=filter_model.METADATA,
    )
    def put(
        self, tenant_id: str, document_id: str, seed: int, size: int, metadata: dict[str, Any]
    ) -> None:
        text = sentences(size, seed)
        document = prepared(document_id, text, self.settings, seed, metadata=metadata)
        model = self.models[tenant_id]
        old = model.documents.get(document_id)
        result = self.writer.put(self.writer.open(tenant_id, "c"), document)
        if old is None:
            assert result.outcome is IngestOutcome.CREATED
        elif old.content_hash != document.content_hash:
            assert result.outcome is IngestOutcome.UPDATED
        else:
            assert result.outcome is IngestOutcome.UNCHANGED
            return
        self._advance(tenant_id, result.sequence)
        model.put(document)
        self.summaries[tenant_id].forget(document_id)

    @rule(
        tenant_id=tenants,
        document_id=document_ids,
        metadata=filter_model.METADATA,
        source=st.sampled_from(["", "https://example.org/d2"]),
    )
    def change_metadata(
        self, tenant_id: str, document_id: str, metadata: dict[str, Any], source: str
    ) -> None:
        opened, model = self.writer.open(tenant_id, "c"), self.models[tenant_id]
        stored = model.documents.get(document_id)
        if stored is None:
            with pytest.raises(DocumentNotFound):
                self.writer.put_metadata(opened, document_id, 1, metadata, source)
            return
        version = self.writer.document(opened, document_id).sequence
        info = self.writer.put_metadata(opened, document_id, version, metadata, source)
        self._advance(tenant_id, info.sequence)
        changed = replace(
            stored, metadata=metadata, metadata_json=b"", source=source, content_hash=""
        )
        model.put(changed)

    @rule(tenant_id=tenants, document_id=document_ids)
    def put_the_same_again(self, tenant_id: str, document_id: str) -> None:
        stored = self.models[tenant_id].documents.get(document_id)
        if stored is not None and stored.content_hash:
            result = self.writer.put(self.writer.open(tenant_id, "c"), stored)
            assert result.outcome is IngestOutcome.UNCHANGED
            assert result.sequence <= self.sequences[tenant_id]

    @rule(tenant_id=tenants, document_id=document_ids)
    def delete(self, tenant_id: str, document_id: str) -> None:
        opened = self.writer.open(tenant_id, "c")
        if document_id in self.models[tenant_id].documents:
            self._advance(tenant_id, self.writer.delete(opened, document_id))
            del self.models[tenant_id].documents[document_id]
            self.summaries[tenant_id].forget(document_id)
        else:
            with pytest.raises(DocumentNotFound):
                self.writer.delete(opened, document_id)

    @rule(tenant_id=tenants, filter=filter_model.FILTERS)
    def delete_matching(self, tenant_id: str, filter: Filter) -> None:
        opened, model = self.writer.open(tenant_id, "c"), self.models[tenant_id]
        deleted = list(model.filtered(filter).documents)
        (step,) = self.writer.delete_matching(opened, filter)
        assert step.documents == len(deleted)
        self.sequences[tenant_id] += len(deleted)
        assert step.sequence == self.sequences[tenant_id]
        for document_id in deleted:
            del model.documents[document_id]
            self.summaries[tenant_id].forget(document_id)

    @rule(tenant_id=tenants, load=st.booleans())
    def seal(self, tenant_id: str, load: bool) -> None:
        opened = self.writer.open(tenant_id, "c")
        seal(self.store, summary_collection(self.store, opened).collection_id)
        collection_id = self.writer.open(tenant_id, "c").collection_id
        leaves = segment_build.tail_leaves(self.store, collection_id)
        record = seal(self.store, collection_id)
        assert (record is None) == (leaves == 0)
        assert record is None or record.rows == leaves
        self._sealed(tenant_id, load)

    @rule(count=st.integers(1, 10))
    def summarise(self, count: int) -> None:
        for _ in range(count):
            document = self.writer.next_unsummarised(EMBEDDER)
            if document is not None:
                tenant_id = document.collection.tenant_id
                summarise(self.writer, self.summaries[tenant_id], 1)
                self.sequences[tenant_id] += 1

    @rule(tenant_id=tenants, seed=seeds, count=counts, scope=st.sampled_from(SummaryScope))
    def search_by_summaries(
        self, tenant_id: str, seed: int, count: int, scope: SummaryScope
    ) -> None:
        query, summaries = query_vector(seed), self.summaries[tenant_id]
        with self.reader.snapshot(tenant_id, "c", summaries=True) as snapshot:
            result = find(
                snapshot,
                query,
                10_000,
                mode=SearchMode.SUMMARY_FIRST,
                top_sections=count,
                summary_scope=scope,
            )
        assert result.exact
        leaves = matched_leaves(result.passages)
        assert leaves.keys() == summaries.leaves(query, summaries.best(query, count, scope)).keys()

    @rule(tenant_id=tenants, threshold=st.integers(1, 20), load=st.booleans())
    def merge(self, tenant_id: str, threshold: int, load: bool) -> None:
        collection_id = self.writer.open(tenant_id, "c").collection_id
        run_maintenance(self.store, collection_id, threshold)
        assert segment_build.tail_leaves(self.store, collection_id) < threshold
        with self.store.read() as txn:
            records = manifest.read_manifest(txn, collection_id)
            segments = [segment_stats(record) for record in records]
        for index, segment in enumerate(segments):
            newer_leaves = sum(newer.living for newer in segments[index + 1 :])
            assert segment.living >= FACTOR * newer_leaves
            assert segment.deleted <= MAX_DELETED_SHARE * segment.rows
        self._sealed(tenant_id, load)

    @rule(tenant_id=tenants, seed=st.integers(0, 9), load=st.booleans())
    def lose_a_segment(self, tenant_id: str, seed: int, load: bool) -> None:
        """Deletes the files of a segment. Until they are rebuilt, its leaves are read from LMDB."""
        collection_id = self.writer.open(tenant_id, "c").collection_id
        segments = self.writer.status(self.writer.open(tenant_id, "c")).embedded.segments
        if segments:
            lost = segments[seed % len(segments)].segment_id
            segment_files.remove(self.store.segments, lost)
            if load:
                self.restart_the_reader()
            self.search(tenant_id, seed=seed, count=3)
            run_maintenance(self.store, collection_id, 10**9, frozenset([lost]))
            self._sealed(tenant_id, load)

    @rule(tenant_id=tenants, load=st.booleans())
    def rebuild(self, tenant_id: str, load: bool) -> None:
        collection_id = self.writer.open(tenant_id, "c").collection_id
        old_segments = self.writer.status(self.writer.open(tenant_id, "c")).embedded.segments
        leaves = segment_build.reindex(self.store, collection_id, 30, lambda: None)
        if leaves:
            assert leaves == self.models[tenant_id].leaf_count
            status = self.writer.status(self.writer.open(tenant_id, "c"))
            assert (len(status.embedded.segments), status.embedded.tail_leaf_count) == (1, 0)
        else:
            assert self.models[tenant_id].leaf_count < 30
            assert not old_segments or not self.models[tenant_id].leaf_count
        self._sealed(tenant_id, load)

    def _sealed(self, tenant_id: str, load: bool) -> None:
        if self.writer.status(self.writer.open(tenant_id, "c")).embedded.segments:
            self.sealed.add(tenant_id)
        if load:
            self.restart_the_reader()

    @rule()
    def restart(self) -> None:
        self._close()
        self._open()

    @rule()
    def restart_the_reader(self) -> None:
        self.reader.close()
        self.reader = EmbeddedReader(self.store, vector_budget_bytes=0)

    @rule(tenant_id=tenants)
    def delete_the_collection(self, tenant_id: str) -> None:
        self._advance(tenant_id, self.writer.delete_collection(tenant_id, "c"))
        with pytest.raises(CollectionNotFound):
            self.writer.open(tenant_id, "c")
        self.sealed.discard(tenant_id)
        self._create(tenant_id)

    @rule()
    def reclaim(self) -> None:
        while reclaim.reclaim_some(self.store):
            pass

    @rule(tenant_id=tenants, seed=seeds, count=counts)
    def search(self, tenant_id: str, seed: int, count: int) -> None:
        query = query_vector(seed)
        with self.reader.snapshot(tenant_id, "c") as snapshot:
            assert snapshot.sequence == self.sequences[tenant_id]
            leaves = search_leaves(snapshot, query, count)
        share = recall(leaves, self.models[tenant_id], query, count)
        if tenant_id in self.sealed:
            self.recalls.append(share)
        else:
            assert share == 1.0

    @rule(tenant_id=tenants, seed=seeds, count=counts, filter=filter_model.FILTERS)
    def search_filtered(self, tenant_id: str, seed: int, count: int, filter: Filter) -> None:
        query = query_vector(seed)
        model = self.models[tenant_id].filtered(filter)
        with self.reader.snapshot(tenant_id, "c") as snapshot:
            result = find(snapshot, query, count, filter=filter)
        assert result.eligible_leaves == model.leaf_count
        assert result.exhausted == (count >= model.leaf_count)
        share = recall(matched_leaves(result.passages), model, query, count)
        assert share == 1.0 or not result.exact
        self.recalls.append(share)

    @rule(tenant_id=tenants, filter=filter_model.FILTERS)
    def list_filtered(self, tenant_id: str, filter: Filter) -> None:
        opened, model = self.writer.open(tenant_id, "c"), self.models[tenant_id]
        listing = self.writer.documents(opened, 100, "", filter=filter)
        expected = sorted(model.filtered(filter).documents)
        assert [info.document_id for info in listing.items] == expected
        count = self.writer.count(opened, filter)
        total, sequence = len(model.documents), self.sequences[tenant_id]
        assert count == DocumentCount(len(expected), total, sequence)

    @rule(tenant_id=tenants, seed=seeds)
    def climb(self, tenant_id: str, seed: int) -> None:
        top = self.settings.tree.top_level
        model = self.models[tenant_id]
        with self.reader.snapshot(tenant_id, "c") as snapshot:
            passages = search_passages(snapshot, query_vector(seed), 10_000, top, keep_overlap=True)
        assert set(matched_leaves(passages)) == set(model.scores(query_vector(seed)))
        for passage in passages:
            document = model.documents[passage.chunk.document_id]
            record = document.tree.record(top, passage.chunk.index)
            text = document.parsed.text[record.char_start : record.char_end]
            assert passage.chunk.content == text
            assert passage.chunk.metadata == document.metadata
            assert passage.chunk.source == document.source

    @invariant()
    def the_sequence_number_of_a_tenant_is_that_of_its_last_change(self) -> None:
        sequences = {tenant_id: self.reader.sequence(tenant_id) for tenant_id in TENANTS}
        assert sequences == self.sequences

    @precondition(lambda self: self.models)
    @invariant()
    def the_writer_lists_the_stored_documents(self) -> None:
        for tenant_id, model in self.models.items():
            listing = self.writer.documents(self.writer.open(tenant_id, "c"), 100, "")
            assert [info.document_id for info in listing.items] == sorted(model.documents)


StoreMachine.TestCase.settings = hypothesis_settings(max_examples=25, stateful_step_count=40)
TestStore = StoreMachine.TestCase


@pytest.mark.slow
class TestStoreOftener(StoreMachine.TestCase):
    settings = hypothesis_settings(max_examples=120, stateful_step_count=40)
