"""The engine on PostgreSQL against the one in memory: any changes and steps of maintenance.

Two tenants have two collections of the same names, so that anything of one that reaches
another one would be found there, or weigh in its scores.
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

from hrag.engine.documents import DocumentSummaries, Summary
from hrag.engine.postgres.indexes import homes, lexical_index
from hrag.engine.postgres.indexes.homes import drain_tail, move_collection
from hrag.engine.postgres.indexes.lexical_index import build_part, merge_parts
from hrag.engine.postgres.store.opened_collection import open_by_number
from hrag.errors import CollectionHasAliases, HragError
from hrag.filters import Filter
from hrag.types import CollectionSettings, SummaryUnit
from tests import filter_model
from tests.fakes import collection_settings, unit_vectors
from tests.postgres_server import PostgresServer
from tests.postgres_twins import Twins, twins_at
from tests.vocabulary import wordy

pytestmark = pytest.mark.postgres

PLACES = (("t", "c"), ("t", "d"), ("u", "c"), ("u", "d"))
ALIASES = ("x", "y", "d")

places = st.sampled_from(PLACES)
document_ids = st.sampled_from([f"d{number}" for number in range(5)])
seeds = st.integers(0, 5)


def settings_of(name: str) -> CollectionSettings:
    """One collection of each tenant has summaries, the other one no vectors."""
    if name == "c":
        return collection_settings(summaries=SummaryUnit.CHUNK)
    return collection_settings(dimension=0)


def outcome(call: Any, *arguments: Any) -> Any:
    """The type of error that a call raises, or None."""
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
        self._closing = twins_at(server.dsn(self._name), home_leaves=20)
        self.twins: Twins = self._closing.__enter__()

    def teardown(self) -> None:
        try:
            self.twins.assert_same()
        finally:
            self._closing.__exit__(None, None, None)
            self._server.drop(self._name)

    def both(self, method: str, *arguments: Any) -> Any:
        """Calls both writers; they must agree on the error."""
        outcomes = [
            outcome(getattr(each, method), *arguments)
            for each in (self.twins.writer, self.twins.memory)
        ]
        assert outcomes[0] == outcomes[1], (method, arguments, outcomes)
        return outcomes[0]

    def on_both(self, method: str, place: tuple[str, str], *arguments: Any) -> Any:
        """As `both`, on an open collection."""
        outcomes = [
            outcome(getattr(each, method), each.open(*place), *arguments)
            for each in (self.twins.writer, self.twins.memory)
        ]
        assert outcomes[0] == outcomes[1], (method, place, arguments, outcomes)
        return outcomes[0]

    @initialize()
    def create_all(self) -> None:
        for tenant_id, name in PLACES:
            self.twins.create(tenant_id, name, settings_of(name))

    # Changes

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

    @rule(place=places, given=filter_model.FILTERS)
    def delete_matching(self, place: Any, given: Filter) -> None:
        for each in (self.twins.writer, self.twins.memory):
            list(each.delete_matching(each.open(*place), given))

    @rule(place=places, document_id=document_ids, metadata=filter_model.METADATA)
    def change_metadata(self, place: Any, document_id: str, metadata: dict[str, Any]) -> None:
        for each in (self.twins.writer, self.twins.memory):
            handle = each.open(*place)
            infos = {info.document_id: info for info in each.documents(handle, 100, "").items}
            if document_id in infos:
                sequence = infos[document_id].sequence
                each.put_metadata(handle, document_id, sequence, metadata, "elsewhere")

    @rule(place=places, seed=seeds, empty=st.booleans())
    def summarise(self, place: Any, seed: int, empty: bool) -> None:
        """The first document that waits, by id."""
        waiting = []
        for each in (self.twins.writer, self.twins.memory):
            found: dict[tuple[str, str], Any] = {}
            seen: set[int] = set()
            while (one := each.next_unsummarised("fake", None, seen)) is not None:
                seen.add(one.version)
                if (one.collection.tenant_id, one.collection.name) == place:
                    found[one.document_id] = one
            waiting.append(found)
        assert waiting[0].keys() == waiting[1].keys()
        if not waiting[0]:
            return
        chosen = min(waiting[0])
        leaves = waiting[0][chosen].tree.counts[0]
        texts = [Summary(f"River {seed} of {chosen}", range(leaves)), Summary("Cold", range(1))]
        texts = [] if empty else texts
        summaries = DocumentSummaries(tuple(texts), unit_vectors(len(texts), seed))
        for each, found in zip((self.twins.writer, self.twins.memory), waiting, strict=True):
            assert each.put_summaries(found[chosen], summaries)

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

    # Maintenance

    @rule(place=places, summaries=st.booleans(), least=st.sampled_from([1, 20]))
    def build_part(self, place: Any, summaries: bool, least: int) -> None:
        with self.twins.database.write() as connection:
            build_part(connection, self._key(place, summaries), least)

    @rule(place=places, summaries=st.booleans())
    def merge_parts(self, place: Any, summaries: bool) -> None:
        with self.twins.database.write() as connection:
            merge_parts(connection, self._key(place, summaries))

    @rule(place=places, summaries=st.booleans())
    def move(self, place: Any, summaries: bool) -> None:
        if settings_of(place[1]).dimension:
            key = self._key(place, summaries)
            move_collection(self.twins.database, place[0], key["collection_id"])

    @rule(place=places, summaries=st.booleans(), most=st.sampled_from([1, 3, 100]))
    def drain(self, place: Any, summaries: bool, most: int) -> None:
        key = self._key(place, summaries)
        with self.twins.database.write() as connection:
            collection = open_by_number(connection, key["tenant_id"], key["collection_id"])
            if collection is not None and collection.home is not None:
                drain_tail(connection, collection, most)

    @rule(place=places, every_leaf=st.booleans())
    def maintain(self, place: Any, every_leaf: bool) -> None:
        self.twins.maintain(*place, every_leaf=every_leaf)

    @rule()
    def reclaim(self) -> None:
        self.twins.reclaim()

    def _key(self, place: Any, summaries: bool) -> Any:
        key = self.twins.key(*place)
        more = summaries and place[1] == "c"
        return {**key, "collection_id": key["collection_id"] + more}

    # Searches

    @rule(place=places, seed=st.integers(0, 1 << 20))
    def search(self, place: Any, seed: int) -> None:
        self.twins.assert_found(*place, seed, searches=3)

    @rule(place=places, given=filter_model.FILTERS)
    def list_filtered(self, place: Any, given: Filter) -> None:
        writers = (self.twins.writer, self.twins.memory)
        listed = [each.documents(each.open(*place), 100, "", filter=given) for each in writers]
        one, other = ([info.document_id for info in each.items] for each in listed)
        assert one == other
        counted = [each.count(each.open(*place), given) for each in writers]
        assert counted[0].documents == counted[1].documents == len(one)

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
def test_any_changes_leave_what_the_store_in_memory_has(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    monkeypatch.setattr(lexical_index, "MIN_PART_LEAVES", 8)
    monkeypatch.setattr(lexical_index, "_FAN_IN", 3)
    monkeypatch.setattr(homes, "_LAST_USED_AFTER", homes.timedelta(0))
    run_state_machine_as_test(
        lambda: PostgresMachine(postgres),
        settings=hypothesis_settings(
            max_examples=examples,
            stateful_step_count=30,
            phases=[Phase.reuse, Phase.generate],  # Shrinking takes minutes: a step is slow.
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
