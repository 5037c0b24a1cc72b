"""Charts and diagrams of Word documents and slides are read as tables and lists."""

from xml.etree import ElementTree

import pptx
import pytest
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from indexer_svc.parsers.docx import parse_docx
from indexer_svc.parsers.office_graphics import chart_text, diagram_items
from indexer_svc.parsers.package import Element
from indexer_svc.parsers.pptx import parse_pptx
from tests.support.documents.format_files import saved, strict
from tests.support.documents.word_files import cell, paragraph, row, run, table, word_file

AMPLE_BYTES = 1 << 20
NAMES = (
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'
    ' xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
    ' xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    ' xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def element(markup: str) -> Element:
    return ElementTree.fromstring(f"<root {NAMES}>{markup}</root>")


def point(point_id: str, text: str, kind: str = "node") -> str:
    words = f"<dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t>"
    return f'<dgm:pt modelId="{point_id}" type="{kind}">{words}</dgm:pt>'


def link(parent: str, child: str, order: object = 0, kind: str = "parOf") -> str:
    return f'<dgm:cxn type="{kind}" srcId="{parent}" destId="{child}" srcOrd="{order}"/>'


DIAGRAM = (
    point("0", "", "doc")
    + point("b", "Check")
    + point("a", "Plan")
    + point("a1", "Ask")
    + point("x", "not shown", "pres")
    + link("0", "b", 1)
    + link("0", "a", 0)
    + link("a", "a1")
    + link("x", "b", 0, "presOf")
)


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (DIAGRAM, [("Plan", 0), ("Ask", 1), ("Check", 0)]),
        (point("0", "", "doc") + point("a", "alone"), []),
        (
            point("0", "", "doc")
            + point("a", "")
            + point("b", "x")
            + link("0", "a")
            + link("a", "b"),
            [("x", 0)],
        ),
        (point("0", "", "doc") + point("a", "x") + link("0", "a") + link("a", "a"), [("x", 0)]),
        (
            point("0", "", "doc") + point("a", "x") + link("0", "a", "y") + link("a", "z"),
            [("x", 0)],
        ),
        ("", []),
    ],
)
def test_the_texts_of_a_diagram_are_a_list(markup, expected):
    assert diagram_items(element(markup)) == expected


def points(*texts: str, format_: str = "General", kind: str = "num") -> str:
    cached = "".join(f'<c:pt idx="{at}"><c:v>{text}</c:v></c:pt>' for at, text in enumerate(texts))
    return f"<c:{kind}Cache><c:formatCode>{format_}</c:formatCode>{cached}</c:{kind}Cache>"


@pytest.mark.parametrize(
    ("format_", "value", "text"),
    [
        ("General", "0.30000000000000004", "0.3"),
        ("General", "12", "12"),
        ("0%", "0.25", "25%"),
        ("0.0%", "0.256", "25.6%"),
        ("m/d/yyyy", "45292", "2024-01-01"),
        ('0.0" d"', "45292", "45292"),
        ("[Red]0", "3", "3"),
        ("Standard", "3.5", "3.5"),
        ("General", "#N/A", "#N/A"),
        ("yyyy", "1e300", "1e300"),
        ("0%", "nan", "nan%"),
    ],
)
def test_a_value_is_written_as_its_format_shows_it(format_, value, text):
    series = f"<c:ser><c:val>{points(value, format_=format_)}</c:val></c:ser>"
    assert chart_text(element(series)).rows[1:] == [["", text]]


def test_categories_of_several_levels_are_joined():
    def level(*cached: tuple[int, str]) -> str:
        inside = "".join(f'<c:pt idx="{at}"><c:v>{text}</c:v></c:pt>' for at, text in cached)
        return f"<c:lvl>{inside}</c:lvl>"

    levels = level((0, "Q1"), (1, "Q2"), (2, "Q1")) + level((0, "2023"), (2, "2024"))
    series = f"<c:ser><c:cat>{levels}</c:cat><c:val>{points('1', '2', '3')}</c:val></c:ser>"
    rows = chart_text(element(series)).rows[1:]
    assert rows == [["2023 Q1", "1"], ["2023 Q2", "2"], ["2024 Q1", "3"]]


def chart_deck(xy: bool = False) -> bytes:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    data = XyChartData() if xy else CategoryChartData()
    kind = XL_CHART_TYPE.XY_SCATTER if xy else XL_CHART_TYPE.COLUMN_CLUSTERED
    if isinstance(data, XyChartData):
        series = data.add_series("Flow")
        series.add_data_point(1, 2.5)
        series.add_data_point(2, 3)
    else:
        data.categories = ["East", "West"]
        data.add_series("2022", (1.5, 2))
        data.add_series("2023", (3, None))
    chart = slide.shapes.add_chart(kind, *[Inches(1)] * 4, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "Sales"
    chart.value_axis.has_title = True
    chart.value_axis.axis_title.text_frame.text = "Million euros"
    return saved(deck)


def test_a_chart_of_a_slide_has_its_titles_and_values():
    text = (
        "# Slide 1\n\nSales\n\nMillion euros\n\n"
        "|  | 2022 | 2023 |\n| --- | --- | --- |\n| East | 1.5 | 3 |\n| West | 2 |  |"
    )
    for content in (chart_deck(), strict(chart_deck())):
        assert parse_pptx(content, AMPLE_BYTES).text == text
    scatter = parse_pptx(chart_deck(xy=True), AMPLE_BYTES).text
    assert scatter.endswith("|  | Flow |\n| --- | --- |\n| 1 | 2.5 |\n| 2 | 3 |")


RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{OFFICE}/chart" Target="charts/chart1.xml"/>'
    f'<Relationship Id="rId2" Type="{OFFICE}/diagramData" Target="diagrams/data1.xml"/>'
    f'<Relationship Id="rId3" Type="{OFFICE}/chart" Target="charts/missing.xml"/>'
    "</Relationships>"
)
CHART = (
    "<c:chart><c:title><a:p><a:r><a:t>Sales</a:t></a:r></a:p></c:title><c:ser><c:tx><c:v>2023</c:v>"
    f"</c:tx><c:cat>{points('East', kind='str')}</c:cat><c:val>{points('3')}</c:val></c:ser>"
    "</c:chart>"
)
FILES = {
    "word/_rels/document.xml.rels": RELATIONS,
    "word/charts/chart1.xml": f"<c:chartSpace {NAMES}>{CHART}</c:chartSpace>",
    "word/diagrams/data1.xml": f"<dgm:dataModel {NAMES}>{DIAGRAM}</dgm:dataModel>",
}
CHART_LINK = f'<w:r><w:drawing><c:chart {NAMES} r:id="{{}}"/></w:drawing></w:r>'
DIAGRAM_LINK = f'<w:r><w:drawing><dgm:relIds {NAMES} r:dm="{{}}"/></w:drawing></w:r>'


def word_text(body: str) -> str:
    return parse_docx(word_file(body, FILES), AMPLE_BYTES).text


def test_the_charts_and_diagrams_of_a_word_document_follow_their_paragraph():
    body = paragraph("before", CHART_LINK.format("rId1")) + paragraph(DIAGRAM_LINK.format("rId2"))
    assert word_text(body + paragraph("after")).split("\n\n") == [
        *("before", "Sales", "|  | 2023 |\n| --- | --- |\n| East | 3 |"),
        *("- Plan\n  - Ask\n- Check", "after"),
    ]


def test_charts_and_diagrams_in_a_cell_are_on_its_line():
    charts = cell(paragraph(CHART_LINK.format("rId1")))
    diagrams = cell(paragraph(DIAGRAM_LINK.format("rId2")))
    lines = word_text(table(row("a", "b"), row(charts, diagrams))).splitlines()
    assert lines[-1] == "| Sales; 2023; East, 3 | Plan; Ask; Check |"


@pytest.mark.parametrize(
    "graphic",
    [
        CHART_LINK.format("rId3"),
        CHART_LINK.format("rId2"),
        CHART_LINK.format("unknown"),
        DIAGRAM_LINK.format("rId1"),
        f"<w:del>{CHART_LINK.format('rId1')}</w:del>",
        CHART_LINK.format("rId1").replace("<w:r>", "<w:r><w:rPr><w:vanish/></w:rPr>"),
    ],
)
def test_graphics_that_are_missing_or_not_shown_are_left_out(graphic):
    assert word_text(paragraph("a", graphic)) == "a"


def test_old_decorated_text_is_read():
    shape = '<w:r><w:pict><v:shape><v:textpath string="Annual report"/></v:shape></w:pict></w:r>'
    assert word_text(paragraph("a", shape, run("b"))) == "a Annual report b"
    kind = '<w:r><w:pict><v:shapetype><v:textpath on="t"/></v:shapetype></w:pict></w:r>'
    assert word_text(paragraph("a", kind, run(" b"))) == "a b"
