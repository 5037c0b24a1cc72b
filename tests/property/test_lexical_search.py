"""Lexical searches equal the memory engine after any sequence of writes, seals and merges."""

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

PLACES = [("t", "c"), ("t", "c2"), ("t2", "c")]
SETTINGS = collection_settings()
EVERYTHING = 1000
FOREVER = 10**9

places = st.sampled_from(PLACES)
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
    """Collections of two tenants, with the same document ids.

    Each collection has a separate memory engine, so other collections must not change its scores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        folder = Path(self.exits.enter_context(TemporaryDirectory()))
        self.engine = self.exits.enter_context(engine_at(folder / "store"))
        self.plain = {place: MemoryEngine() for place in PLACES}
        for place in PLACES:
            for writer in (self.engine.writer, self.plain[place].writer()):
                writer.create_collection(*place, SETTINGS)

    def teardown(self) -> None:
        self.exits.close()

    def change(self, place: tuple[str, str], name: str, *arguments: Any) -> None:
        """Calls a method of both writers of the collection."""
        for writer in (self.engine.writer, self.plain[place].writer()):
            outcome_of(getattr(writer, name), writer.open(*place), *arguments)

    @rule(place=places, batch=st.lists(documents, min_size=1, max_size=4))
    def put(self, place: tuple[str, str], batch: list[PreparedDocument]) -> None:
        for document in batch:
            self.change(place, "put", document)

    @rule(place=places, document_id=document_ids)
    def delete(self, place: tuple[str, str], document_id: str) -> None:
        self.change(place, "delete", document_id)

    @rule(threshold=st.integers(1, 20), merges=st.booleans(), loads=st.booleans())
    def index(self, threshold: int, merges: bool, loads: bool) -> None:
        for place in PLACES:
            number = self.engine.open(*place).collection_id
            if merges:
                run_maintenance(self.engine.store, number, threshold)
            else:
                seal(self.engine.store, number)
        if loads:
            self.engine.restart_reader()

    @rule(place=places, seed=seeds, loads=st.booleans())
    def lose_a_segment(self, place: tuple[str, str], seed: int, loads: bool) -> None:
        """Deletes the files of a segment. Until it is rebuilt, its leaves are in the tail."""
        opened = self.engine.open(*place)
        for segment in self.engine.writer.status(opened).embedded.segments[:1]:
            segment_files.remove(self.engine.store.segments, segment.segment_id)
            if loads:
                self.engine.restart_reader()
            self.search(seed, EVERYTHING, None)
            damaged = frozenset([segment.segment_id])
            run_maintenance(self.engine.store, opened.collection_id, FOREVER, damaged)

    @rule(place=places, loads=st.booleans())
    def reindex(self, place: tuple[str, str], loads: bool) -> None:
        number = self.engine.open(*place).collection_id
        segment_build.reindex(self.engine.store, number, 1)
        if loads:
            self.engine.restart_reader()

    @rule(seed=seeds, limit=st.sampled_from([1, 3, EVERYTHING]), filter=st.none() | FILTERS)
    def search(self, seed: int, limit: int, filter: Filter | None) -> None:
        """Lexical searches find the same passages; hybrid searches find the same lexical scores."""
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
        for place in PLACES:
            with (
                self.engine.reader.snapshot(*place) as snapshot,
                self.plain[place].reader().snapshot(*place) as plain,
            ):
                assert snapshot.find(words, VALUES).passages == plain.find(words, VALUES).passages
                result, expected = snapshot.find(both, VALUES), plain.find(both, VALUES)
            assert result.eligible_leaves == expected.eligible_leaves
            assert _lexical_scores(result) == _lexical_scores(expected)


def _lexical_scores(result: FindResult[Passage]) -> dict[str, float | None]:
    return {passage.chunk.chunk_id: passage.lexical_score for passage in result.passages}


LexicalMachine.TestCase.settings = hypothesis_settings(max_examples=10, stateful_step_count=20)
TestLexicalSearch = LexicalMachine.TestCase
