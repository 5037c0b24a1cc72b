"""The PostgreSQL engine equals the memory engine after any changes and steps of maintenance.

Two tenants have two collections with the same names. If a part of one collection reached another
one, it would be found there or would change its scores.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from hrag.engine.engine_documents import DocumentSummaries, Summary
from hrag.engine.postgres.indexes.homes import drain_tail, move_collection
from hrag.engine.postgres.indexes.lexical_index import build_part, merge_parts
from hrag.engine.postgres.maintenance.worker import MaintenanceLimits
from hrag.engine.postgres.store.opened_collection import open_by_number
from hrag.errors import CollectionHasAliases, HragError
from hrag.filters import Filter
from hrag.types import CollectionSettings, SummaryUnit
from tests.support.documents.fakes import collection_settings, unit_vectors
from tests.support.documents.vocabulary import wordy
from tests.support.engines import filter_model
from tests.support.engines.postgres_twins import NO_RETENTION, Twins, twins_at
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

PLACES = (("t", "c"), ("t", "d"), ("u", "c"), ("u", "d"))
ALIASES = ("x", "y", "d")
LIMITS = MaintenanceLimits(min_part_leaves=8, fan_in=3, home_retention=NO_RETENTION)

places = st.sampled_from(PLACES)
document_ids = st.sampled_from([f"d{number}" for number in range(5)])
seeds = st.integers(0, 5)


def settings_of(name: str) -> CollectionSettings:
    """One collection of each tenant has summaries, and the other one has no vectors."""
    if name == "c":
        return collection_settings(summaries=SummaryUnit.CHUNK)
    return collection_settings(dimension=0)


def outcome(call: Any, *arguments: Any) -> Any:
    """Returns the type of the error that a call raises; None if it raises none."""
    try:
        call(*arguments)
    except HragError as error:
        return type(error)
    return None


class PostgresMachine(RuleBasedStateMachine):
    """Changes both stores in the same way."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self._server = server
        self._name = server.new_database()
        self._closing = twins_at(server.dsn(self._name), home_leaves=20, limits=LIMITS)
        self.twins: Twins = self._closing.__enter__()

    def teardown(self) -> None:
        try:
            self.twins.assert_same()
        finally:
            self._closing.__exit__(None, None, None)
            self._server.drop(self._name)

    def both(self, method: str, *arguments: Any) -> Any:
        """Calls a method of both writers; fails unless they raise the same error."""
        outcomes = [
            outcome(getattr(writer, method), *arguments)
            for writer in (self.twins.writer, self.twins.memory)
        ]
        assert outcomes[0] == outcomes[1], (method, arguments, outcomes)
        return outcomes[0]

    def on_both(self, method: str, place: tuple[str, str], *arguments: Any) -> Any:
        """Calls a method of both writers as `both`, on the opened collection."""
        outcomes = [
            outcome(getattr(writer, method), writer.open(*place), *arguments)
            for writer in (self.twins.writer, self.twins.memory)
        ]
        assert outcomes[0] == outcomes[1], (method, place, arguments, outcomes)
        return outcomes[0]

    @initialize()
    def create_all(self) -> None:
        for tenant_id, name in PLACES:
            self.twins.create(tenant_id, name, settings_of(name))

    @rule(
        place=places,
        names=st.lists(document_ids, min_size=1, max_size=3, unique=True),
        seed=seeds,
        size=st.integers(1, 20),
        metadata=filter_model.METADATA,
    )
    def put(
        self, place: Any, names: list[str], seed: int, size: int, metadata: dict[str, Any]
    ) -> None:
        settings = settings_of(place[1])
        documents = [wordy(name, seed, settings, size, metadata=metadata) for name in names]
        self.twins.put(*documents, tenant_id=place[0], name=place[1])

    @rule(place=places, document_id=document_ids)
    def delete(self, place: Any, document_id: str) -> None:
        self.on_both("delete", place, document_id)

    @rule(place=places, filter=filter_model.FILTERS)
    def delete_matching(self, place: Any, filter: Filter) -> None:
        for writer in (self.twins.writer, self.twins.memory):
            list(writer.delete_matching(writer.open(*place), filter))

    @rule(place=places, document_id=document_ids, metadata=filter_model.METADATA)
    def change_metadata(self, place: Any, document_id: str, metadata: dict[str, Any]) -> None:
        for writer in (self.twins.writer, self.twins.memory):
            handle = writer.open(*place)
            infos = {info.document_id: info for info in writer.documents(handle, 100, "").items}
            if document_id in infos:
                sequence = infos[document_id].sequence
                writer.put_metadata(handle, document_id, sequence, metadata, "elsewhere")

    @rule(place=places, seed=seeds, empty=st.booleans())
    def summarise(self, place: Any, seed: int, empty: bool) -> None:
        """Summarises the waiting document with the lowest id."""
        waiting = []
        for writer in (self.twins.writer, self.twins.memory):
            documents: dict[str, Any] = {}
            excluded: set[int] = set()
            while (document := writer.next_unsummarised("fake", None, excluded)) is not None:
                excluded.add(document.version)
                if (document.collection.tenant_id, document.collection.name) == place:
                    documents[document.document_id] = document
            waiting.append(documents)
        assert waiting[0].keys() == waiting[1].keys()
        if not waiting[0]:
            return
        document_id = min(waiting[0])
        leaves = waiting[0][document_id].tree.counts[0]
        texts = [
            Summary(f"River {seed} of {document_id}", range(leaves)),
            Summary("Cold", range(1)),
        ]
        texts = [] if empty else texts
        summaries = DocumentSummaries(tuple(texts), unit_vectors(len(texts), seed))
        writers = (self.twins.writer, self.twins.memory)
        for writer, documents in zip(writers, waiting, strict=True):
            assert writer.put_summaries(documents[document_id], summaries)

    @rule(place=places, alias=st.sampled_from(ALIASES))
    def set_alias(self, place: Any, alias: str) -> None:
        self.both("set_alias", place[0], alias, place[1])

    @rule(place=places, alias=st.sampled_from(ALIASES))
    def delete_alias(self, place: Any, alias: str) -> None:
        self.both("delete_alias", place[0], alias)

    @rule(place=places)
    def replace_collection(self, place: Any) -> None:
        if self.both("delete_collection", *place) is not CollectionHasAliases:
            self.twins.create(*place, settings_of(place[1]))

    @rule(place=places, summaries=st.booleans(), min_leaves=st.sampled_from([1, 20]))
    def build_part(self, place: Any, summaries: bool, min_leaves: int) -> None:
        with self.twins.database.write() as connection:
            build_part(connection, self._key(place, summaries), min_leaves)

    @rule(place=places, summaries=st.booleans())
    def merge_parts(self, place: Any, summaries: bool) -> None:
        with self.twins.database.write() as connection:
            merge_parts(connection, self._key(place, summaries), LIMITS.fan_in)

    @rule(place=places, summaries=st.booleans())
    def move(self, place: Any, summaries: bool) -> None:
        if settings_of(place[1]).dimension:
            key = self._key(place, summaries)
            move_collection(self.twins.database, place[0], key["collection_id"], NO_RETENTION)

    @rule(place=places, summaries=st.booleans(), max_leaves=st.sampled_from([1, 3, 100]))
    def drain(self, place: Any, summaries: bool, max_leaves: int) -> None:
        key = self._key(place, summaries)
        with self.twins.database.write() as connection:
            collection = open_by_number(connection, key["tenant_id"], key["collection_id"])
            if collection is not None and collection.home is not None:
                drain_tail(connection, collection, max_leaves)

    @rule(place=places, every_leaf=st.booleans())
    def maintain(self, place: Any, every_leaf: bool) -> None:
        self.twins.maintain(*place, every_leaf=every_leaf)

    @rule()
    def reclaim(self) -> None:
        self.twins.reclaim()

    def _key(self, place: Any, summaries: bool) -> Any:
        """The key of a collection, or of its summary collection if it has one."""
        key = self.twins.key(*place)
        has_summaries = place[1] == "c"
        return {**key, "collection_id": key["collection_id"] + (summaries and has_summaries)}

    @rule(place=places, seed=st.integers(0, 1 << 20))
    def search(self, place: Any, seed: int) -> None:
        self.twins.assert_same_results(*place, seed, searches=3)

    @rule(place=places, filter=filter_model.FILTERS)
    def list_filtered(self, place: Any, filter: Filter) -> None:
        writers = (self.twins.writer, self.twins.memory)
        pages = [
            writer.documents(writer.open(*place), 100, "", filter=filter) for writer in writers
        ]
        ids, expected = ([info.document_id for info in page.items] for page in pages)
        assert ids == expected
        counts = [writer.count(writer.open(*place), filter).documents for writer in writers]
        assert counts == [len(ids)] * 2

    @invariant()
    def both_have_the_same_aliases(self) -> None:
        for tenant_id in ("t", "u"):
            assert self.twins.writer.aliases(tenant_id) == self.twins.memory.aliases(tenant_id)


@pytest.mark.parametrize(
    "examples",
    [
        20,
        pytest.param(
            300, marks=(pytest.mark.slow, pytest.mark.endurance, pytest.mark.timeout(1200))
        ),
    ],
)
def test_the_store_equals_the_one_in_memory_after_any_changes(
    postgres: PostgresServer, examples: int
) -> None:
    run_state_machine_as_test(
        lambda: PostgresMachine(postgres),
        settings=hypothesis_settings(
            max_examples=examples,
            stateful_step_count=30,
            phases=[Phase.reuse, Phase.generate],  # Shrinking would take minutes: a step is slow.
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
