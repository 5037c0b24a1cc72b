"""Filters in SQL select the same documents as a plain loop over all documents."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.filter_sql import filter_query, matching_ordinals
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import Cancelled
from hrag.filters import (
    MAX_FILTER_CONDITIONS,
    MAX_FILTER_DEPTH,
    MAX_FILTER_RANGES,
    MAX_FILTER_TERMS,
    AllOf,
    AnyOf,
    Exists,
    Filter,
    Match,
    NoneOf,
    Range,
    check_filter,
)
from hrag.values.deadline import Deadline
from tests.support.documents.fakes import ModelCollection, prepared
from tests.support.engines import filter_model
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

metadata_of_all = st.lists(filter_model.METADATA, min_size=1, max_size=12)


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Iterator[PostgresDatabase]:
    name = postgres.new_database()
    database = PostgresDatabase(postgres.dsn(name), 2, "tests", is_writer=True)
    yield database
    database.close()
    postgres.drop(name)


@pytest.fixture(scope="module")
def writer(database: PostgresDatabase) -> PostgresWriter:
    return PostgresWriter(database)


_names = map("c{}".format, count())


def _filled(writer: PostgresWriter, model: ModelCollection) -> CollectionHandle:
    """Creates a collection with the documents of the model; returns its handle."""
    name = next(_names)
    writer.create_collection("t", name, model.settings)
    handle = writer.open("t", name)
    writer.put_many([(handle, document) for document in model.documents.values()])
    return handle


def _listed(writer: PostgresWriter, handle: CollectionHandle, filter: Filter) -> set[str]:
    """Returns the ids of the documents that the writer lists for a filter."""
    infos = writer.documents(handle, 1000, "", filter=filter).items
    return {info.document_id for info in infos}


def _ordinals_of(
    database: PostgresDatabase, handle: CollectionHandle, filter: Filter, max_selects: int
) -> tuple[list[int], set[int]]:
    """Returns the ordinals that `matching_ordinals` returns, and those that `filter_query` selects.

    `max_selects` is the largest count of SELECTs in one statement.
    """
    key = "t", handle.collection_id
    with database.read() as connection:
        ordinals = matching_ordinals(connection, *key, filter, max_selects=max_selects)
        query = filter_query(connection, *key, filter, max_selects=max_selects)
        rows = connection.execute(query.statement, query.parameters).fetchall()
    return ordinals.tolist(), {ordinal for (ordinal,) in rows}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metadata_of_all, st.lists(filter_model.FILTERS, min_size=1, max_size=5))
@pytest.mark.parametrize("max_selects", [1, 3, 64])
def test_a_filter_selects_the_same_documents_as_a_plain_loop(
    database, writer, max_selects, metadata_of_all, filters
):
    """With a small `max_selects`, a filter needs several statements."""
    model = ModelCollection()
    for number, metadata in enumerate(metadata_of_all):
        model.put(prepared(f"d{number}", "text", seed=number, metadata=metadata))
    handle = _filled(writer, model)
    for filter in filters:
        expected = set(model.filtered(filter).documents)
        assert _listed(writer, handle, filter) == expected
        assert writer.count(handle, filter).documents == len(expected)
        ordinals, queried = _ordinals_of(database, handle, filter, max_selects)
        assert ordinals == sorted(queried)
        assert len(ordinals) == len(expected)


def _numbers(count: int) -> Iterator[Filter]:
    for number in range(count):
        yield Match("metadata.number", (number,))


_EVEN = Match("metadata.even", (True,))


def _nested(depth: int, width: int, number: int = 1) -> Filter:
    if depth == 1:
        return Match("metadata.number", (number % 100,))
    inner = tuple(_nested(depth - 1, width, width * number + child) for child in range(width))
    return (AllOf, AnyOf, NoneOf)[depth % 3](inner)


LARGE = {
    "values": Match("metadata.number", tuple(range(MAX_FILTER_TERMS - 1))),
    "ids": Match("document_id", tuple(f"d{n}" for n in range(MAX_FILTER_TERMS - 1))),
    "any of": AnyOf(tuple(_numbers(MAX_FILTER_CONDITIONS))),
    "all of": AllOf(tuple(_numbers(MAX_FILTER_CONDITIONS))),
    "none of": NoneOf(tuple(_numbers(MAX_FILTER_CONDITIONS))),
    "ranges": AnyOf(
        tuple(Range("metadata.number", above=n, below=n + 1.5) for n in range(MAX_FILTER_RANGES))
    ),
    "wide ranges": AllOf(
        tuple(Range("metadata.number", above=n) for n in range(MAX_FILTER_RANGES))
    ),
    "the same range": AnyOf((Exists("metadata.number"),) * MAX_FILTER_RANGES),
    "pairs": AnyOf(tuple(AllOf((part, _EVEN)) for part in _numbers(MAX_FILTER_CONDITIONS // 2))),
    "refused pairs": AllOf(
        tuple(NoneOf((AllOf((part, _EVEN)),)) for part in _numbers(MAX_FILTER_CONDITIONS // 2))
    ),
    "deep": _nested(MAX_FILTER_DEPTH, 1),
    "deep and wide": _nested(9, 2),
}


@pytest.fixture(scope="module")
def hundred(writer: PostgresWriter) -> tuple[CollectionHandle, ModelCollection]:
    """The handle of a collection with a hundred documents, and the model of it."""
    model = ModelCollection()
    for number in range(100):
        metadata = {"number": number, "even": number % 2 == 0 or None}
        model.put(prepared(f"d{number}", "text", seed=number, metadata=metadata))
    return _filled(writer, model), model


@pytest.mark.parametrize("kind", LARGE)
def test_the_largest_filters_are_evaluated(writer, hundred, kind):
    handle, model = hundred
    check_filter(LARGE[kind])
    assert _listed(writer, handle, LARGE[kind]) == set(model.filtered(LARGE[kind]).documents)


def test_a_filter_may_name_texts_that_cannot_be_document_ids(writer, hundred):
    handle, _ = hundred
    assert _listed(writer, handle, Match("document_id", ("d1\0", "", "x" * 5000, "d2"))) == {"d2"}


def test_the_evaluation_of_a_large_filter_ends_when_its_caller_leaves(database, hundred):
    handle, _ = hundred
    checks = iter([True] * 2)
    deadline = Deadline.after(60, is_waiting=lambda: next(checks, False))
    with database.read() as connection, pytest.raises(Cancelled, match="filtering"):
        matching_ordinals(connection, "t", handle.collection_id, LARGE["pairs"], deadline)
