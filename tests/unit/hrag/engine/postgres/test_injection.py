"""Every text reaches PostgreSQL as a value and is never a part of an SQL statement.

This holds for ids, names, metadata, filters, texts and queries, also for texts that the services
refuse before they reach an engine. The expected results come from the memory engine, which runs no
SQL. At the end, all tables still exist and have as many columns as before.
"""

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hrag.engine.engine_documents import PreparedDocument
from hrag.engine.postgres.store.schema import migrate
from hrag.errors import CollectionNotFound, DocumentNotFound, HragError, InvalidArgument
from hrag.filters import AllOf, Exists, Filter, Match, NoneOf, Range
from hrag.types import DocumentInfo, Listing, Retrieval, SearchMode
from hrag.values.ids import ChunkId
from tests.support.documents.fakes import collection_settings, find, prepared, query_vector
from tests.support.engines.postgres_twins import Twins, assert_alike, twins_at
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

NASTY = (
    "'",
    "''; DROP SCHEMA hrag CASCADE; --",
    '"; DROP TABLE hrag.documents; --',
    "\\'; SELECT pg_sleep(60); --",
    "\\",
    "%",
    "%s",
    "%(tenant_id)s",
    "%%s %b %t",
    "{}",
    "{table} {0} {condition}",
    "$1",
    "$$; DROP TABLE hrag.leaves; $$",
    "/* ",
    " */ --",
    "-- \n; COMMIT; DROP TABLE hrag.names",
    "a' OR '1'='1",
    "E'\\x27'",
    "\u02bc' \uff07; DELETE FROM hrag.tenants; \uff0d\uff0d",  # They look like quotes and dashes.
    "\u202e'; --",
    "U&'\\0027'",
    "NULL",
    '{NULL,"\',"}',
    "\t\r\n\v",
    "🙂'" * 20,
    "",
)
_TENANTS = [text for text in NASTY if text]
_VALUES = 6
_WITH_NUL = ("\0", "a\0b", "'\0; DROP SCHEMA hrag; --")
_TABLES = """
SELECT string_agg(relname || ' ' || relnatts, ', ' ORDER BY relname) FROM pg_class
WHERE relnamespace = 'hrag'::regnamespace
"""

texts = st.sampled_from(NASTY) | st.text(
    st.sampled_from([*"'\"\\%;-(){}$s*/\n", *"ab", "é", "🙂", "\u0130", "\ufeff"]), max_size=12
)


@pytest.fixture(scope="module")
def twins(postgres: PostgresServer) -> Iterator[Twins]:
    """A store on PostgreSQL and the same store in memory.

    Fails after the tests if a table of PostgreSQL was changed.
    """
    name = postgres.new_database()
    with twins_at(postgres.dsn(name)) as twins:
        with twins.database.read() as connection:
            tables = connection.execute(_TABLES).fetchone()
        yield twins
        with twins.database.read() as connection:
            assert connection.execute(_TABLES).fetchone() == tables
        migrate(twins.database)
    postgres.drop(name)


def document(name: str, text: str, seed: int) -> PreparedDocument:
    """Returns a document with the text in its content, in its metadata and in their keys."""
    metadata = {text: text, "key": [text, {text: seed}], "n": seed % 3}
    return prepared(name, f"{text} Some text with {text}.", seed=seed, metadata=metadata)


def filters(text: str) -> Iterator[Filter]:
    """Yields filters with the text as a value and as the key of a metadata field."""
    for name in ("document_id", "title", "source", "metadata.key", f"metadata.{text}"):
        yield Match(name, (text, "other"))
    yield Exists(f"metadata.{text}")
    yield AllOf((Match("metadata.key", (text,)), NoneOf((Match("document_id", (text,)),))))
    yield NoneOf((Range(f"metadata.{text}", at_least=0.0),))


@pytest.mark.parametrize("number", range(len(_TENANTS)))
def test_a_text_in_any_field_is_passed_as_a_value(twins, number):
    text = _TENANTS[number]
    # Each text is a value of the calls for some of the tenants, because all pairs take minutes.
    values = [*(NASTY * 2)[number : number + _VALUES], text, _WITH_NUL[number % len(_WITH_NUL)]]
    name, alias = f"{text}c", f"alias {text}"
    twins.create(text, name)
    for seed, content in enumerate(NASTY[:8]):
        twins.put(document(f"{content}{seed}", content, seed), tenant_id=text, name=name)
    twins.put(document(text, text, 99), tenant_id=text, name=name)
    for writer in (twins.writer, twins.memory):
        writer.set_alias(text, alias, name)
    _compare_listings(twins, text, name, alias)
    _compare_filters(twins, text, alias, values[:-1])
    _compare_searches(twins, text, alias, values)
    twins.maintain(text, name)
    _compare_searches(twins, text, alias, values)
    twins.delete(text, text, name)
    first = Match("document_id", (f"{NASTY[0]}0",))
    for writer in (twins.writer, twins.memory):
        list(writer.delete_matching(writer.open(text, name), first))
        writer.delete_alias(text, alias)
    twins.assert_same()
    twins.drop(text, name)
    twins.reclaim()


def _compare_listings(twins: Twins, tenant_id: str, name: str, alias: str) -> None:
    for token in (*NASTY, *_WITH_NUL, "", "zzz"):
        pages = [
            (
                writer.documents(writer.open(tenant_id, name), 3, token),
                writer.collections(tenant_id, 2, token),
            )
            for writer in (twins.writer, twins.memory)
        ]
        (documents, collections), (expected_documents, expected_collections) = pages
        assert _ids(documents) == _ids(expected_documents)
        assert documents.next_page_token == expected_documents.next_page_token
        assert collections == expected_collections
    assert twins.writer.aliases(tenant_id) == twins.memory.aliases(tenant_id)
    for document_id in NASTY:
        outcome, expected = (
            _outcome(writer.document, writer.open(tenant_id, alias), document_id)
            for writer in (twins.writer, twins.memory)
        )
        assert outcome == expected


def _ids(page: Listing[DocumentInfo]) -> list[str]:
    return [info.document_id for info in page.items]


def _compare_filters(twins: Twins, tenant_id: str, name: str, values: Sequence[str]) -> None:
    for text in values:
        for filter in filters(text):
            page, expected = (
                writer.documents(writer.open(tenant_id, name), 100, "", filter=filter)
                for writer in (twins.writer, twins.memory)
            )
            assert _ids(page) == _ids(expected), filter


def _compare_searches(twins: Twins, tenant_id: str, name: str, values: Sequence[str]) -> None:
    readers = (twins.reader, twins.memory.reader())
    for number, text in enumerate(values):
        for retrieval in Retrieval:
            options = {"mode": SearchMode.STANDARD, "retrieval": retrieval, "text": text}
            options |= {"required": (text,) if text and number % 2 == 0 else ()}
            results = []
            for reader in readers:
                with reader.snapshot(tenant_id, name) as snapshot:
                    vector = None if retrieval is Retrieval.LEXICAL else query_vector(number)
                    results.append(find(snapshot, vector, 10, **options))
            assert_alike(*results)


def _outcome(call, *arguments):
    """Returns the result of a call, or the type of its error.

    For a document, the result is its id, because its sequence number may differ between engines.
    """
    try:
        result = call(*arguments)
    except HragError as error:
        return type(error)
    return getattr(result, "document_id", result)


@pytest.mark.parametrize("text", NASTY)
def test_a_name_that_does_not_exist_is_not_found(twins, text):
    """Both engines raise the same error of hrag.errors. None raises an error of PostgreSQL."""
    twins.create("known", "c")
    chunk = ChunkId(text, 0, 0)
    handles = {id(writer): writer.open("known", "c") for writer in (twins.writer, twins.memory)}
    for outcome, expected in zip(
        _lookups(twins.writer, twins.reader, handles, text, chunk),
        _lookups(twins.memory, twins.memory.reader(), handles, text, chunk),
        strict=True,
    ):
        assert outcome == expected
    twins.drop("known", "c")


def _lookups(writer, reader, handles, text, chunk):
    """Yields the outcome of every call that has the text as an id or a name."""
    handle = handles[id(writer)]

    def chunk_of() -> object:
        with reader.snapshot("known", "c") as snapshot:
            return snapshot.chunk(chunk)

    def search(tenant_id: str, name: str) -> object:
        with reader.snapshot(tenant_id, name) as snapshot:
            return snapshot.name

    yield _outcome(writer.open, text, "c")
    yield _outcome(writer.open, "known", text)
    yield _outcome(search, text, "c")
    yield _outcome(search, "known", text)
    yield _outcome(writer.document, handle, text)
    yield _outcome(writer.document_with_text, handle, text)
    yield _outcome(writer.delete, handle, text)
    yield _outcome(writer.put_metadata, handle, text, 1, {}, "")
    yield _outcome(writer.delete_collection, "known", text)
    yield _outcome(writer.delete_collection, text, "c")
    yield _outcome(writer.delete_alias, "known", text)
    yield _outcome(writer.set_alias, "known", "x", text)
    yield _outcome(reader.export, text, "c")
    yield _outcome(reader.sequence, text)
    yield _outcome(reader.aliases, text)
    yield _outcome(writer.collection, text, "c")
    yield _outcome(writer.collections, text, 10, "")
    yield _outcome(chunk_of)


@pytest.mark.parametrize("text", _WITH_NUL)
def test_names_and_ids_that_the_database_cannot_store_are_refused(twins, text):
    twins.create("known", "c")
    handle = twins.writer.open("known", "c")
    handles = {id(twins.writer): handle}
    for outcome in _lookups(twins.writer, twins.reader, handles, text, ChunkId(text, 0, 0)):
        assert issubclass(outcome, InvalidArgument | CollectionNotFound | DocumentNotFound)
    document = prepared(text, "text")
    for call, *arguments in (
        (twins.writer.create_collection, text, "c", collection_settings()),
        (twins.writer.create_collection, "known", text, collection_settings()),
        (twins.writer.set_alias, "known", text, "c"),
        (twins.writer.put, handle, document),
    ):
        with pytest.raises(HragError):
            call(*arguments)
    twins.assert_same()
    twins.drop("known", "c")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(texts, min_size=1, max_size=4, unique=True), texts, st.integers(0, 99))
def test_random_texts_are_passed_as_values(twins, names, text, seed):
    draw = random.Random(seed)
    twins.create("fuzzed", "c")
    try:
        for number, name in enumerate(names):
            twins.put(document(name, text, seed + number), tenant_id="fuzzed")
        if draw.random() < 0.3:
            twins.maintain("fuzzed")
        _compare_filters(twins, "fuzzed", "c", (*names, text))
        twins.assert_same_results("fuzzed", "c", seed, 4)
        outcome, expected = (
            _outcome(writer.document, writer.open("fuzzed", "c"), text)
            for writer in (twins.writer, twins.memory)
        )
        assert outcome == expected
    finally:
        twins.drop("fuzzed")
