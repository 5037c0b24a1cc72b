"""Reads the text of charts and diagrams (SmartArt) of Office documents.

A drawing in a document or on a slide refers to a part of the archive with the chart or the data of
the diagram. A chart has a title, titles of its axes, and series of values for categories, which are
written as a table. The texts of a diagram are a tree, which is written as a list.
"""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

from indexer_svc.parsers.office import office_xml, relations
from indexer_svc.parsers.package import Element, Package
from indexer_svc.parsers.table_grid import CELL_SEPARATOR, ROW_SEPARATOR
from indexer_svc.parsers.text_writer import TextWriter

CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_RELATIONS = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
CHART_LINK, DIAGRAM_LINK = f"{CHART}chart", f"{_DIAGRAM}relIds"
GRAPHICS = (CHART_LINK, DIAGRAM_LINK)
"""The elements of a drawing that refer to a chart and to a diagram."""

# A chart with more series or points is a picture of data, which no reader reads value by value.
_MAX_SERIES = 50
_MAX_POINTS = 500
_MAX_ITEMS = 5_000
_MAX_PLACES = 10
_QUOTED = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')
_DATE = re.compile(r"[yd]|m+[/.-]", re.IGNORECASE)
_DIGITS_AFTER_POINT = re.compile(r"\.(0+)")
# Spreadsheets count the days from this one.
_FIRST_DAY = date(1899, 12, 30)
_MAX_DAYS = 2_900_000
_INDEX = re.compile(r"[0-9]{1,6}")


class ChartText(NamedTuple):
    """The text of a chart: its title and the titles of its axes, and a table of its values."""

    titles: list[str]
    rows: list[list[str]]


class DiagramItem(NamedTuple):
    """A text of a diagram. `level` counts from 0."""

    text: str
    level: int


class OfficeGraphics:
    """The charts and diagrams to which the drawings of a part refer."""

    def __init__(self, package: Package, part: str) -> None:
        """Opens the graphics of the part `part`, for example of a slide."""
        self._package = package
        self._relations = relations(package, part)

    def write(self, link: Element, writer: TextWriter) -> None:
        """Writes the chart or the diagram to which an element refers. Raises TooLarge."""
        root = self._root(link)
        if root is None:
            return
        if link.tag == DIAGRAM_LINK:
            for item in diagram_items(root):
                writer.item(item.text, 1 + item.level)
            return
        chart = chart_text(root)
        for title in chart.titles:
            writer.paragraph(title)
        writer.table(chart.rows, header_rows=1 if chart.rows else None)

    def line(self, link: Element) -> str:
        """Returns the texts of a chart or a diagram on one line, for a cell of a table."""
        root = self._root(link)
        if root is None:
            return ""
        if link.tag == DIAGRAM_LINK:
            return ROW_SEPARATOR.join(item.text for item in diagram_items(root))
        chart = chart_text(root)
        rows = [CELL_SEPARATOR.join(filter(None, row)) for row in chart.rows]
        return ROW_SEPARATOR.join((*chart.titles, *rows))

    def _root(self, link: Element) -> Element | None:
        """Returns the root element of the part to which an element refers, or None."""
        name, kind = ("id", "chart") if link.tag == CHART_LINK else ("dm", "diagramData")
        found, part = self._relations.get(link.get(f"{_RELATIONS}{name}", ""), ("", ""))
        if found != kind or part not in self._package:
            return None
        return office_xml(self._package, part)


def chart_text(root: Element) -> ChartText:
    """Returns the text of a chart whose part has the root element `root`."""
    titles = [_title(title) for title in root.iter(f"{CHART}title")]
    series = list(root.iter(f"{CHART}ser"))[:_MAX_SERIES]
    names = [_joined(ser.find(f"{CHART}tx")) for ser in series]
    categories: dict[int, str] = {}
    values: list[dict[int, str]] = []
    for ser in series:
        for name in ("cat", "xVal"):
            for index, text in _points(ser.find(f"{CHART}{name}")).items():
                categories.setdefault(index, text)
        values.append(_points(ser.find(f"{CHART}val")) or _points(ser.find(f"{CHART}yVal")))
    indexes = sorted({*categories, *(index for points in values for index in points)})
    rows = [
        [categories.get(index, ""), *(points.get(index, "") for points in values)]
        for index in indexes[:_MAX_POINTS]
    ]
    if rows:
        rows.insert(0, ["", *names])
    return ChartText([title for title in titles if title], rows)


def diagram_items(root: Element) -> list[DiagramItem]:
    """Returns the texts of a diagram, whose data part has the root element `root`, in order."""
    texts: dict[str, str] = {}
    top = ""
    for point in root.iter(f"{_DIAGRAM}pt"):
        kind, point_id = point.get("type", "node"), point.get("modelId", "")
        if kind == "doc":
            top = point_id
        if kind in ("doc", "node", "asst"):
            texts[point_id] = " ".join(_text(point.find(f"{_DIAGRAM}t")).split())
    children: dict[str, list[tuple[int, str]]] = {}
    for link in root.iter(f"{_DIAGRAM}cxn"):
        if link.get("type", "parOf") == "parOf" and link.get("destId", "") in texts:
            order = link.get("srcOrd", "")
            place = int(order) if _INDEX.fullmatch(order) else 0
            children.setdefault(link.get("srcId", ""), []).append((place, link.get("destId", "")))
    items: list[DiagramItem] = []
    visited = {top}
    pending = [(name, 0) for _, name in sorted(children.get(top, ()), reverse=True)]
    while pending and len(items) < _MAX_ITEMS:
        name, level = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        if texts[name]:
            items.append(DiagramItem(texts[name], level))
        inner = level + bool(texts[name])
        pending += [(child, inner) for _, child in sorted(children.get(name, ()), reverse=True)]
    return items


def _title(title: Element) -> str:
    """Returns a title that is written in the chart or comes from a cell of its data."""
    return " ".join((_text(title) or _joined(title.find(f"{CHART}tx"))).split())


def _text(element: Element | None) -> str:
    """Returns the text of the paragraphs in an element."""
    if element is None:
        return ""
    paragraphs = element.iter(f"{_DRAWING}p")
    return " ".join(
        "".join(run.text or "" for run in paragraph.iter(f"{_DRAWING}t"))
        for paragraph in paragraphs
    )


def _joined(element: Element | None) -> str:
    """Returns the values that a chart keeps of the cells to which an element refers."""
    if element is None:
        return ""
    return " ".join((value.text or "").strip() for value in element.iter(f"{CHART}v"))


def _points(element: Element | None) -> dict[int, str]:
    """Returns the values of a series or of its categories by their index.

    Categories of several levels are joined, the outer level first. A category of an outer level
    has an index only at its first point.
    """
    if element is None:
        return {}
    levels = list(element.iter(f"{CHART}lvl"))
    if not levels:
        format_ = next((code.text or "" for code in element.iter(f"{CHART}formatCode")), "")
        return {index: _shown(text, format_) for index, text in _cached(element)}
    inner, *outer = [dict(_cached(level)) for level in levels]
    joined = dict(inner)
    for level in outer:
        group = ""
        for index in sorted(joined):
            group = level.get(index, group)
            joined[index] = f"{group} {joined[index]}".strip()
    return joined


def _cached(element: Element) -> Iterator[tuple[int, str]]:
    for count, point in enumerate(element.iter(f"{CHART}pt")):
        index = point.get("idx", "")
        if count < _MAX_POINTS and _INDEX.fullmatch(index):
            yield int(index), (point.findtext(f"{CHART}v") or "").strip()


def _shown(text: str, format_: str) -> str:
    """Returns a value as its format shows it: a share as per cent, a day as a date."""
    try:
        value = float(text)
    except ValueError:
        return text
    code = _QUOTED.sub("", format_.partition(";")[0])
    if "%" in code:
        digits = _DIGITS_AFTER_POINT.search(code)
        places = min(len(digits[1]), _MAX_PLACES) if digits else 0
        return f"{value:.{places}%}"
    if _DATE.search(code) and code.lower() != "standard" and 0 < value < _MAX_DAYS:
        return (_FIRST_DAY + timedelta(days=int(value))).isoformat()
    return f"{value:.12g}" if "e" not in text.lower() and "." in text else text
