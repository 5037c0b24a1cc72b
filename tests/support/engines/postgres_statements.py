"""Observes the statements that the engine sends to PostgreSQL.

`tenants_named` asserts that each statement names the tenant whose rows it is about. Tables are
distributed by tenant, and nothing crosses a tenant: a statement on a table of the schema hrag
compares `tenant_id` with a parameter or inserts it. Only statements about the store as a whole do
not: they read the list of collections or look for work to do.

`before_statement` lets a test act at an exact moment of a transaction.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg import sql

from hrag.engine.postgres.store.connection import Cursor

_TABLE = re.compile(r'\b(?:FROM|JOIN|INTO|UPDATE)\s+"?hrag"?\."?(\w+)')
_BOUND = re.compile(r"tenant_id = %|\(tenant_id\b")
STORE_WIDE = frozenset({"collections", "deleted_collections", "migrations", "unused_homes"})


def text_of(statement: Any, connection: Any) -> str:
    """Returns the SQL of a statement as the engine passes it to psycopg."""
    if isinstance(statement, sql.Composable):
        statement = statement.as_string(connection)
    return statement.decode() if isinstance(statement, bytes) else statement


def unbound_tables(statement: Any, connection: Any) -> set[str]:
    """Returns the tables that a statement reads or writes without naming a tenant."""
    text = text_of(statement, connection)
    return set() if _BOUND.search(text) else set(_TABLE.findall(text))


@contextmanager
def tenants_named() -> Iterator[None]:
    """Fails, inside the block, every statement that does not name its tenant."""
    execute = Cursor.execute

    def checked(cursor: Cursor, query: Any, *args: Any, **kwargs: Any) -> Any:
        assert unbound_tables(query, cursor.connection) <= STORE_WIDE, query
        return execute(cursor, query, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "execute", checked)
        yield


def before_statement(
    monkeypatch: pytest.MonkeyPatch, beginning: str, act: Callable[[], object]
) -> None:
    """Calls `act` before the first statement that begins with `beginning` is sent, in its thread.

    White space before the statement is ignored. The transaction of the statement is open, and has
    read what it reads before the statement.
    """
    execute, pending = Cursor.execute, [act]

    def observed(cursor: Cursor, query: Any, *args: Any, **kwargs: Any) -> Any:
        if pending and text_of(query, cursor.connection).lstrip().startswith(beginning):
            pending.pop()()
        return execute(cursor, query, *args, **kwargs)

    monkeypatch.setattr(Cursor, "execute", observed)
