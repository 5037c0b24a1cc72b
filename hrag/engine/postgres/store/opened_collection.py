"""Reads the row of a collection in one statement, by its name, an alias or its id."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hrag.engine.common.records import CollectionRecord
from hrag.engine.common.validation import no_collection, no_summaries
from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.queries import collection_record, is_storable
from hrag.values.collections import CollectionSettings

# The statements have subqueries because planning a join takes longer, and Citus plans statements in
# each search.
_SELECT = """
SELECT collection_id, record::text, home, leaves, terms,
  (SELECT sequence FROM hrag.tenants WHERE tenant_id = %(tenant_id)s), graph_leaves
FROM hrag.collections WHERE tenant_id = %(tenant_id)s AND collection_id =
"""
_BY_NAME = f"""
{_SELECT} (SELECT collection_id FROM hrag.names WHERE tenant_id = %(tenant_id)s AND name = %(name)s)
"""
_BY_ID = f"{_SELECT} %(collection_id)s"


Key: TypeAlias = Mapping[str, object]
"""The parameters `tenant_id` and `collection_id` of a statement on the rows of a collection."""


@dataclass(frozen=True, slots=True)
class OpenedCollection:
    """A collection and its running totals, as one snapshot sees them.

    `home` is the id of the collection's home, a table with an HNSW index. If it is None, all leaves
    of the collection are in the table `hrag.leaves`; otherwise only the newest ones are there, the
    tail of the collection. `leaves` is the count of leaves of documents that are not deleted.
    `terms` is the count of occurrences of terms in these leaves. `sequence` is the sequence number
    of the tenant's last commit. `in_graph` is the count of leaves in the HNSW index, with deleted
    leaves that VACUUM may not have removed.
    """

    tenant_id: str
    collection_id: int
    record: CollectionRecord
    home: int | None
    leaves: int
    terms: int
    sequence: int
    in_graph: int = 0

    @property
    def settings(self) -> CollectionSettings:
        """The settings, which were fixed when the collection was created.

        Only a reindexing changes one of them: the version of the analyzer.
        """
        return self.record.settings

    @property
    def handle(self) -> CollectionHandle:
        """The handle: the tenant's id, and the collection's name, id and settings."""
        return CollectionHandle(self.tenant_id, self.record.name, self.collection_id, self.settings)

    @property
    def tenant_and_id(self) -> tuple[str, int]:
        """The tenant's id and the collection's id."""
        return self.tenant_id, self.collection_id

    @property
    def key(self) -> Key:
        """The parameters `tenant_id` and `collection_id` of statements on the collection's rows."""
        return {"tenant_id": self.tenant_id, "collection_id": self.collection_id}


def open_collection(connection: Connection, tenant_id: str, name: str) -> OpenedCollection:
    """Returns the collection with this name or alias, or raises CollectionNotFound."""
    collection = None
    if is_storable(tenant_id, name):
        collection = _read_collection(connection, _BY_NAME, tenant_id, name=name)
    if collection is None:
        raise no_collection(tenant_id, name)
    return collection


def open_by_id(
    connection: Connection, tenant_id: str, collection_id: int
) -> OpenedCollection | None:
    """Returns the tenant's collection with this id; None if the collection was deleted."""
    return _read_collection(connection, _BY_ID, tenant_id, collection_id=collection_id)


def open_summaries(connection: Connection, collection: OpenedCollection) -> OpenedCollection:
    """Returns the summary collection of a collection, or raises NoSummaries."""
    summaries_id = collection.record.summaries
    summaries = open_by_id(connection, collection.tenant_id, summaries_id) if summaries_id else None
    if summaries is None:
        raise no_summaries(collection.record.name)
    return summaries


def _read_collection(
    connection: Connection, statement: str, tenant_id: str, **name_or_id: str | int
) -> OpenedCollection | None:
    parameters = {"tenant_id": tenant_id, **name_or_id}
    row = connection.execute(statement, parameters, binary=True).fetchone()
    if row is None:
        return None
    collection_id, record, *totals = row
    return OpenedCollection(tenant_id, collection_id, collection_record(record), *totals)
