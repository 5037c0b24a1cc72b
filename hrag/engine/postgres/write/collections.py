"""Creates, deletes, replaces and lists collections and their aliases.

The names and the aliases of a tenant's collections are in one table. So an alias and a collection
of a tenant cannot have the same name, and one query finds a collection by its name or by an alias.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from hrag.engine.common.records import CollectionRecord, Usage
from hrag.engine.common.summary_documents import summary_settings
from hrag.engine.common.validation import (
    check_alias_count,
    check_is_no_copy,
    check_no_aliases,
    check_quota,
    check_same_copy,
    name_taken_error,
    no_alias,
    no_copy,
)
from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.cluster import hold_placement
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.queries import (
    CollectionState,
    aliases_of,
    collection_state,
    collections_of,
    find_collection,
    one_value,
    state_of,
    usage_of,
)
from hrag.engine.postgres.write.transaction import summary_id_of
from hrag.values.collections import (
    Alias,
    AliasChange,
    Collection,
    CollectionSettings,
    Listing,
    SummaryUnit,
)
from hrag.values.deadline import Deadline
from hrag.values.errors import InvalidArgument
from hrag.values.quotas import QuotaOf, unlimited

MAX_DIMENSION = 3968
"""The largest dimension for which a leaf's row fits on a page of 8 KiB with any tenant id."""

# Locks the tenant's row, which exists afterwards, and counts the new collection.
_COUNT_COLLECTION = """
INSERT INTO hrag.tenants AS t (tenant_id, collections, sequence) VALUES (%s, 1, 1)
ON CONFLICT (tenant_id) DO UPDATE SET collections = t.collections + 1, sequence = t.sequence + 1
RETURNING collections, documents, stored_bytes, sequence
"""
_LOCK = "SELECT FROM hrag.tenants WHERE tenant_id = %s FOR UPDATE"
_SET_USAGE = """
UPDATE hrag.tenants SET collections = %s, documents = %s, stored_bytes = %s, sequence = %s
WHERE tenant_id = %s
"""
_NAME = """
SELECT collection_id, is_alias FROM hrag.names WHERE tenant_id = %s AND name = %s
"""
_ADD_NAME = """
INSERT INTO hrag.names (tenant_id, name, collection_id, is_alias) VALUES (%s, %s, %s, %s)
ON CONFLICT (tenant_id, name) DO UPDATE SET collection_id = excluded.collection_id
"""
_DELETE_NAME = "DELETE FROM hrag.names WHERE tenant_id = %s AND name = %s"
_NEXT_NUMBER = "SELECT nextval('hrag.collection_ids')"
_ADD_COLLECTION = """
INSERT INTO hrag.collections (tenant_id, collection_id, record, sequence)
VALUES (%s, %s, %s::jsonb, %s)
"""
# A summary collection has an even id, and its documents are not counted.
_DELETE_COLLECTIONS = """
DELETE FROM hrag.collections WHERE tenant_id = %s AND collection_id = ANY(%s)
RETURNING collection_id, home, stored_bytes, documents * (collection_id %% 2)
"""
_SET_RECORD = """
UPDATE hrag.collections SET record = %s::jsonb WHERE tenant_id = %s AND collection_id = %s
"""
_SET_NAME = """
UPDATE hrag.collections SET record = jsonb_set(record, '{name}', to_jsonb(%s::text))
WHERE tenant_id = %s AND collection_id = %s
"""
_ADD_SUMMARY_TOKENS = """
UPDATE hrag.collections SET summary_tokens = summary_tokens + %s
WHERE tenant_id = %s AND collection_id = %s
"""
_MOVE_ALIASES = """
UPDATE hrag.names SET collection_id = %s WHERE tenant_id = %s AND collection_id = %s AND is_alias
"""
_ADD_DELETED = """
INSERT INTO hrag.deleted_collections (tenant_id, collection_id, home) VALUES (%s, %s, %s)
"""


class IndexMaintenance(Protocol):
    """Maintains the indexes of collections in the background."""

    def changed(self, tenant_id: str, collection: int) -> None:
        """Records that a commit has changed documents of the collection with this id."""

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        """Waits while too many leaves of the collection with this id are not indexed.

        Raises DeadlineExceeded if the deadline passes before enough leaves are indexed.
        """


class CollectionWriter:
    """Implements the methods of `hrag.engine.Writer` for whole collections and aliases."""

    def __init__(
        self,
        database: PostgresDatabase,
        maintenance: IndexMaintenance | None = None,
        quota_of: QuotaOf = unlimited,
    ) -> None:
        self._database = database
        self._maintenance = maintenance
        self._quota_of = quota_of

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        _check_dimension(settings)
        with self._database.write() as connection:
            with connection.pipeline():
                hold_placement(connection, tenant_id)
                counted = connection.execute(_COUNT_COLLECTION, (tenant_id,))
                named = connection.execute(_NAME, (tenant_id, name))
                numbered = connection.execute(_NEXT_NUMBER)
            if (existing := named.fetchone()) is not None:
                raise name_taken_error(tenant_id, name, "name", is_alias=existing[1])
            ((number,),) = numbered.fetchall()
            (counts,) = counted.fetchall()
            usage, increase = Usage(*counts), Usage(collections=1, sequence=1)
            earlier = usage.plus(Usage(collections=-1, sequence=-1))
            check_quota(tenant_id, earlier.info(self._quota_of(tenant_id)), increase.info())
            with connection.pipeline():
                connection.execute(_ADD_NAME, (tenant_id, name, number, False))
                record = CollectionRecord(tenant_id, name, settings)
                _add_collection(connection, number, record, usage.sequence)
                connection.execute(b"COMMIT", prepare=False)
        return Collection(tenant_id, name, settings), usage.sequence

    def delete_collection(self, tenant_id: str, name: str) -> int:
        with self._database.write() as connection:
            hold_placement(connection, tenant_id)
            connection.execute(_LOCK, (tenant_id,))
            handle = find_collection(connection, tenant_id, name)
            number = handle.collection_id
            aliases = [
                name for name, owner, _ in aliases_of(connection, tenant_id) if owner == number
            ]
            check_no_aliases(tenant_id, handle.name, aliases)
            record, deleted = collection_state(connection, handle).record, [(number, handle.name)]
            if record.copied_to:
                copy = _record_of(connection, tenant_id, record.copied_to)
                deleted.append((record.copied_to, copy.name))
            if record.copy_of:
                source = _record_of(connection, tenant_id, record.copy_of)
                _set_record(connection, record.copy_of, replace(source, copied_to=0))
            usage = usage_of(connection, tenant_id).plus(Usage(sequence=1))
            usage = usage.plus(_drop(connection, tenant_id, [number for number, _ in deleted]))
            with connection.pipeline():
                for _, deleted_name in deleted:
                    connection.execute(_DELETE_NAME, (tenant_id, deleted_name))
                connection.execute(_SET_USAGE, (*usage, tenant_id))
        self._report_changes(tenant_id, *(number for number, _ in deleted))
        return usage.sequence

    def begin_copy(
        self, tenant_id: str, name: str, copy_name: str, settings: CollectionSettings
    ) -> tuple[CollectionHandle, CollectionHandle]:
        _check_dimension(settings)
        with self._database.write() as connection:
            hold_placement(connection, tenant_id)
            connection.execute(_LOCK, (tenant_id,))
            source = find_collection(connection, tenant_id, name)
            state = collection_state(connection, source)
            check_is_no_copy(state.record)
            number = state.record.copied_to
            if number:
                copy = _record_of(connection, tenant_id, number)
                check_same_copy(copy, copy_name, settings)
                return source, replace(
                    source, name=copy_name, collection_id=number, settings=copy.settings
                )
            existing = connection.execute(_NAME, (tenant_id, copy_name)).fetchone()
            if existing is not None:
                raise name_taken_error(tenant_id, copy_name, "name", is_alias=existing[1])
            # A vector has two bytes for each dimension.
            more_bytes = 2 * (settings.dimension - source.settings.dimension) * state.leaves
            needed = Usage(1, state.documents, state.stored_bytes + more_bytes)
            usage = usage_of(connection, tenant_id)
            check_quota(tenant_id, usage.info(self._quota_of(tenant_id)), needed.info())
            usage = usage.plus(Usage(collections=1, sequence=1))
            number = one_value(connection, _NEXT_NUMBER, ())
            copy = CollectionRecord(tenant_id, copy_name, settings, copy_of=source.collection_id)
            with connection.pipeline():
                connection.execute(_ADD_NAME, (tenant_id, copy_name, number, False))
                _add_collection(connection, number, copy, usage.sequence)
                record = replace(state.record, copied_to=number)
                _set_record(connection, source.collection_id, record)
                connection.execute(_SET_USAGE, (*usage, tenant_id))
        return source, CollectionHandle(tenant_id, copy_name, number, settings)

    def finish_copy(self, source: CollectionHandle) -> int | None:
        tenant_id, number = source.tenant_id, source.collection_id
        with self._database.write() as connection:
            hold_placement(connection, tenant_id)
            connection.execute(_LOCK, (tenant_id,))
            state = collection_state(connection, source)
            copy = state_of(connection, tenant_id, state.record.copied_to)
            if copy is None:
                raise no_copy(source)
            if copy.documents != state.documents:
                return None
            copy_number = state.record.copied_to
            usage = usage_of(connection, tenant_id).plus(Usage(sequence=1))
            connection.execute(_MOVE_ALIASES, (copy_number, tenant_id, number))
            _take_place(connection, copy_number, copy.record, state)
            usage = usage.plus(_drop(connection, tenant_id, [number]))
            connection.execute(_SET_USAGE, (*usage, tenant_id))
        self._report_changes(tenant_id, number, copy_number)
        return usage.sequence

    def collection(self, tenant_id: str, name: str) -> Collection:
        with self._database.read() as connection:
            handle = find_collection(connection, tenant_id, name)
            state = collection_state(connection, handle)
            return Collection(tenant_id, handle.name, handle.settings, state.documents)

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        with self._database.read() as connection:
            collections = collections_of(connection, tenant_id, page_token, page_size + 1)
        items = tuple(collections[:page_size])
        return Listing(items, items[-1].name if len(collections) > page_size else "")

    def open(self, tenant_id: str, name: str) -> CollectionHandle:
        with self._database.read() as connection:
            return find_collection(connection, tenant_id, name)

    def set_alias(self, tenant_id: str, alias: str, collection: str) -> AliasChange:
        with self._database.write() as connection:
            hold_placement(connection, tenant_id)
            connection.execute(_LOCK, (tenant_id,))
            handle = find_collection(connection, tenant_id, collection)
            check_is_no_copy(collection_state(connection, handle).record)
            previous = self._alias_target(connection, tenant_id, alias)
            usage = usage_of(connection, tenant_id)
            new = Alias(alias, handle.name)
            if previous != new.collection:
                usage = usage.plus(Usage(sequence=1))
                with connection.pipeline():
                    connection.execute(_ADD_NAME, (tenant_id, alias, handle.collection_id, True))
                    connection.execute(_SET_USAGE, (*usage, tenant_id))
        return AliasChange(new, previous, usage.sequence)

    def _alias_target(self, connection: Connection, tenant_id: str, alias: str) -> str:
        """Returns the name of the collection that an alias refers to; "" if the alias is new.

        Raises CollectionExists if a collection has the name `alias`. Raises StorageQuotaExceeded if
        the alias is new and the tenant already has as many aliases as allowed.
        """
        aliases = {name: collection for name, _, collection in aliases_of(connection, tenant_id)}
        if alias in aliases:
            return aliases[alias]
        if connection.execute(_NAME, (tenant_id, alias)).fetchone() is not None:
            raise name_taken_error(tenant_id, alias, "alias", is_alias=False)
        check_alias_count(tenant_id, len(aliases))
        return ""

    def delete_alias(self, tenant_id: str, alias: str) -> int:
        with self._database.write() as connection:
            hold_placement(connection, tenant_id)
            connection.execute(_LOCK, (tenant_id,))
            row = connection.execute(_NAME, (tenant_id, alias)).fetchone()
            if row is None or not row[1]:
                raise no_alias(tenant_id, alias)
            usage = usage_of(connection, tenant_id).plus(Usage(sequence=1))
            with connection.pipeline():
                connection.execute(_DELETE_NAME, (tenant_id, alias))
                connection.execute(_SET_USAGE, (*usage, tenant_id))
        return usage.sequence

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        with self._database.read() as connection:
            return tuple(
                Alias(name, target) for name, _, target in aliases_of(connection, tenant_id)
            )

    def _report_changes(self, tenant_id: str, *collections: int) -> None:
        if self._maintenance is not None:
            for number in collections:
                self._maintenance.changed(tenant_id, number)


def _add_collection(
    connection: Connection, number: int, record: CollectionRecord, sequence: int
) -> None:
    """Inserts a collection and, if its settings require summaries, its summary collection."""
    tenant_id = record.tenant_id
    if record.settings.summaries is not SummaryUnit.NONE:
        settings = summary_settings(record.settings)
        summaries_number = summary_id_of(number)
        summaries = CollectionRecord(tenant_id, record.name, settings, summarises=number)
        _add_collection(connection, summaries_number, summaries, sequence)
        record = replace(record, summaries=summaries_number)
    row = (tenant_id, number, record.to_bytes().decode(), sequence)
    connection.execute(_ADD_COLLECTION, row)


def _check_dimension(settings: CollectionSettings) -> None:
    if settings.dimension > MAX_DIMENSION:
        raise InvalidArgument(
            f"dimension is {settings.dimension}; it must be at most {MAX_DIMENSION} in PostgreSQL",
            field="dimension",
        )


def _record_of(connection: Connection, tenant_id: str, number: int) -> CollectionRecord:
    """Returns the record of a collection that exists."""
    state = state_of(connection, tenant_id, number)
    assert state is not None
    return state.record


def _set_record(connection: Connection, number: int, record: CollectionRecord) -> None:
    parameters = (record.to_bytes().decode(), record.tenant_id, number)
    connection.execute(_SET_RECORD, parameters)


def _drop(connection: Connection, tenant_id: str, numbers: Sequence[int]) -> Usage:
    """Deletes collections with their summary collections, but not their names.

    Returns the change of the tenant's usage.
    """
    all_numbers = bigints([n for number in numbers for n in (number, summary_id_of(number))])
    deleted = connection.execute(_DELETE_COLLECTIONS, (tenant_id, all_numbers)).fetchall()
    freed = Usage(-len(numbers))
    with connection.pipeline():
        for number, home, stored_bytes, documents in deleted:
            connection.execute(_ADD_DELETED, (tenant_id, number, home))
            freed = freed.plus(Usage(documents=-documents, stored_bytes=-stored_bytes))
    return freed


def _take_place(
    connection: Connection, number: int, copy: CollectionRecord, source: CollectionState
) -> None:
    """Gives the name of a collection to its copy, whose id is `number`.

    `source` is the state of the collection, which the caller deletes afterwards.
    """
    tenant_id, name = copy.tenant_id, source.record.name
    with connection.pipeline():
        connection.execute(_DELETE_NAME, (tenant_id, copy.name))
        connection.execute(_ADD_NAME, (tenant_id, name, number, False))
        _set_record(connection, number, replace(copy, name=name, copy_of=0))
        connection.execute(_SET_NAME, (name, tenant_id, summary_id_of(number)))
        parameters = (source.summary_tokens, tenant_id, number)
        connection.execute(_ADD_SUMMARY_TOKENS, parameters)
