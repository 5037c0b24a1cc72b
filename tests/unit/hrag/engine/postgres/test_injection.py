"""Whatever a text says, it is a value: in ids, names, metadata, filters, texts and queries.

The engine alone gets what the services refuse. A store in memory, which has no statements, says
what must be found; at the end every table is as it was.
"""

import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hrag.engine.documents import PreparedDocument
from hrag.engine.postgres.store.schema import migrate
from hrag.errors import CollectionNotFound, DocumentNotFound, HragError, InvalidArgument
from hrag.filters import AllOf, Exists, Filter, Match, NoneOf, Range
from hrag.ids import ChunkId
from hrag.types import Retrieval, SearchMode
from tests.fakes import collection_settings, find, prepared, query_vector
from tests.postgres_server import PostgresServer
from tests.postgres_twins import Twins, assert_alike, twins_at

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
    "\u02bc' \uff07; DELETE FROM hrag.tenants; \uff0d\uff0d",  # Look like quotes and dashes.
    "\u202e'; --",
    "U&'\\0027'",
    "NULL",
    '{NULL,"\',"}',
    "\t\r\n\v",
    "🙂'" * 20,
    "",
)
_TENANTS = [each for each in NASTY if each]
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
    name = postgres.new_database()
    with twins_at(postgres.dsn(name)) as twins:
        before = twins.database
        with before.read() as connection:
            tables = connection.execute(_TABLES).fetchone()
        yield twins
        with before.read() as connection:
            assert connection.execute(_TABLES).fetchone() == tables
        migrate(twins.database)
    postgres.drop(name)


def document(name: str, text: str, seed: int) -> PreparedDocument:
    metadata = {text: text, "key": [text, {text: seed}], "n": seed % 3}
    return prepared(name, f"{text} Some text with {text}.", seed=seed, metadata=metadata)


def filters(text: str) -> Iterator[Filter]:
    for name in ("document_id", "title", "source", "metadata.key", f"metadata.{text}"):
        yield Match(name, (text, "other"))
    yield Exists(f"metadata.{text}")
    yield AllOf((Match("metadata.key", (text,)), NoneOf((Match("document_id", (text,)),))))
    yield NoneOf((Range(f"metadata.{text}", at_least=0.0),))


@pytest.mark.parametrize("number", range(len(_TENANTS)))
def test_every_field_is_a_value(twins, number):
    text = _TENANTS[number]
    name, alias = f"{text}c", f"alias {text}"
    twins.create(text, name)
    for seed, each in enumerate(NASTY[:8]):
        twins.put(document(f"{each}{seed}", each, seed), tenant_id=text, name=name)
    twins.put(document(text, text, 99), tenant_id=text, name=name)
    for each in (twins.writer, twins.memory):
        each.set_alias(text, alias, name)
    _compare_listings(twins, text, name, alias)
    _compare_filters(twins, text, alias)
    _compare_searches(twins, text, alias)
    twins.maintain(text, name)
    _compare_searches(twins, text, alias)
    twins.delete(text, text, name)
    for each in (twins.writer, twins.memory):
        list(each.delete_matching(each.open(text, name), Match("document_id", (f"{NASTY[0]}0",))))
        each.delete_alias(text, alias)
    twins.assert_same()
    twins.drop(text, name)
    twins.reclaim()


def _compare_listings(twins: Twins, tenant_id: str, name: str, alias: str) -> None:
    for token in (*NASTY, *_WITH_NUL, "", "zzz"):
        pages = [
            (
                each.documents(each.open(tenant_id, name), 3, token),
                each.collections(tenant_id, 2, token),
            )
            for each in (twins.writer, twins.memory)
        ]
        (some, own), (others, wanted) = pages
        assert [i.document_id for i in some.items] == [i.document_id for i in others.items]
        assert (some.next_page_token, own) == (others.next_page_token, wanted)
    assert twins.writer.aliases(tenant_id) == twins.memory.aliases(tenant_id)
    for each in NASTY:
        one, other = (
            _outcome(w.document, w.open(tenant_id, alias), each)
            for w in (twins.writer, twins.memory)
        )
        assert one == other


def _compare_filters(twins: Twins, tenant_id: str, name: str) -> None:
    for text in (*NASTY[:12], tenant_id):
        for each in filters(text):
            one, other = (
                w.documents(w.open(tenant_id, name), 100, "", filter=each).items
                for w in (twins.writer, twins.memory)
            )
            assert [i.document_id for i in one] == [i.document_id for i in other], each


def _compare_searches(twins: Twins, tenant_id: str, name: str) -> None:
    readers = (twins.reader, twins.memory.reader())
    for number, text in enumerate((*NASTY, *_WITH_NUL)):
        for retrieval in Retrieval:
            options = {"mode": SearchMode.STANDARD, "retrieval": retrieval, "text": text}
            options |= {"required": (text,) if text and number % 3 == 0 else ()}
            found = []
            for reader in readers:
                with reader.snapshot(tenant_id, name) as snapshot:
                    vector = None if retrieval is Retrieval.LEXICAL else query_vector(number)
                    found.append(find(snapshot, vector, 10, **options))
            assert_alike(*found)


def _outcome(call, *arguments):
    """What a call returns, but for what is counted anew, or the type of its error."""
    try:
        found = call(*arguments)
    except HragError as error:
        return type(error)
    return getattr(found, "document_id", found)


@pytest.mark.parametrize("text", NASTY)
def test_what_does_not_exist_is_not_found_whatever_it_is_called(twins, text):
    """By both in the same words of hrag.errors: never by an error of the database."""
    twins.create("known", "c")
    chunk = ChunkId(text, 0, 0)
    handles = {id(w): w.open("known", "c") for w in (twins.writer, twins.memory)}
    for first, second in zip(
        _lookups(twins.writer, twins.reader, handles, text, chunk),
        _lookups(twins.memory, twins.memory.reader(), handles, text, chunk),
        strict=True,
    ):
        assert first == second
    twins.drop("known", "c")


def _lookups(writer, reader, handles, text, chunk):
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
    for each in _lookups(twins.writer, twins.reader, handles, text, ChunkId(text, 0, 0)):
        assert issubclass(each, InvalidArgument | CollectionNotFound | DocumentNotFound)
    made = prepared(text, "text")
    for call, *arguments in (
        (twins.writer.create_collection, text, "c", collection_settings()),
        (twins.writer.create_collection, "known", text, collection_settings()),
        (twins.writer.set_alias, "known", text, "c"),
        (twins.writer.put, handle, made),
    ):
        with pytest.raises(HragError):
            call(*arguments)
    twins.assert_same()
    twins.drop("known", "c")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(texts, min_size=1, max_size=4, unique=True), texts, st.integers(0, 99))
def test_random_texts_are_values(twins, names, text, seed):
    draw = random.Random(seed)
    twins.create("fuzzed", "c")
    try:
        for number, name in enumerate(names):
            twins.put(document(name, text, seed + number), tenant_id="fuzzed")
        if draw.random() < 0.3:
            twins.maintain("fuzzed")
        _compare_filters(twins, "fuzzed", "c")
        twins.assert_found("fuzzed", "c", seed, 4)
        one, other = (
            _outcome(w.document, w.open("fuzzed", "c"), text) for w in (twins.writer, twins.memory)
        )
        assert one == other
    finally:
        twins.drop("fuzzed")
