"""Observes the statements that the engine sends to PostgreSQL.

`tenants_named` asserts that each statement names the tenant whose rows it reads or writes. Tables
are distributed by tenant, and nothing crosses a tenant. So a statement on a table of the schema
hrag must compare `tenant_id` with a parameter, or insert it. The exceptions are statements on the
tables STORE_WIDE, which list tenants or collections, or look for maintenance work of all tenants. A
transaction that writes rows of a tenant must have called hrag.hold_placement before.

`before_statement` lets a test act at an exact moment of a transaction.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from psycopg import sql

from hrag.engine.postgres.store.connection import Connection, Cursor

_TABLE = re.compile(r'\b(?:FROM|JOIN|INTO|UPDATE)\s+"?hrag"?\."?(\w+)')
_BOUND = re.compile(r"tenant_id = %|\(tenant_id\b")
# Statements that write rows of tenants, or lock them.
_WRITES = re.compile(
    r'\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+"?hrag(?:_homes)?"?\.(?!"?home_slots|"?migrations)'
    r"|\bhrag\.(?!home_slots|deleted_collections).*\bFOR UPDATE",
    re.DOTALL,
)
_HOLD = "hrag.hold_placement("
STORE_WIDE = frozenset(
    {"collections", "deleted_collections", "home_slots", "migrations", "tenants"}
)


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
    """Makes statements fail that are run inside the block and do not name their tenant.

    Also makes statements fail that write rows of tenants while Citus may be splitting their shards.
    """
    execute, begin = Cursor.execute, Connection.begin
    holding: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    def beginning(connection: Connection, *args: Any) -> None:
        holding[connection] = False
        begin(connection, *args)

    def checked(cursor: Cursor, query: Any, *args: Any, **kwargs: Any) -> Any:
        connection = cursor.connection
        assert unbound_tables(query, connection) <= STORE_WIDE, query
        text = text_of(query, connection)
        if connection in holding:  # Otherwise a test uses the connection by itself.
            holding[connection] = holding[connection] or _HOLD in text
            assert holding[connection] or not _WRITES.search(text), query
        return execute(cursor, query, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "execute", checked)
        patch.setattr(Connection, "begin", beginning)
        yield


def before_statement(
    monkeypatch: pytest.MonkeyPatch, beginning: str, act: Callable[[], object]
) -> None:
    """Calls `act` before the first statement that begins with `beginning` is sent, in its thread.

    White space before the statement is ignored. When `act` is called, the transaction of the
    statement is open, and all earlier statements of the transaction have been run.
    """
    execute, pending = Cursor.execute, [act]

    def observed(cursor: Cursor, query: Any, *args: Any, **kwargs: Any) -> Any:
        if pending and text_of(query, cursor.connection).lstrip().startswith(beginning):
            pending.pop()()
        return execute(cursor, query, *args, **kwargs)

    monkeypatch.setattr(Cursor, "execute", observed)
