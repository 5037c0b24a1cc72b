"""Documents are printed as PDF, with bookmarks, with tags, or with neither."""

from dataclasses import replace

import pypdfium2 as pdfium
import pytest

from benchmarks.documents.print_layouts import (
    HeadingStyle,
    HeadStyle,
    Outline,
    PrintLayout,
    TableStyle,
)
from benchmarks.documents.printer import NoPrinter, PrintedDocument, print_document
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
    plain,
    readable,
)
from indexer_svc.parsers.pdf.pdf_file import parse_pdf

LAYOUT = PrintLayout(
    paper="A4",
    columns=1,
    family="DejaVu Serif",
    size_pt=10,
    headings=HeadingStyle.SIZED,
    heads=HeadStyle.TITLE,
    tables=TableStyle.GRID,
    has_contents=True,
    is_justified=False,
    is_hyphenated=False,
    is_indented=False,
)
DOCUMENT = SourceDocument(
    "d",
    "The <manual>",
    (
        Heading(1, plain("The <manual>")),
        Heading(2, plain("First part")),
        Paragraph((Run("Some text."), Run("1", Style.NOTE), Run("More text."))),
        Item(plain("outer"), number=1),
        Item(plain("inner"), depth=2),
        Item(plain("last"), number=2),
        Heading(2, plain("Second part")),
        Code("a < b"),
        Table(
            ((Cell("Name", rows=2), Cell("Plan", columns=2)), (Cell("Price"), Cell("Weight"))),
            ((Cell("Pump", rows=2), Cell("1"), Cell("2")), (Cell("3"), Cell("4"))),
            frozenset({1, 2}),
        ),
    ),
    (plain("A footnote."),),
)
AMPLE = 1 << 20


@pytest.fixture(scope="module")
def printed() -> PrintedDocument:
    """A print of DOCUMENT. Without WeasyPrint, the tests are skipped."""
    try:
        return print_document(DOCUMENT, LAYOUT)
    except NoPrinter as error:
        pytest.skip(str(error))


def test_every_outline_is_printed_on_the_same_pages(printed: PrintedDocument) -> None:
    assert set(printed.pdfs) == set(Outline)
    assert (printed.page_count, printed.contents_page_count) == (2, 1)
    assert printed.heads == (("The <manual>", "1"), ("The <manual>", "2"))
    marks = {}
    for outline, pdf in printed.pdfs.items():
        with pdfium.PdfDocument(pdf) as document:
            marks[outline] = (len(list(document.get_toc())), document.is_tagged())
    assert marks == {
        Outline.BOOKMARKS: (3, False),
        Outline.TAGS: (0, True),
        Outline.NONE: (0, False),
    }


def test_a_print_contains_the_text(printed: PrintedDocument) -> None:
    text = parse_pdf(printed.pdfs[Outline.BOOKMARKS], AMPLE).text
    for part in ("The <manual>", "Some text.", "More text.", "inner", "a < b", "A footnote."):
        assert part in text


def test_the_same_document_is_printed_alike(printed: PrintedDocument) -> None:
    assert print_document(DOCUMENT, LAYOUT).pdfs == printed.pdfs


def test_numbers_of_headings_are_printed(printed: PrintedDocument) -> None:
    layout = replace(LAYOUT, headings=HeadingStyle.NUMBERED, has_contents=False)
    print_of_numbers = print_document(DOCUMENT, layout, [Outline.NONE])
    assert list(print_of_numbers.pdfs) == [Outline.NONE]
    titles = [readable(heading.text) for heading in print_of_numbers.document.headings]
    assert titles == ["The <manual>", "1 First part", "2 Second part"]
    assert "2 Second part" in parse_pdf(print_of_numbers.pdfs[Outline.NONE], AMPLE).text
    assert printed.contents_page_count > print_of_numbers.contents_page_count == 0


@pytest.mark.parametrize("heads", list(HeadStyle))
@pytest.mark.usefixtures("printed")
def test_heads_that_are_printed_are_known(heads: HeadStyle) -> None:
    layout = replace(LAYOUT, heads=heads, columns=2)
    pages = print_document(DOCUMENT, layout, [Outline.NONE]).heads
    assert len(pages) == 2
    assert [bool(page) for page in pages] == [heads is not HeadStyle.NONE] * 2
    if heads is HeadStyle.COUNTED:
        assert pages[1] == ("Page 2 of 2",)
    if heads is HeadStyle.SECTION:
        assert pages[1] == ("First part", "Second part", "2")
