"""Every SQL statement on rows of tenants binds `tenant_id`, so it reaches no other tenant's rows.

In a Citus cluster, one node can run such a statement alone. `citus_rules` has the rules of Citus
for this. The tests find the statements among the constants of the engine's modules, and among the
string literals in the functions of these modules.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import psycopg
import pytest
from psycopg import sql

from tests.support.engines.citus_rules import placement, policy_problems, problems
from tests.support.manuals import ROOT

FOLDER = ROOT / "hrag" / "engine" / "postgres"
MODULES = sorted(
    ".".join(path.relative_to(FOLDER).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if path.stem != "__init__"
)

ALL_TENANTS = {
    ("admin.check", "_COLLECTIONS"),
    ("admin.reindex", "_COLLECTIONS"),
    ("admin.check_store", "_USAGE"),
    ("admin.check_store", "_FUTURE"),
    ("admin.check_store", "_NAMES"),
    ("admin.check_store", "_COPIES"),
    ("admin.check_store", "_HOMES"),
    ("admin.check_store", "_DELETED"),
    ("admin.check_store", "_OWNERS"),
    ("admin.check_store", "_STRAYS"),
    ("store.queries", "_ALL_COLLECTIONS"),
    ("search.document_export", "_COLLECTIONS"),
    ("maintenance.reclaim", "_DELETED"),
    ("maintenance.worker", "_SURVEY"),
    ("write.unsummarised", "_COLLECTIONS"),
    ("write.writer", "_TENANTS"),
    ("write.writer", "_LEAVES_OF_TENANTS"),
    ("write.writer", "_TOTALS"),
}
"""The statements that are meant for the rows of all tenants, so they bind none.

A key is the name of a module and the name of the constant or function in it.
"""

SETTINGS_IN_ONE_STRING = {"search.sources.vector_source", "store.connection", "store.database"}
"""The modules that send several settings in one string, which saves round trips.

Citus does not send the strings with BEGIN to the nodes, because `citus.propagate_set_commands` is
off then. The string of `vector_source` turns it on, so that the node gets `hnsw.ef_search`.
"""

# The constants that are only a part of a statement. The whole statement is checked elsewhere.
PARTS = {
    ("admin.check", "_STRAY"),
    ("admin.check_store", "_STRAY"),
    ("search.document_reader", "DOCUMENTS_OF_CHUNKS"),
}

# What the checks write for a placeholder of psycopg.sql, by its name. A placeholder without a name
# is replaced according to its constant. All others are values.
_TABLE = "hrag_homes.leaves_1"
_BOUND = "tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s"
_FILLS = {
    "condition": "",
    "sources": f"SELECT * FROM {_TABLE} WHERE {_BOUND}",
    "candidates": "SELECT 1",
    "scored": "SELECT 1",
    "table": _TABLE,
}
_UNNAMED = {
    ("write.writer", "_LIST"): [""],
    ("store.filter_sql", "_BY_TERM"): [_BOUND, "1"],
    ("store.filter_sql", "_BY_RANGE"): ["1", "1", _BOUND],
}

_CREATED_TABLE = re.compile(r"CREATE TABLE hrag\.(\w+) \((.*?)\n\)", re.DOTALL)
_TABLE_PLACEHOLDER = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE|ONLY|COPY|TABLE|ON)\s+(?:hrag\.)?\{\w*\}"
)


@cache
def _tenant_tables() -> frozenset[str]:
    """Returns the names of the tables with a column `tenant_id`, except sql_tenants."""
    columns_by_table: dict[str, str] = {}
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


STATEMENTS = [each for each in _statements() if each[:2] not in PARTS]


def _filled(module: str, name: str, text: str) -> str:
    """Returns a statement whose placeholders of psycopg.sql are replaced, so that it is SQL."""
    text = _TABLE_PLACEHOLDER.sub(lambda found: f"{found[0].split()[0]} {_TABLE}", text)
    unnamed = iter(_UNNAMED.get((module, name), []))
    return re.sub(
        r"\{(\w*)\}",
        lambda found: _FILLS.get(found[1], "1") if found[1] else next(unnamed, "1"),
        text,
    )


def test_the_check_finds_the_tables_of_tenants_and_the_statements() -> None:
    assert {"documents", "leaves", "collections", "tenants", "postings"} <= _tenant_tables()
    assert len(STATEMENTS) > 60


@pytest.mark.parametrize(("module", "name", "text"), STATEMENTS)
def test_one_node_of_a_cluster_runs_each_statement_of_a_tenant(
    module: str, name: str, text: str
) -> None:
    is_for_all = (module, name) in ALL_TENANTS
    assert problems(_filled(module, name, text), all_tenants=is_for_all) == []


def test_the_exceptions_are_exactly_the_statements_that_need_one() -> None:
    reported = {
        (module, name) for module, name, text in STATEMENTS if problems(_filled(module, name, text))
    }
    assert reported == ALL_TENANTS


def test_the_policies_of_distributed_tables_have_no_subqueries() -> None:
    scripts = (FOLDER / "store" / "migrations").glob("*.sql")
    found = [problem for script in scripts for problem in policy_problems(script.read_text())]
    assert found == []


def test_settings_of_a_transaction_are_sent_one_by_one() -> None:
    """Citus sends the whole string with SET LOCAL to the node again for each setting in it."""
    found = {
        (name, constant.decode())
        for name in MODULES
        for constant in _bytes_in(name)
        if b"SET LOCAL" in constant and problems(constant.decode().replace("%d", "1"))
    }
    assert {name for name, _ in found} == SETTINGS_IN_ONE_STRING


def _bytes_in(name: str) -> Iterator[bytes]:
    """Yields the literals of bytes in a module. Settings are written as bytes."""
    tree = ast.parse((FOLDER / f"{name.replace('.', '/')}.py").read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            yield node.value


def test_every_table_of_tenants_is_distributed_or_left_on_the_coordinator() -> None:
    tables = placement()
    assert tables.local == {"home_slots", "migrations"}
    assert tables.copied == {"sql_tenants"}
    assert tables.distributed == _tenant_tables() - {"home_slots"}


@pytest.mark.postgres
def test_unique_keys_of_distributed_tables_begin_with_the_tenant(postgres_dsn: str) -> None:
    """Citus refuses other unique keys, because a node does not know the rows of other nodes."""
    distributed = placement().distributed
    with psycopg.connect(postgres_dsn) as connection:
        keys = connection.execute(
            "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
            " WHERE i.indisunique AND c.relnamespace = 'hrag'::regnamespace"
        ).fetchall()
    assert distributed <= {table for table, _ in keys}
    assert {column for table, column in keys if table in distributed} == {"tenant_id"}
