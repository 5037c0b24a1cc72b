"""Every SQL statement on rows of tenants binds `tenant_id`, so it reaches no other tenant's rows.

In a cluster whose tables are distributed by tenant, one node can run such a statement alone. The
tests find the statements among the constants of the engine's modules, and among the string literals
in the functions of these modules.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import psycopg
import pytest
from psycopg import sql

from tests.support.manuals import ROOT

FOLDER = ROOT / "hrag" / "engine" / "postgres"
MODULES = sorted(
    ".".join(path.relative_to(FOLDER).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if path.stem != "__init__"
)

WORK = "looks for work in all tenants"
ALL = "is meant for the rows of all tenants"
CONDITION = "gets its condition from filter_sql._COLLECTION_CONDITION, which binds the tenant"
HOME = "the tables of a home contain the leaves of only one collection"
EXCEPTIONS = {
    ("admin.check", "_COLLECTIONS"): ALL,
    ("admin.check", "_FOREIGN_LEAVES"): HOME,
    ("admin.reindex", "_COLLECTIONS"): ALL,
    ("admin.check_store", "_USAGE"): ALL,
    ("admin.check_store", "_FUTURE"): ALL,
    ("admin.check_store", "_NAMES"): ALL,
    ("admin.check_store", "_STRAY"): ALL,
    ("admin.check_store", "_STRAYS"): ALL,
    ("admin.check_store", "_TABLES_OF_HOMES"): ALL,
    ("admin.check_store", "_HOMES"): ALL,
    ("maintenance.worker", "_SURVEY"): WORK,
    ("indexes.homes", "_DUE"): WORK,
    ("maintenance.reclaim", "_NEXT"): WORK,
    ("store.queries", "_ALL_COLLECTIONS"): ALL,
    ("write.writer", "_TOTALS"): ALL,
    ("write.unsummarised", "_COLLECTIONS"): WORK,
    ("search.document_export", "_COLLECTIONS"): ALL,
    ("store.filter_sql", "_BY_RANGE"): CONDITION,
    ("store.filter_sql", "_BY_TERM"): CONDITION,
    ("indexes.homes", "_CREATE"): HOME,
    ("indexes.homes", "_INDEX"): HOME,
    ("indexes.homes", "home_sizes"): HOME,
    ("search.sources.vector_source", "_GRAPH"): HOME,
}
"""The statements that bind no tenant, each with the reason why it need not.

A key is the name of a module and the name of the constant or function in it.
"""

_CREATED_TABLE = re.compile(r"CREATE TABLE hrag\.(\w+) \((.*?)\n\)", re.DOTALL)
_TABLE_PLACEHOLDER = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE|ONLY|COPY|TABLE|ON)\s+(?:hrag\.)?\{\w*\}"
)
_BINDS_TENANT = re.compile(
    r"\btenant_id = %(?:\(\w+\))?[sb]"
    r"|\(tenant_id, [\w, ]+\) (?:=|IN) \(\(?%"
    r"|INSERT INTO \S+(?: AS \w+)?\s+\(tenant_id\b"
    r"|INSERT INTO \S+\s+VALUES \(%(?:\(tenant\w*\))?s"
    r"|COPY \S+ \(tenant_id\b"
)


@cache
def _tenant_tables() -> frozenset[str]:
    """Returns the names of the tables with a column `tenant_id`, except sql_tenants."""
    columns_by_table = {}
    for script in (FOLDER / "store" / "migrations").glob("*.sql"):
        columns_by_table |= dict(_CREATED_TABLE.findall(script.read_text("utf-8")))
    tables = {name for name, columns in columns_by_table.items() if "tenant_id text" in columns}
    return frozenset(tables - {"sql_tenants"})


def _is_on_tenant_rows(text: str) -> bool:
    """Returns True if a text is a statement on rows of tenants, or a part of such a statement.

    Such a text contains the name of a table of tenants, or a placeholder for the name of a table.
    A text that is only the name of a table is not a statement.
    """
    if re.fullmatch(r"hrag\.\w+", text):
        return False
    tables = "|".join(_tenant_tables())
    return bool(re.search(rf"\bhrag\.(?:{tables})\b", text) or _TABLE_PLACEHOLDER.search(text))


def _texts_in(value: object) -> Iterator[str]:
    """Yields each string and each psycopg.sql object in a constant, as text."""
    match value:
        case str():
            yield value
        case sql.Composable():
            yield value.as_string(None)
        case tuple() | list():
            for member in value:
                yield from _texts_in(member)
        case dict():
            for member in value.values():
                yield from _texts_in(member)


def _statements_in_functions(name: str) -> Iterator[tuple[str, str, str]]:
    """Yields each statement in the functions of a module: the module, the function and the text.

    Docstrings are not statements.
    """
    tree = ast.parse((FOLDER / f"{name.replace('.', '/')}.py").read_text("utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            documentation = ast.get_docstring(function, clean=False)
            for node in ast.walk(function):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and text != documentation and _is_on_tenant_rows(text):
                    yield name, function.name, text


def _statements() -> list[tuple[str, str, str]]:
    """Returns each statement: the module, the name of the constant or function, and the text.

    A text that is part of a longer text in the same module is left out.
    """
    statements = []
    for name in MODULES:
        module = import_module(f"hrag.engine.postgres.{name}")
        texts = [
            (name, constant, text)
            for constant, value in vars(module).items()
            if not constant.startswith("__")
            for text in _texts_in(value)
            if _is_on_tenant_rows(text)
        ]
        texts += _statements_in_functions(name)
        statements += [
            statement
            for statement in texts
            if not any(statement[2] in other[2] != statement[2] for other in texts)
        ]
    return statements


STATEMENTS = _statements()


def test_the_check_finds_the_tables_of_tenants_and_the_statements() -> None:
    assert {"documents", "leaves", "collections", "tenants", "postings"} <= _tenant_tables()
    assert len(STATEMENTS) > 60


@pytest.mark.parametrize(("module", "name", "text"), STATEMENTS)
def test_a_statement_binds_the_tenant(module: str, name: str, text: str) -> None:
    if (module, name) not in EXCEPTIONS:
        assert _BINDS_TENANT.search(text), f"{module}.{name} binds no tenant_id:{text}"


def test_the_exceptions_are_exactly_the_statements_that_bind_no_tenant() -> None:
    unbound = {
        (module, name) for module, name, text in STATEMENTS if not _BINDS_TENANT.search(text)
    }
    assert EXCEPTIONS.keys() == unbound


def _citus_tables() -> tuple[set[str], set[str]]:
    """Returns the tables that deploy/citus.sql distributes, and the tables that it leaves local."""
    script = (ROOT / "deploy" / "citus.sql").read_text("utf-8")
    distributed = re.findall(r"create_distributed_table\('hrag\.(\w+)', 'tenant_id'", script)
    (local,) = re.findall(r"^-- Local: (.*)\.$", script, re.MULTILINE)
    return set(distributed), set(local.split(", "))


def test_every_table_of_tenants_is_distributed_or_left_on_the_coordinator() -> None:
    distributed, local = _citus_tables()
    assert not distributed & local
    assert distributed | local == _tenant_tables() | {"migrations", "sql_tenants"}


@pytest.mark.postgres
def test_unique_keys_of_distributed_tables_begin_with_the_tenant(postgres_dsn: str) -> None:
    """Citus refuses other unique keys, because a node does not know the rows of other nodes."""
    distributed, _ = _citus_tables()
    with psycopg.connect(postgres_dsn) as connection:
        keys = connection.execute(
            "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
            " WHERE i.indisunique AND c.relnamespace = 'hrag'::regnamespace"
        ).fetchall()
    assert distributed <= {table for table, _ in keys}
    assert {column for table, column in keys if table in distributed} == {"tenant_id"}
