"""Recognised lines become content that the layout divides into headings, paragraphs and tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.pdf.layout.document_layout import DocumentLayout
from indexer_svc.parsers.pdf.page_content import FormValue, PageContent
from indexer_svc.parsers.pdf.pdf_file import write_page
from indexer_svc.parsers.pdf.recognised_content import recognised_content
from indexer_svc.parsers.recognition import RecognisedLine, RecognisedPage
from indexer_svc.parsers.text_writer import TextWriter

PROSE = (
    "The bees of the valley dance in the morning and in the",
    "evening, when the sun is low. They fly to the river and",
    "return with pollen on their legs.",
)
TABLE = (("Year", "Hives", "Honey"), ("2020", "12", "240.9"), ("2021", "15", "180.6"))


def line(text: str, left: float, top: float, height: float = 27) -> RecognisedLine:
    return RecognisedLine(text, left, top, left + 11 * len(text) * height / 27, top + height)


def page(*lines: RecognisedLine) -> RecognisedPage:
    return RecognisedPage(lines, 1240, 1754)


def laid_out(recognised: RecognisedPage) -> ParsedFile:
    layout = DocumentLayout(1)
    layout.add(recognised_content(recognised))
    writer = TextWriter(1 << 20)
    for blocks in layout.pages():
        write_page(writer, blocks, is_recognised=True)
    return writer.parsed()


def prose(top: float) -> list[RecognisedLine]:
    """Returns lines whose boxes are of slightly different heights, as recognisers find them."""
    return [
        line(text, 100, top + 32 * index, 25 + 3 * index % 5) for index, text in enumerate(PROSE)
    ]


def test_lines_of_a_paragraph_are_joined_and_a_larger_line_is_a_heading():
    parsed = laid_out(page(line("Annual report on bees", 100, 100, 54), *prose(200)))
    assert parsed.text == f"# Annual report on bees\n\n{' '.join(PROSE)}"
    assert [heading.title for heading in parsed.headings] == ["Annual report on bees"]


def test_boxes_in_rows_and_columns_are_a_table():
    cells = [
        line(cell, 100 + 300 * column, 500 + 34 * row + column)
        for row, cells in enumerate(TABLE)
        for column, cell in enumerate(cells)
    ]
    parsed = laid_out(page(*prose(200), *cells))
    rows = ["| Year | Hives | Honey |", "| --- | --- | --- |", "| 2020 | 12 | 240.9 |"]
    assert "\n".join(rows) in parsed.text
    assert parsed.report.table_count == 1


def test_two_columns_are_read_one_after_the_other():
    left = [
        line(f"Left {word} of the first column here.", 100, 100 + 32 * word) for word in range(9)
    ]
    right = [
        line(f"Right {word} of the other column here.", 640, 101 + 32 * word) for word in range(9)
    ]
    text = laid_out(page(*(part for pair in zip(left, right, strict=True) for part in pair))).text
    assert text.index("Left 8") < text.index("Right 0")


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_text_that_is_sideways_on_the_page_comes_last(turn):
    box = (1150, 200, 1180, 900) if turn != 180 else (300, 1600, 900, 1630)
    side = RecognisedLine("published every year", *box, turn)
    assert laid_out(page(side, *prose(200))).text.endswith("published every year")


def test_the_values_of_a_form_on_a_scan_stand_beside_their_labels():
    labels = page(*prose(200), line("Name", 100, 500), line("Town", 100, 600))
    fields = [
        FormValue("Ada Sample", 100, 239, 300, 252),
        FormValue("Overthere", 100, 287, 300, 300),
    ]
    content = recognised_content(labels, PageContent(595.2, 842, form_values=fields))
    layout = DocumentLayout(1)
    layout.add(content)
    [blocks] = layout.pages()
    assert [block.text for block in blocks.blocks[1:]] == ["Name Ada Sample", "Town Overthere"]


def test_a_page_without_lines_has_no_text():
    content = recognised_content(page())
    assert (content.runs, content.has_pictures) == ([], False)


@given(
    st.lists(
        st.builds(
            RecognisedLine,
            st.from_regex(r"[a-z]{1,9}( [a-z]{1,9}){0,3}", fullmatch=True),
            st.floats(0, 1100),
            st.floats(0, 1700),
            st.floats(1100, 1240),
            st.floats(1700, 1754),
            st.sampled_from([0, 90, 180, 270]),
        ),
        max_size=12,
    )
)
def test_every_line_becomes_a_run_inside_the_page(lines):
    recognised = page(*lines)
    content = recognised_content(recognised)
    assert [run.text for run in content.runs] == [line.text for line in lines]
    for run in content.runs:
        sideways = run.angle in (90, 270)
        width = content.height if sideways else content.width
        height = content.width if sideways else content.height
        assert len(run.starts) == len(run.ends) == len(run.text)
        assert -1e-6 <= run.starts[0] <= run.ends[-1] <= width + 1e-6
        assert -1e-6 <= run.top <= run.bottom <= height + 1e-6
        assert run.size > 0
