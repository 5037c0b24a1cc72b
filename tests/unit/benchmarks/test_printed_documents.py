"""The documents that the benchmark prints, and their layouts, are the same on every machine."""

import hashlib

import pytest

from benchmarks.documents.corpora import documents, table_documents
from benchmarks.documents.generated_documents import generated_document
from benchmarks.documents.generated_tables import small_table, table_document
from benchmarks.documents.markdown_source import markdown_document, plain_document
from benchmarks.documents.print_layouts import ALIGNED, RULED, layout_of, table_layout_of
from benchmarks.documents.sentences import Writer
from benchmarks.documents.source_document import (
    Cell,
    Code,
    Heading,
    Item,
    Paragraph,
    Run,
    SourceDocument,
    Style,
    Table,
    block_text,
    numbered,
    plain,
    readable,
)

# The generator must not change after something was measured with it. A change needs a new stored
# run, and a reason that has nothing to do with the figures.
DIGEST = "5065dbe3766244b41da5221938efe60ffdad9bb2ea7fddf6b17fa57186deae86"


def test_the_generator_has_not_changed() -> None:
    printed = [(document, layout_of(document)) for document in map(generated_document, "abcdef")]
    for number in range(20):
        for is_ruled in (True, False):
            document = table_document(f"table-{number}", is_ruled=is_ruled)
            printed.append((document, table_layout_of(document, is_ruled=is_ruled)))
    described = repr([(document.blocks, document.notes, layout) for document, layout in printed])
    assert hashlib.sha256(described.encode()).hexdigest() == DIGEST


def test_a_smaller_run_has_the_first_documents_of_a_larger_one() -> None:
    few = [document.name for document in documents(6)]
    many = [document.name for document in documents(10)]
    assert many[:6] == few
    assert len(set(many)) == 10
    from_repository = [name for name in many if name.endswith(".md")]
    assert len(from_repository) == 4
    kinds = [is_ruled for _, is_ruled in table_documents(4)]
    assert kinds == [True, False, True, False]


def test_generated_documents_have_everything_that_is_measured() -> None:
    blocks = [block for name in "abcdef" for block in generated_document(name).blocks]
    kinds = {type(block) for block in blocks}
    assert kinds == {Heading, Paragraph, Item, Code, Table}
    styles = {run.style for block in blocks if isinstance(block, Paragraph) for run in block.text}
    assert styles == set(Style)
    assert {block.depth for block in blocks if isinstance(block, Heading)} == {1, 2, 3, 4}


@pytest.mark.parametrize("number", range(40))
@pytest.mark.parametrize("is_ruled", [True, False])
def test_rows_of_generated_tables_are_identified(number: int, is_ruled: bool) -> None:
    document = table_document(f"table-{number}", is_ruled=is_ruled)
    (table,) = document.tables
    assert len(set(table.names)) == len(table.names) > 1
    assert all(table.names)
    for row in table.cells:
        assert len(row) == len(table.names)
        assert row[0]
    has_spans = any(cell.rows > 1 for row in table.rows for cell in row)
    assert is_ruled or not has_spans
    layout = table_layout_of(document, is_ruled=is_ruled)
    assert layout.tables in (RULED if is_ruled else ALIGNED)


def test_a_table_in_a_document_fits_into_a_column() -> None:
    for number in range(20):
        assert len(small_table(Writer.named(f"small-{number}")).names) <= 4


def test_spans_are_resolved() -> None:
    header = (
        (Cell("Name", rows=2), Cell("Plan", columns=2)),
        (Cell("Price"), Cell("Weight")),
    )
    rows = (
        (Cell("Pump", rows=2), Cell("1"), Cell("2")),
        (Cell("3"), Cell("4")),
        (Cell("all", columns=2), Cell("5")),
    )
    table = Table(header, rows)
    assert table.names == ("Name", "Plan Price", "Plan Weight")
    assert table.cells == (("Pump", "1", "2"), ("Pump", "3", "4"), ("all", "", "5"))


def test_headings_are_numbered_below_the_title() -> None:
    depths = (1, 2, 3, 3, 2, 4)
    document = SourceDocument("d", "d", tuple(Heading(depth, plain("T")) for depth in depths))
    texts = [readable(heading.text) for heading in numbered(document).headings]
    assert texts == ["T", "1 T", "1.1 T", "1.2 T", "2 T", "2.1.1 T"]


MARKDOWN = """\
# The *title*

A paragraph with `code`, **weight** and a
[link](https://example.org).

> A quotation.

1. First
2. Second
   - Inner

## Data

| Name | Price |
| ---- | ----: |
| a\\|b | 1.5   |

```sh
make
```
"""


def test_markdown_becomes_blocks() -> None:
    document = markdown_document("m", MARKDOWN)
    assert document.title == "The title"
    assert list(map(block_text, document.blocks)) == [
        "The title",
        "A paragraph with code, weight and a link.",
        "A quotation.",
        "1. First",
        "2. Second",
        "Inner",
        "Data",
        "Name\tPrice\na|b\t1.5",
        "make",
    ]
    paragraph = document.blocks[1]
    assert isinstance(paragraph, Paragraph)
    assert Run("weight", Style.BOLD) in paragraph.text
    inner = document.blocks[5]
    assert isinstance(inner, Item)
    assert (inner.depth, inner.number) == (2, 0)
    (table,) = document.tables
    assert table.numeric == {1}


def test_paragraphs_of_plain_text_are_separated_by_blank_lines() -> None:
    document = plain_document("p", "one\ntwo\n\n\nthree\n")
    assert list(map(block_text, document.blocks)) == ["one\ntwo", "three"]


def test_marks_of_footnotes_are_apart_from_words() -> None:
    text = (Run("10"), Run("6", Style.RAISED), Run(" parts."), Run("1", Style.NOTE), Run("More."))
    assert readable(text) == "10^6 parts. [1] More."
