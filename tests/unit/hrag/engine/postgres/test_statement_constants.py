"""Every statement on rows of tenants binds the tenant, so it cannot reach another tenant's rows.

A cluster that is distributed by tenant runs such a statement on one node. The statements are the
constants of the modules of the engine, and the string literals in their functions.
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
ALL = "is about all tenants"
CONDITION = "gets its condition from filter_sql._COLLECTION_CONDITION, which binds it"
HOME = "a home has the leaves of one collection"
EXCEPTIONS = {
    ("admin.check", "_COLLECTIONS"): ALL,
    ("admin.check", "_FOREIGN_LEAVES"): HOME,
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
"""Statements that bind no tenant, and the reasons why they need not."""

_CREATED = re.compile(r"CREATE TABLE hrag\.(\w+) \((.*?)\n\)", re.DOTALL)
_PLACE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|ONLY|COPY|TABLE|ON)\s+(?:hrag\.)?\{\w*\}")
_BOUND = re.compile(
    r"\btenant_id = %(?:\(\w+\))?[sb]"
    r"|\(tenant_id, [\w, ]+\) (?:=|IN) \(\(?%"
    r"|INSERT INTO \S+(?: AS \w+)?\s+\(tenant_id\b"
    r"|INSERT INTO \S+\s+VALUES \(%(?:\(tenant\w*\))?s"
    r"|COPY \S+ \(tenant_id\b"
)


@cache
def _tables() -> frozenset[str]:
    """Returns the tables whose rows belong to tenants."""
    columns_by_table = {}
    for script in (FOLDER / "store" / "migrations").glob("*.sql"):
        columns_by_table |= dict(_CREATED.findall(script.read_text("utf-8")))
    tables = {name for name, columns in columns_by_table.items() if "tenant_id text" in columns}
    return frozenset(tables - {"sql_tenants"})


def _names_rows(text: str) -> bool:
    """Returns True if a text is a statement, or a part of one, on rows of tenants.

    It contains the name of a table, or a placeholder for one. The name of a table alone does not
    count.
    """
    if re.fullmatch(r"hrag\.\w+", text):
        return False
    tables = "|".join(_tables())
    return bool(re.search(rf"\bhrag\.(?:{tables})\b", text) or _PLACE.search(text))


def _texts(value: object) -> Iterator[str]:
    """Yields the texts in a constant."""
    match value:
        case str():
            yield value
        case sql.Composable():
            yield value.as_string(None)
        case tuple() | list():
            for member in value:
                yield from _texts(member)
        case dict():
            for member in value.values():
                yield from _texts(member)


def _in_functions(name: str) -> Iterator[tuple[str, str, str]]:
    """Yields the module, function and text of string literals that are not docstrings."""
    tree = ast.parse((FOLDER / f"{name.replace('.', '/')}.py").read_text("utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            documentation = ast.get_docstring(function, clean=False)
            for node in ast.walk(function):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and text != documentation and _names_rows(text):
                    yield name, function.name, text


def _statements() -> list[tuple[str, str, str]]:
    """Returns module, name and text of each statement, without texts that are parts of others."""
    statements = []
    for name in MODULES:
        module = import_module(f"hrag.engine.postgres.{name}")
        texts = [
            (name, constant, text)
            for constant, value in vars(module).items()
            if not constant.startswith("__")
            for text in _texts(value)
            if _names_rows(text)
        ]
        texts += _in_functions(name)
        statements += [
            statement
            for statement in texts
            if not any(statement[2] in other[2] != statement[2] for other in texts)
        ]
    return statements


STATEMENTS = _statements()


def test_the_tables_of_tenants_are_known() -> None:
    assert {"documents", "leaves", "collections", "tenants", "postings"} <= _tables()
    assert len(STATEMENTS) > 60


@pytest.mark.parametrize(("module", "name", "text"), STATEMENTS)
def test_a_statement_binds_the_tenant(module: str, name: str, text: str) -> None:
    if (module, name) not in EXCEPTIONS:
        assert _BOUND.search(text), f"{module}.{name} binds no tenant_id:{text}"


def test_every_exception_is_needed() -> None:
    unbound = {(module, name) for module, name, text in STATEMENTS if not _BOUND.search(text)}
    assert EXCEPTIONS.keys() == unbound


def _created_for_citus() -> tuple[set[str], set[str]]:
    """Returns the tables that the script for Citus distributes, and those that it leaves local."""
    script = (ROOT / "deploy" / "citus.sql").read_text("utf-8")
    distributed = re.findall(r"create_distributed_table\('hrag\.(\w+)', 'tenant_id'", script)
    (local,) = re.findall(r"^-- Local: (.*)\.$", script, re.MULTILINE)
    return set(distributed), set(local.split(", "))


def test_every_table_of_tenants_is_distributed_or_left_on_the_coordinator() -> None:
    distributed, local = _created_for_citus()
    assert not distributed & local
    assert distributed | local == _tables() | {"migrations", "sql_tenants"}


@pytest.mark.postgres
def test_unique_keys_of_distributed_tables_begin_with_the_tenant(postgres_dsn: str) -> None:
    """Citus refuses other unique keys, because a node does not know the rows of other nodes."""
    distributed, _ = _created_for_citus()
    with psycopg.connect(postgres_dsn) as connection:
        keys = connection.execute(
            "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
            " WHERE i.indisunique AND c.relnamespace = 'hrag'::regnamespace"
        ).fetchall()
    assert distributed <= {table for table, _ in keys}
    assert {column for table, column in keys if table in distributed} == {"tenant_id"}
