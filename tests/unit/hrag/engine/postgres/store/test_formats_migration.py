"""After a migration, filters find documents by formats that were stored before it."""

from dataclasses import replace

import pytest

from hrag.engine.engine_documents import CollectionHandle, PreparedDocument
from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import check_version, migrate
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.engine.reports import MigrationReport
from hrag.errors import StoreUnavailable
from hrag.filters import Filter, Match, NoneOf
from tests.support.documents.fakes import collection_settings, prepared, sentences

pytestmark = pytest.mark.postgres

# Texts that could be mistaken for the field `mime_type` of a record.
_MISLEADING = '","mime_type":"text/x-go","'


def described(name: str, mime_type: str, original: bytes | None = None) -> PreparedDocument:
    """Returns a document whose title, source and metadata seem to contain another MIME type."""
    metadata = {"mime_type": "text/x-rust", _MISLEADING: [_MISLEADING, "\0"]}
    document = prepared(name, sentences(2), metadata=metadata)
    return replace(
        document,
        title=_MISLEADING,
        source=f"{_MISLEADING}\\",
        mime_type=mime_type,
        original=original,
    )


def found(writer: PostgresWriter, collection: CollectionHandle, filter: Filter) -> list[str]:
    page = writer.documents(collection, 10, "", filter=filter)
    return [info.document_id for info in page.items]


def test_documents_of_an_older_schema_version_are_found_by_their_format(
    database: PostgresDatabase,
) -> None:
    writer = PostgresWriter(database)
    writer.create_collection("t", "c", replace(collection_settings(), keep_originals=True))
    collection = writer.open("t", "c")
    writer.put(collection, described("mime_type", "application/pdf", b"%PDF-1.7"))
    writer.put(collection, described("a", "text/html"))
    writer.put(collection, described("b", "text/plain"))
    writer.put_metadata(collection, "b", 4, {"format": "pdf"}, "another source")
    with database.write() as connection:
        connection.execute("DELETE FROM hrag.terms WHERE position('mime_type' IN term) = 2")
        connection.execute("DELETE FROM hrag.migrations WHERE version >= 6")
    with database.read() as connection, pytest.raises(StoreUnavailable, match="version 5, this"):
        check_version(connection)

    assert migrate(database) == MigrationReport(5, 6)

    assert found(writer, collection, Match("format", ("pdf",))) == ["mime_type"]
    assert found(writer, collection, Match("mime_type", ("text/html", "text/x-go"))) == ["a"]
    assert found(writer, collection, Match("format", ("go", "rs"))) == []
    assert found(writer, collection, NoneOf((Match("format", ("html",)),))) == ["b", "mime_type"]
    assert not check(database).problems
    # Deleting a document deletes its terms.
    for name in ("a", "b", "mime_type"):
        writer.delete(collection, name)
    with database.read() as connection:
        assert connection.execute("SELECT count(*) FROM hrag.terms").fetchone() == (0,)
