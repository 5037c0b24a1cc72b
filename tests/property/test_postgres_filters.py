"""Filters as SQL against a plain loop over all documents."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.store import filter_sql as of_postgres
from hrag.engine.postgres.store.database import Database
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import Cancelled
from hrag.filters import (
    MAX_FILTER_DEPTH,
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
def writer(postgres: PostgresServer) -> Iterator[PostgresWriter]:
    name = postgres.new_database()
    database = Database(postgres.dsn(name), 2, "tests", is_writer=True)
    yield PostgresWriter(database)
    database.close()
    postgres.drop(name)


_names = map("c{}".format, count())


def _filled(writer: PostgresWriter, model: ModelCollection) -> CollectionHandle:
    name = next(_names)
    writer.create_collection("t", name, model.settings)
    handle = writer.open("t", name)
    writer.put_many([(handle, each) for each in model.documents.values()])
    return handle


def _listed(writer: PostgresWriter, handle: CollectionHandle, given: Filter) -> set[str]:
    infos = writer.documents(handle, 1000, "", filter=given).items
    return {info.document_id for info in infos}


def _selected(writer: PostgresWriter, handle: CollectionHandle, given: Filter) -> list[int]:
    with writer._database.read() as connection:
        found = of_postgres.selected(connection, "t", handle.collection_id, given)
    return found.tolist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metadata_of_all, st.lists(filter_model.FILTERS, min_size=1, max_size=5))
@pytest.mark.parametrize("most_selects", [1, 3, 64])
def test_a_filter_selects_what_a_plain_loop_selects(
    writer, monkeypatch, most_selects, metadata_of_all, filters
):
    """Also if it takes many statements."""
    monkeypatch.setattr(of_postgres, "_MAX_SELECTS", most_selects)
    model = ModelCollection()
    for number, metadata in enumerate(metadata_of_all):
        model.put(prepared(f"d{number}", "text", seed=number, metadata=metadata))
    handle = _filled(writer, model)
    for each in filters:
        wanted = set(model.filtered(each).documents)
        assert _listed(writer, handle, each) == wanted
        assert writer.count(handle, each).documents == len(wanted)
        ordinals = _selected(writer, handle, each)
        assert ordinals == sorted(set(ordinals))
        assert len(ordinals) == len(wanted)


def _numbers(count: int) -> Iterator[Filter]:
    for number in range(count):
        yield Match("metadata.number", (number,))


def _nested(depth: int, width: int, number: int = 1) -> Filter:
    if depth == 1:
        return Match("metadata.number", (number % 100,))
    inner = tuple(_nested(depth - 1, width, width * number + each) for each in range(width))
    return (AllOf, AnyOf, NoneOf)[depth % 3](inner)


HALF = MAX_FILTER_TERMS // 2
LARGE = {
    "values": Match("metadata.number", tuple(range(MAX_FILTER_TERMS - 1))),
    "ids": Match("document_id", tuple(f"d{n}" for n in range(MAX_FILTER_TERMS - 1))),
    "any of": AnyOf(tuple(_numbers(HALF))),
    "all of": AllOf(tuple(_numbers(HALF))),
    "none of": NoneOf(tuple(_numbers(HALF))),
    "ranges": AnyOf(
        tuple(Range("metadata.number", above=n, below=n + 1.5) for n in range(MAX_FILTER_TERMS))
    ),
    "the same range": AnyOf((Exists("metadata.number"),) * MAX_FILTER_TERMS),
    "pairs": AnyOf(
        tuple(AllOf((each, Exists("metadata.even"))) for each in _numbers(MAX_FILTER_TERMS // 3))
    ),
    "refused pairs": AllOf(
        tuple(NoneOf((AllOf((each, Exists("title"))),)) for each in _numbers(MAX_FILTER_TERMS // 3))
    ),
    "deep": _nested(MAX_FILTER_DEPTH, 1),
    "deep and wide": _nested(12, 2),
}


@pytest.fixture(scope="module")
def hundred(writer: PostgresWriter) -> tuple[CollectionHandle, ModelCollection]:
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


def test_texts_that_no_id_has_select_nothing(writer, hundred):
    handle, _ = hundred
    assert _listed(writer, handle, Match("document_id", ("d1\0", "", "x" * 5000, "d2"))) == {"d2"}


def test_nobody_evaluates_the_rest_of_a_large_filter_for_a_caller_who_has_left(writer, hundred):
    handle, _ = hundred
    checks = iter([True] * 5)
    deadline = Deadline.after(60, is_waiting=lambda: next(checks, False))
    with writer._database.read() as connection, pytest.raises(Cancelled, match="filtering"):
        of_postgres.selected(connection, "t", handle.collection_id, LARGE["pairs"], deadline)
