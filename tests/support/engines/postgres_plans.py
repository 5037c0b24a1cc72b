"""Collects the query plans that PostgreSQL's module auto_explain logs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.errors import Diagnostic

_EXPLAIN = """
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0; SET auto_explain.log_format = 'json';
SET auto_explain.log_level = 'notice'; SET auto_explain.log_nested_statements = on
"""


@contextmanager
def plans(database: Any, mode: str) -> Iterator[list[Any]]:
    """Yields a list; the plan of each statement that is run inside the block is appended to it.

    Only statements on the connection that the pool returned last are covered. `database` is the
    engine's database, and `mode` a value of the setting `plan_cache_mode`.
    """
    plans_run: list[Any] = []

    def notice(diagnostic: Diagnostic) -> None:
        text = diagnostic.message_primary or ""
        if "plan:" in text:
            plans_run.append(json.loads(text.partition("plan:")[2]))

    with database.autocommit() as connection:
        connection.add_notice_handler(notice)
        connection.run_script(_EXPLAIN.encode())
        connection.run_script(f"SET plan_cache_mode = '{mode}'".encode())
    try:
        yield plans_run
    finally:
        with database.autocommit() as connection:
            connection.remove_notice_handler(notice)
            connection.run_script(b"SET auto_explain.log_min_duration = -1; RESET plan_cache_mode")


def nodes(plan: Any) -> Iterator[Any]:
    """Yields all nodes of a plan, parents before children."""
    if "Node Type" in plan:
        yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)
