"""Arrays are sent to PostgreSQL and read from it without a change of their values."""

import numpy as np
import pytest

from hrag.engine.postgres.store import arrays
from hrag.engine.postgres.store.database import PostgresDatabase
from tests.support.documents.fakes import unit_vectors

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    ("parameter", "kind", "values"),
    [
        (arrays.bigints, "bigint[]", [1, -1, 2**62, 0]),
        (arrays.integers, "integer[]", [7, -(2**31)]),
        (arrays.booleans, "boolean[]", [True, False, True]),
        (arrays.binaries, "bytea[]", [b"", b"\0\xff", b"x" * 3000]),
        (arrays.texts, "text[]", ["", "ü", "a,b{}\"'"]),
    ],
)
def test_the_server_receives_an_array_unchanged(
    database: PostgresDatabase, parameter, kind, values
):
    with database.read() as connection:
        for array in (values, values[:1], []):
            query = "SELECT %s, pg_typeof(%s)::text"
            row = connection.execute(query, (parameter(array), parameter(array))).fetchone()
            assert row == (array, kind)


def test_the_server_receives_vectors_rounded_to_half_precision(database: PostgresDatabase):
    vectors = unit_vectors(3, 1, 5)
    with database.read() as connection:
        (oid,) = connection.execute("SELECT 'halfvec'::regtype::oid").fetchone()
        query = "SELECT v::real[] FROM unnest(%s::halfvec[]) AS v"
        rows = connection.execute(query, (arrays.halfvecs(vectors, oid),)).fetchall()
        no_rows = connection.execute(query, (arrays.halfvecs(vectors[:0], oid),)).fetchall()
    assert no_rows == []
    rounded = vectors.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(np.array([vector for (vector,) in rows], np.float32), rounded)


def test_integers_are_read_as_they_were_sent(database: PostgresDatabase):
    with database.read() as connection:
        for values in ([], [3], [1, -5, 2**60]):
            cursor = connection.execute("SELECT %s", (arrays.bigints(values),))
            assert arrays.bigints_in(cursor.pgresult.get_value(0, 0)).tolist() == values
    assert arrays.bigints_in(None).tolist() == []
