"""What the code asks of its machine: where the wall clock is read, and that no memory is measured.

Wall time may jump, for example when a clock is corrected. So durations, deadlines, rates and locks
use monotonic time. A process that sizes its caches by the memory of the machine ignores the limit
of its container. So all sizes are settings.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("hrag", "hrag_fast", "indexer_svc", "retriever_svc")

# The modules that read the wall clock, each with the reason why it means a date.
WALL_CLOCK = {
    "hrag/cli/evaluation_run.py": "the date of a report",
    "hrag/cli/keys.py": "whether a key that is listed has expired",
    "hrag/engine/embedded/admin/backup.py": "the date of a backup, for people",
    "hrag/gateway/rest.py": "the date of a reply, for people",
    "hrag/observe/tracing.py": "when a span began, which other machines compare",
    "hrag/server/auth/api_keys.py": "the dates in a key file",
    "hrag/server/auth/web_tokens.py": "the dates in a token, which an issuer wrote",
}
# The statements that read the database's clock, each with the reason.
DATABASE_CLOCK = {
    "hrag/engine/postgres/indexes/home_slots.py": "when a replaced home is dropped at the earliest",
    "hrag/engine/postgres/store/migrations/0001_schema.sql": "the date of a migration, for people",
}
_WALL = re.compile(
    r"\btime\.(time|time_ns|ctime|localtime|gmtime)\b|\bdate(time)?\.(now|today|utcnow)\b"
)
_DATABASE = re.compile(
    r"(?<![.\w])now\(\)|\b(clock|statement|transaction)_timestamp\b"
    r"|\bcurrent_(timestamp|date|time)\b|\blocaltimestamp\b",
    re.IGNORECASE,
)
_MEMORY = re.compile(
    r"SC_PHYS_PAGES|SC_AVPHYS_PAGES|meminfo|virtual_memory|totalram|memory\.max|memory\.limit"
)


def _sources() -> Iterator[tuple[str, str]]:
    """Yields the name and the code of each source file of the product, without docstrings."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in {".pyx", ".pxd", ".h", ".sql"}:
                yield name, path.read_text("utf-8")
            elif path.suffix == ".py" and "/v1/" not in name:
                yield name, ast.unparse(_without_docstrings(ast.parse(path.read_text("utf-8"))))


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                statement
                for statement in node.body
                if not (
                    isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
                )
            ] or [ast.Pass()]
    return tree


def _files_with(pattern: re.Pattern[str]) -> set[str]:
    return {name for name, code in _sources() if pattern.search(code)}


def test_the_wall_clock_is_read_only_where_a_date_is_meant() -> None:
    assert _files_with(_WALL) == set(WALL_CLOCK)


def test_the_clock_of_the_database_is_read_only_where_a_date_is_meant() -> None:
    assert _files_with(_DATABASE) == set(DATABASE_CLOCK)


def test_no_size_depends_on_the_memory_of_the_machine() -> None:
    assert _files_with(_MEMORY) == set()
