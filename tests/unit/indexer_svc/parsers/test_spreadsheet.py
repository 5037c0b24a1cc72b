"""Workbooks become sections with tables, and rows become pages."""

import datetime
import re
import struct
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from xml.sax.saxutils import quoteattr
from zipfile import ZipFile

import openpyxl
import pytest
import xlwt
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont

from hrag.errors import UnreadableDocument
from hrag.values.formats import ODS, XLS, XLSX
from hrag.values.read_report import PageUnit
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import parse
from indexer_svc.parsers.text_writer import MAX_ROW_PAGES
from tests.support.documents.format_files import (
    DANCE,
    TITLE,
    ods_cell,
    ods_file,
    ods_of,
    ods_sheet,
    saved,
    strict,
    with_part,
    xls_file,
    xlsx_file,
)

AMPLE_BYTES = 1 << 20
ENCRYPTED_MANIFEST = (
    '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><m:file-entry>'
    "<m:encryption-data/></m:file-entry></m:manifest>"
)
TABLE = "| Flower | Nectar |\n| --- | --- |\n| Clover | 4 mg |\n| Linden | 7 mg |"
BOOK = (
    f"# Dance\n\n{TABLE}\n\n{DANCE}\n\n"
    "# Honey\n\n| Day | kg | share | sold |\n| --- | --- | --- | --- |\n"
    "| 2026-05-01 | 0.3 | 0.25 | TRUE |\n| 2026-05-02 10:30:00 | 3 | 1000000 |  |"
)
FILES = {XLSX: xlsx_file, XLS: xls_file, ODS: ods_file}


def pages(parsed: ParsedFile) -> list[tuple[int, str]]:
    """Returns the number and the text of each page, without white space at its end."""
    return [(page.number, parsed.text[page.char_start : page.char_end]) for page in parsed.pages]


def book_of(
    rows: object, merged: tuple[str, ...] = (), formats: Mapping[str, str] | None = None
) -> bytes:
    """Returns a workbook of one sheet.

    `merged` has ranges of merged cells, `formats` the number formats of cells.
    """
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cells in merged:
        book.active.merge_cells(cells)
    for cell, number_format in (formats or {}).items():
        book.active[cell].number_format = number_format
    return saved(book)


def parsed_book(*args: object, **options: object) -> ParsedFile:
    return parse(book_of(*args, **options), XLSX, AMPLE_BYTES)


@pytest.mark.parametrize("mime_type", FILES)
def test_a_workbook_has_its_sheets_as_sections_and_its_rows_as_pages(mime_type):
    parsed = parse(FILES[mime_type](), mime_type, AMPLE_BYTES)
    assert parsed.text == BOOK
    assert [(heading.depth, heading.title) for heading in parsed.headings] == [
        (1, "Dance"),
        (1, "Honey"),
    ]
    assert parsed.title == ("" if mime_type == XLS else TITLE)
    assert parsed.page_unit is PageUnit.ROW
    assert [page.number for page in parsed.pages] == [1, 2, 3, 6, 1, 2, 3]
    assert pages(parsed)[2:5] == [
        (3, "| Linden | 7 mg |"),
        (6, DANCE),
        (1, "# Honey\n\n| Day | kg | share | sold |\n| --- | --- | --- | --- |"),
    ]
    assert parsed.report.table_count == 2


def test_a_workbook_may_have_the_strict_format():
    content = book_of([("Share",), (0.5,)], formats={"A2": "0%"})
    assert parse(strict(content), XLSX, AMPLE_BYTES) == parse(content, XLSX, AMPLE_BYTES)


@pytest.mark.parametrize(
    ("hours", "text"),
    [(30.5, "30:30:00"), (6, "6:00:00"), (-1.25, "-1:15:00"), (48.0001, "48:00:00.360000")],
)
def test_a_duration_is_shown_in_hours(hours, text):
    book = openpyxl.Workbook()
    book.active["A1"] = datetime.timedelta(hours=hours)
    assert parse(saved(book), XLSX, AMPLE_BYTES).text == f"# Sheet\n\n{text}"


def test_a_long_sheet_becomes_records_whose_pages_are_their_rows():
    rows = (("Prices",), (), ("Name", "Price"), *((f"Pump {n}", n / 2) for n in range(99)))
    parsed = parsed_book(rows)
    assert pages(parsed)[:3] == [
        (1, "# Sheet\n\nPrices"),
        (4, "Name: Pump 0\nPrice: 0"),
        (5, "Name: Pump 1\nPrice: 0.5"),
    ]
    assert pages(parsed)[-1] == (102, "Name: Pump 98\nPrice: 49")


def test_years_are_a_header_in_each_table_of_a_sheet():
    rows = [
        ("Item", 2022, 2023),
        *((f"Item {n}", n, n * n) for n in range(60)),
        (),
        ("Item", 2024, 2025),
        *((f"Item {n}", n + 7, n * n) for n in range(60)),
    ]
    blocks = parsed_book(rows).text.split("\n\n")
    assert blocks[8] == "Item: Item 7\n2022: 7\n2023: 49"
    assert blocks[68] == "Item: Item 7\n2024: 14\n2025: 49"


def test_empty_rows_within_a_table_do_not_separate_rows_from_the_header():
    parts = [[(f"Pump {10 * part + n}", n) for n in range(10)] for part in range(9)]
    rows = [("Name", "Price"), (), *(row for part in parts for row in (*part, ()))]
    blocks = parsed_book(rows).text.split("\n\n")
    assert blocks == [
        "# Sheet",
        *(f"Name: {name}\nPrice: {n}" for part in parts for name, n in part),
    ]


def test_a_table_of_other_columns_below_a_table_has_its_own_header():
    rows = [
        ("Name", "Price"),
        *((f"Pump {n}", n) for n in range(60)),
        (),
        ("City", "Pumps"),
        *((f"Town {n}", n) for n in range(60)),
    ]
    blocks = parsed_book(rows).text.split("\n\n")
    assert blocks[60:62] == ["Name: Pump 59\nPrice: 59", "City: Town 0\nPumps: 0"]


def test_a_cell_that_spans_rows_is_repeated_in_each_of_them():
    rows = [("Region", "Country", "Sales")]
    rows += [("Europe" if n == 0 else None, f"Country {n}", n) for n in range(80)]
    blocks = parsed_book(rows, merged=("A2:A81",)).text.split("\n\n")
    assert blocks[-1] == "Region: Europe\nCountry: Country 79\nSales: 79"


def test_a_header_of_merged_cells_gives_each_column_one_name():
    rows = [("Product", 2023, None, "Total"), (None, "Revenue", "Cost", None)]
    rows += [(f"Pump {n}", n, n + 1, n + 2) for n in range(60)]
    parsed = parsed_book(rows, merged=("A1:A2", "B1:C1", "D1:D2"))
    record = "Product: Pump 7\n2023 Revenue: 7\n2023 Cost: 8\nTotal: 9"
    assert pages(parsed)[8] == (10, record)


def test_a_long_note_beside_a_table_is_written_once():
    rows = [("Note " * 60, f"Country {n}", n) for n in range(1)]
    rows += [(None, f"Country {n}", n) for n in range(1, 80)]
    parsed = parsed_book(rows, merged=("A1:A80",))
    assert parsed.text.count("Note") == 60


@pytest.mark.parametrize(
    ("number_format", "shown"),
    [
        ("0%", "12.5%"),
        ("0.00%", "12.5%"),
        ("0.0 %;[Red]-0.0 %", "12.5%"),
        ("General", "0.125"),
        ('0.000" % of all"', "0.125"),
        ("0.000\\%", "0.125"),
    ],
)
def test_a_percentage_has_a_percent_sign(number_format, shown):
    rows = [("Name", "Share"), ("a", 0.125), ("b", "0.5"), ("c", None), ("d", True)]
    cells = [f"B{row}" for row in range(2, 6)]
    parsed = parsed_book(rows, formats=dict.fromkeys(cells, number_format))
    lines = parsed.text.splitlines()[4:]
    assert lines == [f"| a | {shown} |", "| b | 0.5 |", "| c |  |", "| d | TRUE |"]


def test_a_percentage_is_found_in_a_sheet_that_does_not_begin_in_the_first_cell():
    book = openpyxl.Workbook()
    sheet = book.create_sheet("Other")
    for row, share in enumerate((0.07, 1.5, -0.005), start=3):
        sheet.cell(row, 28, share).number_format = "0%"
    assert parse(saved(book), XLSX, AMPLE_BYTES).text == "# Other\n\n7%\n\n150%\n\n-0.5%"


def rich(*parts: str | tuple[str, str]) -> CellRichText:
    """Returns a text of plain parts, and of parts with their placement."""
    return CellRichText(
        *(
            part if isinstance(part, str) else TextBlock(InlineFont(vertAlign=part[1]), part[0])
            for part in parts
        )
    )


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (("10", ("6", "superscript"), " cells"), "10^6 cells"),
        (("H", ("2", "subscript"), "O < 5 & more"), "H2O < 5 & more"),
        (("Price", ("1", "superscript")), "Price [1]"),
        ((("all", "baseline"), " plain"), "all plain"),
    ],
)
def test_superscripts_and_subscripts_have_their_signs(parts, shown, is_shared):
    content = book_of([("Name", "Value"), ("a", rich(*parts)), ("b", "10")])
    if is_shared:
        content = with_shared_texts(content)
    expected = f"# Sheet\n\n| Name | Value |\n| --- | --- |\n| a | {shown} |\n| b | 10 |"
    assert parse(content, XLSX, AMPLE_BYTES).text == expected


def with_shared_texts(content: bytes) -> bytes:
    """Moves the texts that stand in cells into the table of shared texts, as Excel writes them."""
    with ZipFile(BytesIO(content)) as book:
        sheet = book.read("xl/worksheets/sheet1.xml").decode()
    texts = re.findall(r"<is>(.*?)</is>", sheet)
    for at, text in enumerate(texts):
        sheet = sheet.replace(f't="inlineStr"><is>{text}</is>', f't="s"><v>{at}</v>', 1)
    content = with_part(content, "xl/worksheets/sheet1.xml", sheet.encode())
    table = "".join(f"<si>{text}</si>" for text in texts)
    shared = f'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">{table}</sst>'
    return with_part(content, "xl/sharedStrings.xml", shared.encode())


@pytest.mark.parametrize(
    "text", ["<si>" * 9, "</si>" * 9, "<si><r><x:vertAlign/></si>", "<vertAlign"]
)
def test_a_damaged_table_of_texts_is_read_or_refused(text):
    content = with_shared_texts(book_of([("Name", rich("10", ("6", "superscript")))]))
    with suppress(UnreadableDocument):
        parse(with_part(content, "xl/sharedStrings.xml", text.encode()), XLSX, AMPLE_BYTES)


def test_a_workbook_without_readable_styles_has_fractions():
    content = book_of([("Share",), (0.5,)], formats={"A2": "0%"})
    content = with_part(content, "xl/_rels/workbook.xml.rels", b"")
    with pytest.raises(UnreadableDocument):
        parse(content, XLSX, AMPLE_BYTES)


def test_beyond_the_largest_number_of_pages_each_page_has_several_rows():
    content = b"Name,Price\n" + b"".join(b"Pump %d,1\n" % n for n in range(25_000))
    parsed = parse(content, "text/csv", AMPLE_BYTES)
    assert MAX_ROW_PAGES / 2 < len(parsed.pages) <= MAX_ROW_PAGES
    numbers = [page.number for page in parsed.pages]
    assert numbers == list(range(2, 25_002, 4))
    assert parsed.pages[0].char_start == 0
    assert parsed.pages[-1].char_end == len(parsed.text)


def test_each_sheet_begins_a_page_of_its_own_also_if_pages_have_several_rows():
    book = openpyxl.Workbook(write_only=True)
    for name, count in (("One", 15_000), ("Two", 3), ("Three", 2)):
        sheet = book.create_sheet(name)
        for number in range(count):
            sheet.append((f"row {number}",))
    parsed = parse(saved(book), XLSX, AMPLE_BYTES)
    starts = {page.char_start for page in parsed.pages}
    assert {heading.char_start for heading in parsed.headings} <= starts


@pytest.mark.parametrize(
    ("content", "mime_type", "message"),
    [
        (xlsx_file(), XLS, "not an OLE file"),
        (b"", XLS, "not an OLE file"),
        (xls_file(), XLSX, "encrypted, or of an older format"),
        (xls_file()[:2000], XLS, "a workbook .XLS., or it is damaged"),
        (xlsx_file(), ODS, "without content.xml"),
        (
            ods_of(**{"META-INF/manifest.xml": ENCRYPTED_MANIFEST}),
            ODS,
            "is encrypted; save it without a password",
        ),
        (ods_file()[:1000], ODS, "a workbook .ODS., or it is damaged"),
    ],
    ids=[
        "XLSX as XLS",
        "empty",
        "XLS as XLSX",
        "half an XLS",
        "XLSX as ODS",
        "encrypted",
        "half an ODS",
    ],
)
def test_a_file_that_is_not_of_its_format_is_refused(content, mime_type, message):
    with pytest.raises(UnreadableDocument, match=message) as caught:
        parse(content, mime_type, AMPLE_BYTES)
    assert caught.value.field == "content"


def test_a_workbook_of_an_old_format_repeats_a_cell_that_spans_rows():
    book = xlwt.Workbook()
    sheet = book.add_sheet("Sheet")
    for column, name in enumerate(("Region", "Sales")):
        sheet.write(0, column, name)
    sheet.write_merge(1, 3, 0, 0, "Europe")
    for row in (1, 2, 3):
        sheet.write(row, 1, row)
    lines = parse(saved(book), XLS, AMPLE_BYTES).text.splitlines()
    assert lines[-3:] == [f"| Europe | {row} |" for row in (1, 2, 3)]


def test_repeated_rows_and_cells_of_an_opendocument_spreadsheet_are_read():
    row = ods_cell("Pump") + ods_cell(7).replace(
        "<table:table-cell", "<table:table-cell table:number-columns-repeated='2'"
    )
    sheet = ods_sheet("Sheet", [row, row]).replace(
        "<table:table-row>", "<table:table-row table:number-rows-repeated='2'>", 1
    )
    parsed = parse(ods_of(sheet), ODS, AMPLE_BYTES)
    assert parsed.text.count("| Pump | 7 | 7 |") == 3


@pytest.mark.parametrize("mime_type", FILES)
def test_damaged_workbooks_are_refused_or_read(mime_type):
    content = FILES[mime_type]()
    for at in range(0, len(content), len(content) // 60):
        damaged = BytesIO(content)
        damaged.seek(at)
        damaged.write(b"\xff\x00\xff\xff")
        with suppress(UnreadableDocument):
            parse(damaged.getvalue(), mime_type, AMPLE_BYTES)


def _overlapping(sheets: int, rows: int, *, step: int) -> bytes:
    """Returns a workbook in which each sheet begins `step` records after the one before."""
    book = xlwt.Workbook()
    for number in range(sheets):
        sheet = book.add_sheet(f"S{number}")
        for row in range(rows if number == 0 else 1):
            sheet.write(row, 0, 1.5)
    content = bytearray(saved(book))
    at = first = 512  # xlwt writes the stream of the workbook first.
    places: list[int] = []
    kind = -1
    while kind != 0x0A:
        kind, size = struct.unpack_from("<HH", content, at)
        if kind == 0x85:
            places.append(at + 4)
        at += 4 + size
    (start,) = struct.unpack_from("<I", content, places[0])
    for place in places:
        struct.pack_into("<I", content, place, start)
        for _ in range(step):
            start += 4 + struct.unpack_from("<H", content, first + start + 2)[0]
    return bytes(content)


@pytest.mark.parametrize("step", [0, 1])
def test_an_old_workbook_whose_sheets_overlap_is_refused(step):
    with pytest.raises(UnreadableDocument, match="of 40 sheets that overlap"):
        parse(_overlapping(40, 3_000, step=step), XLS, AMPLE_BYTES)


def test_an_old_workbook_of_many_sheets_is_read():
    book = xlwt.Workbook()
    for number in range(40):
        book.add_sheet(f"S{number}").write(0, 0, f"x{number}")
    headings = parse(saved(book), XLS, AMPLE_BYTES).headings
    assert [heading.title for heading in headings] == [f"S{number}" for number in range(40)]


_SHEETS, _LINKS = "xl/workbook.xml", "xl/_rels/workbook.xml.rels"


def _renamed(content: bytes, part: str, old: str, new: str) -> bytes:
    """Returns a workbook in one of whose parts the text `old` is replaced by `new`."""
    with ZipFile(BytesIO(content)) as zipped:
        text = zipped.read(part).decode()
    assert old in text
    return with_part(content, part, text.replace(old, new).encode())


@pytest.mark.parametrize(
    "target", ["/xl/worksheets/sheet1.xml", "worksheets/sheet1.xml", "/xl/worksheets/SHEET1.XML"]
)
def test_a_part_that_several_sheets_name_is_read_once(target):
    content = _renamed(xlsx_file(), _LINKS, "/xl/worksheets/sheet3.xml", target)
    assert [heading.title for heading in parse(content, XLSX, AMPLE_BYTES).headings] == ["Dance"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('r:id="rId3"', 'r:id="rId9"'),
        ('r:id="rId3"', 'r:id="rId3" xmlns:q="urn:q" q:id="rId1"'),
        ('r:id="rId3"', ""),
    ],
    ids=["unknown", "two", "none"],
)
def test_a_workbook_whose_sheet_does_not_name_one_part_is_refused(old, new):
    with pytest.raises(UnreadableDocument, match=r"whose sheet 'Honey' does not name|damaged"):
        parse(_renamed(xlsx_file(), _SHEETS, old, new), XLSX, AMPLE_BYTES)


def test_sheets_are_found_whatever_their_names_and_namespaces():
    """calamine reads the last relation with an id, whatever its namespace and target."""
    name = "Q&A <\"1\"> \u8868 'x'"
    book = openpyxl.Workbook()
    book.active.title = "x"
    book.active["A1"] = DANCE
    content = saved(book)
    content = _renamed(content, _SHEETS, 'name="x"', f"name={quoteattr(name)}")
    assert parse(content, XLSX, AMPLE_BYTES).headings[0].title == name
    link = (
        '<q:Relationship xmlns:q="urn:q" TargetMode="External" Id="rId{}" '
        'Type="urn:x/worksheet" Target="worksheets/sheet{}.xml"/>'
    )
    links = link.format(1, 3) + link.format(3, 3)
    content = _renamed(xlsx_file(), _LINKS, "</Relationships>", f"{links}</Relationships>")
    parsed = parse(content, XLSX, AMPLE_BYTES)
    assert [heading.title for heading in parsed.headings] == ["Dance"]
    assert "kg" in parsed.text
