"""Finds the cells of a workbook (XLSX) that are shown as percentages.

A cell has the number of a style, a style has the number of a number format, and the format of a
percentage contains a percent sign outside of quotation marks. The XML of a sheet is not parsed: it
is searched for the tags of cells whose style is one of those. All programs that were examined
(Excel, LibreOffice, openpyxl, XlsxWriter) write the position of a cell and then its style. A tag in
another form is not found; its percentage then stays a fraction.
"""

import re
from collections.abc import Iterator, Mapping

from indexer_svc.parsers.office import office_xml, related_part
from indexer_svc.parsers.package import Package
from indexer_svc.parsers.xlsx_sheets import WORKBOOK

_SHEETS = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_PERCENT_FORMATS = frozenset(("9", "10"))  # `0%` and `0.00%` have these numbers in every workbook.
# Parts of a format that are not shown as they are: quoted text, and characters after a backslash.
_QUOTED = re.compile(r'"[^"]*"|\\.')
_CELL_TAG = re.compile(rb'<(?:\w+:)?c r="([A-Z]{1,3})([0-9]{1,7})"(?: [^<>]*?)? s="([0-9]{1,6})"')

CellPosition = tuple[int, int]
"""The indices of a row and a column, from 0."""


class XlsxPercentages:
    """The cells of a workbook that are shown as percentages."""

    def __init__(self, package: Package, parts: Mapping[str, str]) -> None:
        """Reads the styles. Raises the errors of `Package.xml`.

        `parts` has the name of the part of each sheet, by the name of the sheet.
        """
        self._package = package
        self._styles = frozenset(_percent_styles(package))
        self._parts = parts if self._styles else {}

    def in_sheet(self, name: str) -> Iterator[CellPosition]:
        """Yields the positions of the percentages in a sheet, in the order of the file.

        Raises TooLarge.
        """
        part = self._parts.get(name, "")
        if part in self._package:
            for block in self._package.blocks(part, end=b"<"):
                for match in _CELL_TAG.finditer(block):
                    if match[3] in self._styles:
                        yield int(match[2]) - 1, _column(match[1])


def _percent_styles(package: Package) -> Iterator[bytes]:
    """Yields the number of each style whose format is that of a percentage."""
    part = related_part(package, WORKBOOK, "styles", "xl/styles.xml")
    if part not in package:
        return
    root = office_xml(package, part)
    formats = {
        element.get("numFmtId")
        for element in root.iterfind(f"{_SHEETS}numFmts/{_SHEETS}numFmt")
        if "%" in _QUOTED.sub("", element.get("formatCode", ""))
    }
    formats |= _PERCENT_FORMATS
    for at, style in enumerate(root.iterfind(f"{_SHEETS}cellXfs/{_SHEETS}xf")):
        if style.get("numFmtId") in formats:
            yield str(at).encode()


def _column(letters: bytes) -> int:
    """Returns the index of a column from its letters: 0 for A, 26 for AA."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - ord("A") + 1
    return number - 1
