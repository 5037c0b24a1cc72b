"""Lexical searches return the same as the memory engine after any writes, seals and merges."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from hrag.engine import VALUES, FindRequest, FindResult, PreparedDocument
from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.segments import segment_files
from hrag.errors import outcome_of
from hrag.filters import Filter
from hrag.types import Passage, Retrieval, SearchMode
from tests.conftest import engine_at
from tests.support.documents.fakes import collection_settings, query_vector, run_maintenance, seal
from tests.support.documents.vocabulary import question, wordy
from tests.support.engines.filter_model import FILTERS, METADATA
from tests.support.engines.memory_engine import MemoryEngine

# Collections are pairs of a tenant and a name.
COLLECTIONS = [("t", "c"), ("t", "c2"), ("t2", "c")]
SETTINGS = collection_settings()
EVERYTHING = 1000
NEVER_SEALED = 10**9

collections = st.sampled_from(COLLECTIONS)
document_ids = st.sampled_from([f"d{number}" for number in range(4)])
seeds = st.integers(0, 99)
documents = st.builds(
    wordy,
    document_ids,
    seeds,
    st.just(SETTINGS),
    sentences=st.integers(1, 8),
    metadata=METADATA,
)


class LexicalMachine(RuleBasedStateMachine):
    """Changes collections of two tenants, with the same document ids, and searches them.

    Each collection is compared with a separate memory engine, which has no other collection. So
    other collections must not change its scores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        folder = Path(self.exits.enter_context(TemporaryDirectory()))
        self.engine = self.exits.enter_context(engine_at(folder / "store"))
        self.plain = {collection: MemoryEngine() for collection in COLLECTIONS}
        for collection in COLLECTIONS:
            for writer in (self.engine.writer, self.plain[collection].writer()):
                writer.create_collection(*collection, SETTINGS)

    def teardown(self) -> None:
        self.exits.close()

    def change(self, collection: tuple[str, str], name: str, *arguments: Any) -> None:
        """Calls a method of the writers of both engines with the collection and `arguments`."""
        for writer in (self.engine.writer, self.plain[collection].writer()):
            outcome_of(getattr(writer, name), writer.open(*collection), *arguments)

    @rule(collection=collections, batch=st.lists(documents, min_size=1, max_size=4))
    def put(self, collection: tuple[str, str], batch: list[PreparedDocument]) -> None:
        for document in batch:
            self.change(collection, "put", document)

    @rule(collection=collections, document_id=document_ids)
    def delete(self, collection: tuple[str, str], document_id: str) -> None:
        self.change(collection, "delete", document_id)

    @rule(threshold=st.integers(1, 20), merges=st.booleans(), loads=st.booleans())
    def index(self, threshold: int, merges: bool, loads: bool) -> None:
        for collection in COLLECTIONS:
            collection_id = self.engine.open(*collection).collection_id
            if merges:
                run_maintenance(self.engine.store, collection_id, threshold)
            else:
                seal(self.engine.store, collection_id)
        if loads:
            self.engine.restart_reader()

    @rule(collection=collections, seed=seeds, loads=st.booleans())
    def lose_a_segment(self, collection: tuple[str, str], seed: int, loads: bool) -> None:
        """Deletes the files of a segment. Until they are rebuilt, its leaves are in the tail."""
        opened = self.engine.open(*collection)
        for segment in self.engine.writer.status(opened).embedded.segments[:1]:
            segment_files.remove(self.engine.store.segments, segment.segment_id)
            if loads:
                self.engine.restart_reader()
            self.search(seed, EVERYTHING, None)
            damaged = frozenset([segment.segment_id])
            run_maintenance(self.engine.store, opened.collection_id, NEVER_SEALED, damaged)

    @rule(collection=collections, loads=st.booleans())
    def reindex(self, collection: tuple[str, str], loads: bool) -> None:
        collection_id = self.engine.open(*collection).collection_id
        segment_build.reindex(self.engine.store, collection_id, 1)
        if loads:
            self.engine.restart_reader()

    @rule(seed=seeds, limit=st.sampled_from([1, 3, EVERYTHING]), filter=st.none() | FILTERS)
    def search(self, seed: int, limit: int, filter: Filter | None) -> None:
        """Fails unless both engines return the same passages for lexical searches.

        Hybrid searches must return the same lexical scores.
        """
        words = FindRequest(
            vector=None,
            mode=SearchMode.STANDARD,
            level=0,
            limit=limit,
            candidates=EVERYTHING,
            text=question(Random(seed)),
            retrieval=Retrieval.LEXICAL,
            filter=filter,
        )
        both = replace(words, vector=query_vector(0), limit=EVERYTHING, retrieval=Retrieval.HYBRID)
        for collection in COLLECTIONS:
            with (
                self.engine.reader.snapshot(*collection) as snapshot,
                self.plain[collection].reader().snapshot(*collection) as plain,
            ):
                assert snapshot.find(words, VALUES).passages == plain.find(words, VALUES).passages
                result, expected = snapshot.find(both, VALUES), plain.find(both, VALUES)
            assert result.eligible_leaves == expected.eligible_leaves
            assert _lexical_scores(result) == _lexical_scores(expected)


def _lexical_scores(result: FindResult[Passage]) -> dict[str, float | None]:
    return {passage.chunk.chunk_id: passage.lexical_score for passage in result.passages}


LexicalMachine.TestCase.settings = hypothesis_settings(max_examples=10, stateful_step_count=20)
TestLexicalSearch = LexicalMachine.TestCase
