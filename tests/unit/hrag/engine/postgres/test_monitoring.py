"""Operators of the engine on PostgreSQL get all metrics, and every alert uses these metrics."""

import re
from typing import Any

import psycopg
import pytest
import yaml

from hrag.engine.engine_documents import CollectionHandle
from tests.support.manuals import ROOT
from tests.support.servers.postgres_server import PostgresServer

OPERATIONS = ROOT / "docs" / "operations"
QUERIES: dict[str, Any] = yaml.safe_load((OPERATIONS / "postgres-queries.yml").read_text("utf-8"))
RULES: list[dict[str, Any]] = yaml.safe_load(
    (OPERATIONS / "postgres-alerts.yml").read_text("utf-8")
)["groups"][0]["rules"]


def _columns(query: dict[str, Any]) -> list[str]:
    """Returns the names of the columns that a query of the metrics must return."""
    return [name for metric in query["metrics"] for name in metric]


def test_alerts_use_only_metrics_of_the_queries() -> None:
    metrics = {f"{name}_{column}" for name in QUERIES for column in _columns(QUERIES[name])}
    for rule in RULES:
        used = set(re.findall(r"hrag_postgres_\w+", rule["expr"]))
        assert used, rule["alert"]
        assert used <= metrics
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_every_alert_is_explained_in_the_runbook() -> None:
    page = (OPERATIONS / "postgres.md").read_text("utf-8")
    assert [rule["alert"] for rule in RULES if rule["alert"] not in page] == []


@pytest.mark.postgres
def test_a_monitor_without_rights_on_tables_gets_every_metric(
    postgres: PostgresServer, postgres_dsn: str, in_home: CollectionHandle
) -> None:
    postgres.run("CREATE ROLE monitor LOGIN IN ROLE pg_monitor")
    try:
        with psycopg.connect(postgres_dsn, user="monitor") as connection:
            for name, query in QUERIES.items():
                cursor = connection.execute(query["query"])
                assert [column.name for column in cursor.description or ()] == _columns(query)
                if name == "hrag_postgres_homes":
                    assert cursor.fetchone()[0] == 1
    finally:
        postgres.run("DROP ROLE monitor")
