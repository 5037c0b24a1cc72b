"""The documents and tables of a run: pages of this repository, and generated ones."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.documents.generated_documents import generated_document
from benchmarks.documents.generated_tables import table_document
from benchmarks.documents.markdown_source import markdown_document
from benchmarks.documents.source_document import SourceDocument

DOCUMENTS, TABLES = 60, 200

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = ("*.md", "docs/**/*.md", "benchmarks/*.md")
# Of five documents, these are pages of the repository.
_FROM_REPOSITORY = (1, 3)


def documents(count: int = DOCUMENTS) -> Iterator[SourceDocument]:
    """Yields documents. Two of five are pages of this repository, as long as there are any.

    A smaller count yields the first documents of a larger one.
    """
    pages = iter(_pages())
    for number in range(count):
        page = next(pages, None) if number % 5 in _FROM_REPOSITORY else None
        if page is None:
            yield generated_document(f"report-{number}")
        else:
            name = str(page.relative_to(_ROOT))
            yield markdown_document(name, page.read_text("utf-8"))


def table_documents(count: int = TABLES) -> Iterator[tuple[SourceDocument, bool]]:
    """Yields documents with one table each, and True if the table is printed with lines.

    Ruled and aligned tables alternate.
    """
    for number in range(count):
        is_ruled = number % 2 == 0
        kind = "ruled" if is_ruled else "aligned"
        yield table_document(f"{kind}-{number // 2}", is_ruled=is_ruled), is_ruled


def _pages() -> list[Path]:
    """Returns the Markdown pages of the repository, in an order that a new page hardly changes."""
    paths = {path for pattern in _PAGES for path in _ROOT.glob(pattern)}
    return sorted(paths, key=_digest)


def _digest(path: Path) -> bytes:
    return hashlib.sha256(str(path.relative_to(_ROOT)).encode()).digest()
