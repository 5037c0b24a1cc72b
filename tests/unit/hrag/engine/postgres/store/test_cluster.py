"""What concerns all tenants is asked of each node by itself."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import sql
from structlog.testing import capture_logs

from hrag.engine.postgres.store import cluster
from hrag.engine.postgres.store.cluster import is_distributed, rows_of_all_nodes, vacuum_shard
from hrag.engine.postgres.store.connection import Connection
from hrag.errors import StoreUnavailable

_QUERY = sql.SQL("SELECT tenant_id, sequence FROM {table} WHERE sequence > 1")


def answering(*answers: tuple[str, bool, str]) -> Connection:
    """Returns a connection to a coordinator whose nodes give these answers."""
    result = SimpleNamespace(fetchall=lambda: list(answers))
    return cast("Connection", SimpleNamespace(execute=lambda *_, **__: result))


@pytest.fixture
def on_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "is_distributed", lambda _: True)


@pytest.mark.postgres
def test_a_server_without_citus_is_asked_itself(database):
    with database.write() as connection:
        assert not is_distributed(connection)
        assert rows_of_all_nodes(connection, "tenants", sql.SQL("SELECT * FROM {table}")) == []
        connection.execute(
            "INSERT INTO hrag.tenants (tenant_id, sequence) VALUES ('a', 1), ('b', 2), ('ü', 3)"
        )
        query = sql.SQL(
            "SELECT tenant_id, sequence, '{{}}' AS text FROM {table} WHERE sequence > {after}"
        )
        rows = rows_of_all_nodes(connection, "tenants", query, after=1)
    assert sorted(rows, key=lambda row: row["sequence"]) == [
        {"tenant_id": "b", "sequence": 2, "text": "{}"},
        {"tenant_id": "ü", "sequence": 3, "text": "{}"},
    ]


@pytest.mark.usefixtures("on_cluster")
def test_a_node_without_an_answer_hides_its_own_rows_only():
    nodes = [
        ("n1:5432", True, '[{"n": 1}]'),
        ("n2:5432", False, "connection refused"),
        ("n3:5432", True, '[{"n": 3}, {"n": 4}]'),
    ]
    with capture_logs() as log:
        rows = rows_of_all_nodes(answering(*nodes), "tenants", _QUERY)
    assert rows == [{"n": 1}, {"n": 3}, {"n": 4}]
    expected: dict[str, Any] = {
        "event": "node_without_answer",
        "node": "n2:5432",
        "problem": "connection refused",
        "log_level": "warning",
    }
    assert log == [expected]


@pytest.mark.usefixtures("on_cluster")
def test_no_answer_of_any_node_is_an_error():
    with pytest.raises(StoreUnavailable), capture_logs():
        rows_of_all_nodes(answering(("n1:5432", False, "refused")), "tenants", _QUERY)


@pytest.mark.usefixtures("on_cluster")
@pytest.mark.parametrize("answers", [[], [("n1:5432", False, "refused")]])
def test_a_shard_that_was_not_vacuumed_is_an_error(answers):
    table = sql.Identifier("hrag_homes", "leaves_1")
    vacuum_shard(answering(("n1:5432", True, "VACUUM")), table, "t")
    with pytest.raises(StoreUnavailable), capture_logs():
        vacuum_shard(answering(*answers), table, "t")
