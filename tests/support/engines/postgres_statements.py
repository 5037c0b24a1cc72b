"""Asserts that each statement names the tenant whose rows it reads or writes.

Tables are distributed by tenant, and no statement crosses tenants: a statement on a table of the
schema hrag compares `tenant_id` with a parameter or inserts it. Statements on the whole store are
the only exception: they read the list of collections or look for work to do.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg import sql

from hrag.engine.postgres.store.connection import Cursor

_TABLE = re.compile(r'\b(?:FROM|JOIN|INTO|UPDATE)\s+"?hrag"?\."?(\w+)')
_BOUND = re.compile(r"tenant_id = %|\(tenant_id\b")
STORE_WIDE = frozenset({"collections", "deleted_collections", "migrations", "unused_homes"})


def unbound_tables(statement: Any, connection: Any) -> set[str]:
    """Returns the tables that a statement reads or writes without naming a tenant."""
    if isinstance(statement, sql.Composable):
        statement = statement.as_string(connection)
    text = statement.decode() if isinstance(statement, bytes) else statement
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
