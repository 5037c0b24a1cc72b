"""A collection as one snapshot sees it: found by name or alias, in one statement."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hrag.engine.common.records import CollectionRecord
from hrag.engine.common.validation import no_collection, no_summaries
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import collection_record, is_storable
from hrag.values.collections import CollectionSettings

_COLUMNS = """
c.collection_id, c.record::text, c.home, c.leaves, c.terms, t.sequence,
(SELECT reltuples FROM pg_class
 WHERE relnamespace = 'hrag_homes'::regnamespace AND relname = 'leaves_' || c.home)
"""
_TABLES = "hrag.collections c JOIN hrag.tenants t USING (tenant_id)"
_BY_NAME = f"""
SELECT {_COLUMNS} FROM hrag.names n JOIN {_TABLES} USING (tenant_id, collection_id)
WHERE n.tenant_id = %s AND n.name = %s
"""
_BY_NUMBER = f"""
SELECT {_COLUMNS} FROM {_TABLES} WHERE c.tenant_id = %s AND c.collection_id = %s
"""


Key: TypeAlias = Mapping[str, object]
"""The parameters `tenant_id` and `collection_id`, which statements on a collection's rows bind."""


@dataclass(frozen=True, slots=True)
class OpenedCollection:
    """A collection and its running totals.

    `home` is the number of its home, None while its leaves are in the shared table. `leaves`
    counts the living leaves, `terms` the occurrences of terms in them; `sequence` is the
    tenant's. `in_graph` is an estimate of how many leaves the home's index has: those that were
    deleted stay there until VACUUM, which writes this number.
    """

    tenant_id: str
    collection_id: int
    record: CollectionRecord
    home: int | None
    leaves: int
    terms: int
    sequence: int
    in_graph: float | None

    @property
    def settings(self) -> CollectionSettings:
        """What was fixed when it was created."""
        return self.record.settings

    @property
    def place(self) -> tuple[str, int]:
        """Its tenant and its number."""
        return self.tenant_id, self.collection_id

    @property
    def key(self) -> Key:
        """Its parameters."""
        return {"tenant_id": self.tenant_id, "collection_id": self.collection_id}


def open_collection(connection: Connection, tenant_id: str, name: str) -> OpenedCollection:
    """Returns the collection that a name or an alias names, or raises CollectionNotFound."""
    found = None
    if is_storable(tenant_id, name):
        found = _opened(connection, _BY_NAME, tenant_id, name)
    if found is None:
        raise no_collection(tenant_id, name)
    return found


def open_by_number(
    connection: Connection, tenant_id: str, collection_id: int
) -> OpenedCollection | None:
    """Returns a collection of the tenant; None if it has been deleted."""
    return _opened(connection, _BY_NUMBER, tenant_id, collection_id)


def open_summaries(connection: Connection, collection: OpenedCollection) -> OpenedCollection:
    """Returns the summary collection of a collection, or raises NoSummaries."""
    number = collection.record.summaries
    found = open_by_number(connection, collection.tenant_id, number) if number else None
    if found is None:
        raise no_summaries(collection.record.name)
    return found


def _opened(
    connection: Connection, statement: str, tenant_id: str, given: str | int
) -> OpenedCollection | None:
    row = connection.execute(statement, (tenant_id, given), binary=True).fetchone()
    if row is None:
        return None
    number, record, *rest = row
    return OpenedCollection(tenant_id, number, collection_record(record), *rest)
