"""Parses workbooks: each sheet is a section, and empty rows divide a sheet into tables.

The library calamine reads the stored values of cells. The program that wrote the file has
calculated these values: this module evaluates no formulas and reads no macros. Hidden sheets,
charts, pictures and comments are left out. The text of a cell is its value, not the form in which a
program shows the value: dates and times have the form of ISO 8601, durations are hours, minutes and
seconds, and a percentage is a fraction.
"""

import datetime
from collections.abc import Iterable, Iterator
from io import BytesIO

from python_calamine import CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

from indexer_svc.parsers.office import office_title
from indexer_svc.parsers.package import Package, readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter

_KIND = "a workbook (XLSX)"
_MAIN_PART = "xl/workbook.xml"
_NO_TIME, _HOUR = datetime.timedelta(), datetime.timedelta(hours=1)

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


def parse_xlsx(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a workbook, its sheets as sections, and the title in its properties.

    Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        package = Package(content, _KIND, _MAIN_PART)
        title = office_title(package)
        writer = TextWriter(max_text_bytes)
        workbook = CalamineWorkbook.from_filelike(BytesIO(content))
        for sheet in workbook.sheets_metadata:
            if (sheet.typ, sheet.visible) == (SheetTypeEnum.WorkSheet, SheetVisibleEnum.Visible):
                _write_sheet(workbook, sheet.name, writer)
        return writer.parsed(title)


def _write_sheet(workbook: CalamineWorkbook, name: str, writer: TextWriter) -> None:
    tables = _tables(workbook.get_sheet_by_name(name).iter_rows())
    for number, table in enumerate(tables):
        if number == 0:
            writer.heading(1, name)
        writer.table(table)


def _tables(rows: Iterable[list[_Cell]]) -> Iterator[list[list[str]]]:
    """Yields the tables of a sheet. A table consists of consecutive rows that are not empty."""
    table: list[list[str]] = []
    for row in rows:
        cells = [_cell_text(cell) for cell in row]
        if any(cells):
            table.append(cells)
        elif table:
            yield table
            table = []
    if table:
        yield table


def _cell_text(cell: _Cell) -> str:
    """Returns the value of a cell as text."""
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, float):
        return f"{cell:.15g}"  # The numbers in a workbook have at most 15 digits.
    if isinstance(cell, datetime.timedelta):
        hours, remainder = divmod(abs(cell), _HOUR)
        sign = "-" if cell < _NO_TIME else ""
        return f"{sign}{hours}{str(remainder).removeprefix('0')}"
    return str(cell)
