"""Numbered paragraphs of a slide have the numbers that PowerPoint shows."""

import pptx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.pptx import parse_pptx
from tests.support.documents.format_files import saved, with_part

AMPLE_BYTES = 1 << 20
NUMBER = '<a:buAutoNum type="arabicPeriod"/>'
NONE = "<a:buNone/>"
SIGN = '<a:buChar char="•"/>'
SLIDE = (
    '<p:sld xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    ' xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
    ' xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    ' xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main">'
    "<p:cSld><p:spTree>{}</p:spTree></p:cSld></p:sld>"
)


def slide_deck() -> bytes:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[6])
    return saved(deck)


DECK = slide_deck()


def lines(shapes: str) -> list[str]:
    """Returns the lines of a slide that has the shapes `shapes`, without its heading."""
    content = with_part(DECK, "ppt/slides/slide1.xml", SLIDE.format(shapes).encode())
    return [line for line in parse_pptx(content, AMPLE_BYTES).text.splitlines() if line][1:]


def paragraph(text: str = "x", bullet: str = NUMBER, level: int = 0) -> str:
    run = f"<a:r><a:t>{text}</a:t></a:r>" if text else ""
    return f'<a:p><a:pPr lvl="{level}">{bullet}</a:pPr>{run}</a:p>'


def shape(*paragraphs: str, styles: str = "") -> str:
    style = f"<a:lstStyle>{styles}</a:lstStyle>"
    return f"<p:sp><p:txBody><a:bodyPr/>{style}{''.join(paragraphs)}</p:txBody></p:sp>"


def of_kind(kind: str, start: str = "") -> str:
    begin = f' startAt="{start}"' if start else ""
    return f'<a:buAutoNum type="{kind}"{begin}/>'


@pytest.mark.parametrize(
    ("paragraphs", "expected"),
    [
        ([paragraph(), paragraph()], ["1. x", "2. x"]),
        ([paragraph()], ["1. x"]),
        ([paragraph(), paragraph(level=1), paragraph(level=1), paragraph()],
         ["1. x", "  1. x", "  2. x", "2. x"]),
        ([paragraph(level=1), paragraph(), paragraph(level=1)], ["  1. x", "1. x", "  1. x"]),
        ([paragraph(), paragraph(bullet=NONE), paragraph()], ["1. x", "- x", "1. x"]),
        ([paragraph(), paragraph(bullet=SIGN, level=1), paragraph()], ["1. x", "  - x", "2. x"]),
        ([paragraph(), paragraph(""), paragraph()], ["1. x", "2. x"]),
        ([paragraph(bullet=of_kind("alphaLcParenR", "3"))] * 2, ["c) x", "d) x"]),
        ([paragraph(), paragraph(bullet=of_kind("arabicPeriod", "5"))], ["1. x", "5. x"]),
        ([paragraph(), paragraph(bullet=of_kind("romanUcPeriod"))], ["1. x", "I. x"]),
        ([paragraph(bullet=of_kind("alphaUcParenBoth", "28"))], ["(BB) x"]),
        ([paragraph(bullet=of_kind("arabicPlain"))], ["1 x"]),
        ([paragraph(bullet=of_kind("circleNumDbPlain", "2"))], ["② x"]),
        ([paragraph(bullet=of_kind("ea1ChsPeriod", "12"))], ["十二. x"]),
        ([paragraph(bullet=of_kind("unknown", "x"))], ["1. x"]),
    ],
)  # fmt: skip
def test_a_paragraph_has_its_number(paragraphs, expected):
    assert lines(shape(*paragraphs)) == expected


def test_a_shape_may_number_the_paragraphs_of_a_level():
    styles = f"<a:lvl2pPr>{NUMBER}</a:lvl2pPr>"
    body = [paragraph(bullet="", level=1), paragraph(bullet=NONE, level=1)]
    assert lines(shape(*body, styles=styles)) == ["  1. x", "  - x"]


def test_each_shape_begins_its_numbers_again():
    assert lines(shape(paragraph()) + shape(paragraph())) == ["1. x", "1. x"]


def test_the_paragraphs_of_a_cell_have_their_numbers():
    cells = f"<a:tc><a:txBody>{paragraph('do') * 2}</a:txBody></a:tc><a:tc/>"
    other = f"<a:tc><a:txBody>{paragraph('a', NONE)}</a:txBody></a:tc>" * 2
    table = f"<a:tbl><a:tr>{other}</a:tr><a:tr>{cells}</a:tr></a:tbl>"
    assert lines(f"<p:graphicFrame>{table}</p:graphicFrame>")[-1] == "| 1. do 2. do |  |"


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        ("<m:oMath>{}</m:oMath>", "Mass 1/2 kg"),
        (
            "<m:oMathPara><m:oMath>{}</m:oMath><m:oMath>{}</m:oMath></m:oMathPara>",
            "Mass 1/2 1/2 kg",
        ),
    ],
)
def test_the_equations_of_a_slide_are_text(equation, text):
    runs = [f"<m:r><m:t>{digit}</m:t></m:r>" for digit in "12"]
    fraction = f"<m:f><m:num>{runs[0]}</m:num><m:den>{runs[1]}</m:den></m:f>"
    equation = f"<a14:m>{equation.replace('{}', fraction)}</a14:m>"
    before, after = "<a:r><a:t>Mass </a:t></a:r>", "<a:r><a:t> kg</a:t></a:r>"
    assert lines(shape(f"<a:p>{before}{equation}{after}</a:p>")) == [text]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_numbers_of_a_level_ascend_until_a_level_above_has_a_paragraph(levels):
    running = [0] * 4
    expected = []
    for level in levels:
        running[level] += 1
        running[level + 1 :] = [0] * (3 - level)
        expected.append(f"{'  ' * level}{running[level]}. x")
    assert lines(shape(*(paragraph(level=level) for level in levels))) == expected
