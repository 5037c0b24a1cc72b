"""Streams collections and whole documents as they are stored, for a move to another store.

Each document is read in one short transaction, because a long transaction would delay VACUUM. So
each document is consistent in itself, but the collection may change during the export. Exported
vectors have the 16-bit precision of `halfvec`.
"""

from collections.abc import Iterator

from hrag.engine.common.records import CollectionRecord
from hrag.engine.engine_documents import DamagedDocument, ExportedDocument
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.opened_collection import open_collection
from hrag.engine.postgres.store.stored_documents import COLUMNS, read_stored
from hrag.values.collections import Collection
from hrag.values.errors import CollectionNotFound, DataLoss

_COLLECTIONS = """
SELECT record::text, documents FROM hrag.collections
WHERE (record ->> 'summarises')::bigint = 0 ORDER BY tenant_id, record ->> 'name' COLLATE "C"
"""
_NEXT = f"""
SELECT {COLUMNS} FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND document_id > %(after)s
ORDER BY document_id LIMIT 1
"""


def collections(database: PostgresDatabase) -> list[Collection]:
    """Returns the collections of all tenants, in order of tenant and name."""
    with database.read() as connection:
        rows = connection.execute(_COLLECTIONS).fetchall()
    records = ((CollectionRecord.from_bytes(record.encode()), count) for record, count in rows)
    return [
        Collection(record.tenant_id, record.name, record.settings, count)
        for record, count in records
    ]


def documents(database: PostgresDatabase, tenant_id: str, name: str) -> Iterator[ExportedDocument]:
    """Yields all documents of a collection in order of id; stops if the collection is deleted.

    A document that cannot be read is yielded as DamagedDocument. Raises CollectionNotFound before
    the first document if the collection does not exist.
    """
    with database.read() as connection:
        number = open_collection(connection, tenant_id, name).collection_id
    return _stream(database, tenant_id, name, number)


def _stream(
    database: PostgresDatabase, tenant_id: str, name: str, number: int
) -> Iterator[ExportedDocument]:
    after = ""
    while True:
        with database.read() as connection:
            try:
                collection = open_collection(connection, tenant_id, name)
            except CollectionNotFound:
                return
            if collection.collection_id != number:
                return
            row = connection.execute(
                _NEXT, {**collection.key, "after": after}, binary=True
            ).fetchone()
            if row is None:
                return
            after = row[0]
            try:
                exported: ExportedDocument = read_stored(connection, collection, row)
            except (DataLoss, ValueError) as error:
                exported = DamagedDocument(after, str(error))
        yield exported
