"""The PostgreSQL engine returns the same as the memory engine after any changes and maintenance.

Each of two tenants has two collections, with the same names. If data of one collection came into
another collection, a search there would find it, or it would change the scores there.
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
from hrag.engine.postgres.store.opened_collection import open_by_id
from hrag.errors import CollectionHasAliases, HragError
from hrag.filters import Filter
from hrag.types import CollectionSettings, SummaryUnit
from tests.support.documents.fakes import collection_settings, unit_vectors
from tests.support.documents.vocabulary import wordy
from tests.support.engines import filter_model
from tests.support.engines.postgres_twins import NO_RETENTION, Twins, twins_at
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

# Collections are pairs of a tenant and a name.
COLLECTIONS = (("t", "c"), ("t", "d"), ("u", "c"), ("u", "d"))
ALIASES = ("x", "y", "d")
LIMITS = MaintenanceLimits(min_part_leaves=8, fan_in=3, home_retention=NO_RETENTION)

collections = st.sampled_from(COLLECTIONS)
document_ids = st.sampled_from([f"d{number}" for number in range(5)])
seeds = st.integers(0, 5)


def settings_of(name: str) -> CollectionSettings:
    """Returns the settings of a collection.

    Collections named `c` have summaries, and collections named `d` have no vectors.
    """
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
    """Changes the stores of both engines in the same way, and compares them."""

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
        """Calls a method of both writers; fails unless both raise the same error, or none.

        Returns the type of the error, or None.
        """
        outcomes = [
            outcome(getattr(writer, method), *arguments)
            for writer in (self.twins.writer, self.twins.memory)
        ]
        assert outcomes[0] == outcomes[1], (method, arguments, outcomes)
        return outcomes[0]

    def on_both(self, method: str, tenant_and_name: tuple[str, str], *arguments: Any) -> Any:
        """Does the same as `both`, for a method whose first argument is an opened collection."""
        outcomes = [
            outcome(getattr(writer, method), writer.open(*tenant_and_name), *arguments)
            for writer in (self.twins.writer, self.twins.memory)
        ]
        assert outcomes[0] == outcomes[1], (method, tenant_and_name, arguments, outcomes)
        return outcomes[0]

    @initialize()
    def create_all(self) -> None:
        for tenant_id, name in COLLECTIONS:
            self.twins.create(tenant_id, name, settings_of(name))

    @rule(
        tenant_and_name=collections,
        names=st.lists(document_ids, min_size=1, max_size=3, unique=True),
        seed=seeds,
        size=st.integers(1, 20),
        metadata=filter_model.METADATA,
    )
    def put(
        self, tenant_and_name: Any, names: list[str], seed: int, size: int, metadata: dict[str, Any]
    ) -> None:
        settings = settings_of(tenant_and_name[1])
        documents = [wordy(name, seed, settings, size, metadata=metadata) for name in names]
        self.twins.put(*documents, tenant_id=tenant_and_name[0], name=tenant_and_name[1])

    @rule(tenant_and_name=collections, document_id=document_ids)
    def delete(self, tenant_and_name: Any, document_id: str) -> None:
        self.on_both("delete", tenant_and_name, document_id)

    @rule(tenant_and_name=collections, filter=filter_model.FILTERS)
    def delete_matching(self, tenant_and_name: Any, filter: Filter) -> None:
        for writer in (self.twins.writer, self.twins.memory):
            list(writer.delete_matching(writer.open(*tenant_and_name), filter))

    @rule(tenant_and_name=collections, document_id=document_ids, metadata=filter_model.METADATA)
    def change_metadata(
        self, tenant_and_name: Any, document_id: str, metadata: dict[str, Any]
    ) -> None:
        for writer in (self.twins.writer, self.twins.memory):
            handle = writer.open(*tenant_and_name)
            infos = {info.document_id: info for info in writer.documents(handle, 100, "").items}
            if document_id in infos:
                sequence = infos[document_id].sequence
                writer.put_metadata(handle, document_id, sequence, metadata, "elsewhere")

    @rule(tenant_and_name=collections, seed=seeds, empty=st.booleans())
    def summarise(self, tenant_and_name: Any, seed: int, empty: bool) -> None:
        """Summarises the waiting document of a collection that has the lowest id."""
        waiting = []
        for writer in (self.twins.writer, self.twins.memory):
            documents: dict[str, Any] = {}
            excluded: set[int] = set()
            while (document := writer.next_unsummarised("fake", None, excluded)) is not None:
                excluded.add(document.version)
                if (document.collection.tenant_id, document.collection.name) == tenant_and_name:
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

    @rule(tenant_and_name=collections, alias=st.sampled_from(ALIASES))
    def set_alias(self, tenant_and_name: Any, alias: str) -> None:
        self.both("set_alias", tenant_and_name[0], alias, tenant_and_name[1])

    @rule(tenant_and_name=collections, alias=st.sampled_from(ALIASES))
    def delete_alias(self, tenant_and_name: Any, alias: str) -> None:
        self.both("delete_alias", tenant_and_name[0], alias)

    @rule(tenant_and_name=collections)
    def replace_collection(self, tenant_and_name: Any) -> None:
        if self.both("delete_collection", *tenant_and_name) is not CollectionHasAliases:
            self.twins.create(*tenant_and_name, settings_of(tenant_and_name[1]))

    @rule(tenant_and_name=collections, summaries=st.booleans(), min_leaves=st.sampled_from([1, 20]))
    def build_part(self, tenant_and_name: Any, summaries: bool, min_leaves: int) -> None:
        with self.twins.database.write() as connection:
            build_part(connection, self._key(tenant_and_name, summaries), min_leaves)

    @rule(tenant_and_name=collections, summaries=st.booleans())
    def merge_parts(self, tenant_and_name: Any, summaries: bool) -> None:
        with self.twins.database.write() as connection:
            merge_parts(connection, self._key(tenant_and_name, summaries), LIMITS.fan_in)

    @rule(tenant_and_name=collections, summaries=st.booleans())
    def move(self, tenant_and_name: Any, summaries: bool) -> None:
        if settings_of(tenant_and_name[1]).dimension:
            key = self._key(tenant_and_name, summaries)
            move_collection(
                self.twins.database, tenant_and_name[0], key["collection_id"], NO_RETENTION
            )

    @rule(
        tenant_and_name=collections,
        summaries=st.booleans(),
        max_leaves=st.sampled_from([1, 3, 100]),
    )
    def drain(self, tenant_and_name: Any, summaries: bool, max_leaves: int) -> None:
        key = self._key(tenant_and_name, summaries)
        with self.twins.database.write() as connection:
            collection = open_by_id(connection, key["tenant_id"], key["collection_id"])
            if collection is not None and collection.home is not None:
                drain_tail(connection, collection, max_leaves)

    @rule(tenant_and_name=collections, every_leaf=st.booleans())
    def maintain(self, tenant_and_name: Any, every_leaf: bool) -> None:
        self.twins.maintain(*tenant_and_name, every_leaf=every_leaf)

    @rule()
    def reclaim(self) -> None:
        self.twins.reclaim()

    def _key(self, tenant_and_name: Any, summaries: bool) -> Any:
        """Returns the key of a collection, or of its summary collection.

        It is the key of the summary collection if `summaries` is true and there is one.
        """
        key = self.twins.key(*tenant_and_name)
        has_summaries = tenant_and_name[1] == "c"
        return {**key, "collection_id": key["collection_id"] + (summaries and has_summaries)}

    @rule(tenant_and_name=collections, seed=st.integers(0, 1 << 20))
    def search(self, tenant_and_name: Any, seed: int) -> None:
        self.twins.assert_same_results(*tenant_and_name, seed, searches=3)

    @rule(tenant_and_name=collections, filter=filter_model.FILTERS)
    def list_filtered(self, tenant_and_name: Any, filter: Filter) -> None:
        writers = (self.twins.writer, self.twins.memory)
        pages = [
            writer.documents(writer.open(*tenant_and_name), 100, "", filter=filter)
            for writer in writers
        ]
        ids, expected = ([info.document_id for info in page.items] for page in pages)
        assert ids == expected
        counts = [
            writer.count(writer.open(*tenant_and_name), filter).documents for writer in writers
        ]
        assert counts == [len(ids)] * 2

    @invariant()
    def both_have_the_same_aliases(self) -> None:
        for tenant_id in ("t", "u"):
            assert self.twins.writer.aliases(tenant_id) == self.twins.memory.aliases(tenant_id)


@pytest.mark.parametrize(
    "examples", [20, pytest.param(300, marks=(pytest.mark.endurance, pytest.mark.timeout(2400)))]
)
def test_the_postgresql_engine_equals_the_memory_engine_after_any_changes(
    postgres: PostgresServer, examples: int
) -> None:
    run_state_machine_as_test(
        lambda: PostgresMachine(postgres),
        settings=hypothesis_settings(
            max_examples=examples,
            stateful_step_count=30,
            phases=[
                Phase.reuse,
                Phase.generate,
            ],  # Steps are slow, so shrinking would take minutes.
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
