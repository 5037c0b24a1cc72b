"""Parses workbooks (XLSX, XLS, ODS): each sheet is a section, and each row is a page.

The library calamine reads the values of cells that the program which wrote the file has calculated.
It reads no formulas and no macros. Hidden sheets, charts, pictures and comments are left out.
`table_runs` divides the rows of a sheet into tables.

A cell is read as its value: dates and times have the form of ISO 8601, durations are hours, minutes
and seconds, numbers have all their digits. Only percentages of XLSX are written as they are shown,
with a percent sign; in the other formats they are fractions, because calamine does not know the
formats of cells. Superscripts have signs only in XLSX, for the same reason. A value that is an
error is empty.

A cell that spans several rows is repeated in each of them, because each row must be understood
without the others.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO

from python_calamine import (
    CalamineError,
    CalamineWorkbook,
    SheetMetadata,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from hrag.values.errors import UnreadableDocument
from hrag.values.ids import quoted
from hrag.values.read_report import PageUnit
from indexer_svc import ole_directory
from indexer_svc.parsers.odf.properties import check_encryption, odf_title
from indexer_svc.parsers.office import office_title
from indexer_svc.parsers.package import Package, readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.table_runs import row_runs
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.parsers.xls_sheets import check_sheets
from indexer_svc.parsers.xlsx_percentages import CellPosition, XlsxPercentages
from indexer_svc.parsers.xlsx_rich_text import with_raised_signs
from indexer_svc.parsers.xlsx_sheets import sheet_parts

_XLSX, _XLS, _ODS = "a workbook (XLSX)", "a workbook (XLS)", "a workbook (ODS)"
_XLSX_MAIN_PART, _ODS_MAIN_PART = "xl/workbook.xml", "content.xml"
_NO_TIME, _HOUR = datetime.timedelta(), datetime.timedelta(hours=1)
# A longer text that spans several rows is a note, not a label of the rows, and is not repeated.
_MAX_REPEATED_CHARS = 200

_Cell = (
    int
    | float
    | str
    | bool
    | datetime.time
    | datetime.date
    | datetime.datetime
    | datetime.timedelta
)
_CellRange = tuple[CellPosition, CellPosition]
_PercentagesIn = Callable[[str], Iterator[CellPosition]]
"""Returns the positions of the percentages in a sheet, in the order of the rows."""


def parse_xlsx(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a workbook, its sheets as sections, and the title in its properties.

    The rows of the sheets are pages, whose numbers begin at 1 in each sheet. Raises
    UnreadableDocument or TooLarge.
    """
    with readable(_XLSX):
        package = Package(content, _XLSX, _XLSX_MAIN_PART)
        title = office_title(package)
        parts = sheet_parts(package)
        workbook = _open(with_raised_signs(package) or content, _XLSX)
        names = list(_names_with_new_parts(_shown_names(workbook), parts))
        percentages = XlsxPercentages(package, parts)
        return _parse(workbook, names, title, max_text_bytes, percentages.in_sheet)


def parse_xls(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a workbook of Excel 97 to 2003, like `parse_xlsx`, without a title."""
    with readable(_XLS):
        if not content.startswith(ole_directory.MAGIC):
            raise UnreadableDocument(
                f"content is not {_XLS}: it is not an OLE file", field="content"
            )
        check_sheets(content)
        workbook = _open(content, _XLS)
        return _parse(workbook, _shown_names(workbook), "", max_text_bytes)


def parse_ods(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of an OpenDocument spreadsheet, like `parse_xlsx`."""
    with readable(_ODS):
        package = Package(content, _ODS, _ODS_MAIN_PART)
        check_encryption(package, _ODS)
        workbook = _open(content, _ODS)
        return _parse(workbook, _shown_names(workbook), odf_title(package), max_text_bytes)


def _open(content: bytes, kind: str) -> CalamineWorkbook:
    """Opens a workbook. Raises UnreadableDocument; calamine does not say what the reason is."""
    try:
        return CalamineWorkbook.from_filelike(BytesIO(content))
    except CalamineError:
        raise UnreadableDocument(
            f"content is not {kind}, or it is damaged or encrypted; open and save it again, "
            "without a password",
            field="content",
        ) from None


def _parse(
    workbook: CalamineWorkbook,
    names: Iterable[str],
    title: str,
    max_text_bytes: int,
    percentages_in: _PercentagesIn = lambda _name: iter(()),
) -> ParsedFile:
    writer = TextWriter(max_text_bytes)
    for name in names:
        _write_sheet(workbook, name, writer, percentages_in)
    return writer.parsed(title, page_unit=PageUnit.ROW)


def _shown_names(workbook: CalamineWorkbook) -> Iterable[str]:
    """Returns the names of the sheets that are shown, in their order, each once."""
    return dict.fromkeys(sheet.name for sheet in workbook.sheets_metadata if _is_shown(sheet))


def _names_with_new_parts(names: Iterable[str], parts: Mapping[str, str]) -> Iterator[str]:
    """Yields the names of the sheets whose part no earlier sheet has.

    A small file could otherwise list a large part thousands of times. No program writes such a
    file. Raises UnreadableDocument if a sheet names no part, or more than one.
    """
    seen: set[str] = set()
    for name in names:
        if name not in parts:
            raise UnreadableDocument(
                f"content is {_XLSX} whose sheet {quoted(name)} does not name exactly one part",
                field="content",
            )
        part = parts[name].lower()  # calamine does not distinguish upper and lower case.
        if part not in seen:
            seen.add(part)
            yield name


def _is_shown(sheet: SheetMetadata) -> bool:
    return (sheet.typ, sheet.visible) == (SheetTypeEnum.WorkSheet, SheetVisibleEnum.Visible)


def _write_sheet(
    workbook: CalamineWorkbook, name: str, writer: TextWriter, percentages_in: _PercentagesIn
) -> None:
    sheet = workbook.get_sheet_by_name(name)
    first_column = sheet.start[1] if sheet.start else 0
    rows = _cell_texts(sheet.iter_rows(), first_column, percentages_in(name))
    runs = row_runs(_repeat_down(rows, first_column, sheet.merged_cell_ranges or ()))
    for index, run in enumerate(runs):
        if index == 0:
            writer.page(run.numbers[0])
            writer.heading(1, name)
        writer.table(run.rows, row_numbers=run.numbers)


def _cell_texts(
    rows: Iterable[list[_Cell]], first_column: int, percentages: Iterator[CellPosition]
) -> Iterator[list[str]]:
    """Yields the texts of the cells of each row. `percentages` are in order of the rows."""
    position = next(percentages, None)
    for at, row in enumerate(rows):
        texts = [_cell_text(cell) for cell in row]
        while position is not None and position[0] <= at:
            column = position[1] - first_column
            if position[0] == at and 0 <= column < len(row):
                texts[column] = _percentage(row[column]) or texts[column]
            position = next(percentages, None)
        yield texts


def _repeat_down(
    rows: Iterable[list[str]], first_column: int, merged: Iterable[_CellRange]
) -> Iterator[list[str]]:
    """Yields the rows, with the text of each cell that spans several rows in all of them."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for (first, column), (last, _) in merged:
        if last > first:
            spans.setdefault(first, []).append((column - first_column, last))
    # For each column whose cell spans further rows: the last of these rows, and the text.
    covering: dict[int, tuple[int, str]] = {}
    for at, row in enumerate(rows):
        for column, (last, text) in [*covering.items()]:
            if at > last:
                del covering[column]
            else:
                row[column] = row[column] or text
        for column, last in spans.get(at, ()):
            if 0 <= column < len(row) and 0 < len(row[column]) <= _MAX_REPEATED_CHARS:
                covering[column] = last, row[column]
        yield row


def _percentage(cell: _Cell) -> str:
    """Returns a number as a percentage: 12.5% for 0.125. Returns an empty text for other values."""
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return ""
    return f"{cell * 100:.13g}%"


def _cell_text(cell: _Cell) -> str:
    """Returns the text of a cell's value."""
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, float):
        return f"{cell:.15g}"  # A workbook stores at most 15 digits.
    if isinstance(cell, datetime.timedelta):
        hours, remainder = divmod(abs(cell), _HOUR)
        sign = "-" if cell < _NO_TIME else ""
        return f"{sign}{hours}{str(remainder).removeprefix('0')}"
    return str(cell)
