"""The plans of the statements that PostgreSQL runs, as its auto_explain tells them."""

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
    """The plans of all statements that are run inside the block, on the pool's last connection.

    `database` is that of the engine, `mode` a value of `plan_cache_mode`.
    """
    found: list[Any] = []

    def notice(diagnostic: Diagnostic) -> None:
        text = diagnostic.message_primary or ""
        if "plan:" in text:
            found.append(json.loads(text.partition("plan:")[2]))

    with database.autocommit() as connection:
        connection.add_notice_handler(notice)
        connection.run_script(_EXPLAIN.encode())
        connection.run_script(f"SET plan_cache_mode = '{mode}'".encode())
    try:
        yield found
    finally:
        with database.autocommit() as connection:
            connection.remove_notice_handler(notice)
            connection.run_script(b"SET auto_explain.log_min_duration = -1; RESET plan_cache_mode")


def nodes(plan: Any) -> Iterator[Any]:
    """All nodes of a plan, each before those below it."""
    if "Node Type" in plan:
        yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)
