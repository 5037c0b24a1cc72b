"""The content of a page has its runs, ruled lines and pictures, in the frame of its text."""

from contextlib import closing

import pypdfium2 as pdfium
import pytest

from indexer_svc.parsers.pdf import characters
from indexer_svc.parsers.pdf.characters import page_content
from tests.support.documents.pdfs import pdf_of_streams, shown_at


def content_of(stream: bytes, page_entries: bytes = b""):
    with closing(pdfium.PdfDocument(pdf_of_streams([stream], page_entries))) as document:
        return page_content(document[0])


def test_a_run_has_text_place_size_and_font():
    [run] = content_of(shown_at(50, 700, "two words", font="F2", size=12)).runs
    assert run.text == "two words"
    assert (round(run.starts[0]), round(run.baseline), run.size) == (50, 142, 12)
    assert run.top < run.baseline < run.bottom
    assert run.font.is_bold
    assert not run.font.is_fixed
    assert run.ends[0] == pytest.approx(run.starts[1], abs=0.1)


@pytest.mark.parametrize(
    ("name", "is_bold"),
    [
        (b"LinLibertineTB", True),
        (b"LinBiolinumOBI", True),
        (b"NimbusRom-Medi", True),
        (b"LinLibertineTI", False),
        (b"Text-MediumCon", False),
    ],
)
def test_the_name_of_a_font_says_whether_it_is_bold(name, is_bold):
    bold = b"Helvetica-Bold"
    assert len(name) == len(bold)  # The places of the objects in the file stay the same.
    pdf = pdf_of_streams([shown_at(50, 700, "words", font="F2")]).replace(bold, name)
    with closing(pdfium.PdfDocument(pdf)) as document:
        [run] = page_content(document[0]).runs
    assert (run.font.name.encode(), run.font.is_bold) == (name, is_bold)


@pytest.mark.parametrize(
    ("name", "is_fixed"),
    [
        (b"NimbusMonL-Reg", True),
        (b"t1xtt-Regulara", True),
        (b"t1xbtt-Regular", True),
        (b"NimbusRomNo9L-", False),
    ],
)
def test_the_name_of_a_font_says_whether_its_characters_are_equally_wide(name, is_fixed):
    bold = b"Helvetica-Bold"
    assert len(name) == len(bold)
    pdf = pdf_of_streams([shown_at(50, 700, "words", font="F2")]).replace(bold, name)
    with closing(pdfium.PdfDocument(pdf)) as document:
        [run] = page_content(document[0]).runs
    assert run.font.is_fixed == is_fixed


def test_each_object_is_a_run():
    stream = shown_at(50, 700, "one", font="F3") + shown_at(90, 700, "two")
    runs = content_of(stream).runs
    assert [run.text for run in runs] == ["one", "two"]
    assert [run.font.is_fixed for run in runs] == [True, False]


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_turned_page_is_read_upright(rotation):
    content = content_of(shown_at(50, 700, "turned"), b"/Rotate %d" % rotation)
    [run] = content.runs
    assert (run.angle, round(run.starts[0]), round(run.baseline)) == (0, 50, 142)
    assert (content.width, content.height) == (595, 842)


@pytest.mark.parametrize(
    ("matrix", "angle"), [(b"0 1 -1 0", 90), (b"-1 0 0 -1", 180), (b"0 -1 1 0", 270)]
)
def test_sideways_text_is_upright_in_its_own_frame(matrix, angle):
    sideways = b"BT /F1 10 Tf %s 300 400 Tm (side) Tj ET\n" % matrix
    runs = content_of(shown_at(50, 700, "most of the text") + sideways).runs
    assert [(run.text, run.angle) for run in runs] == [("most of the text", 0), ("side", angle)]
    assert list(runs[1].starts) == sorted(runs[1].starts)


def test_a_page_of_sideways_text_is_turned():
    content = content_of(b"BT /F1 10 Tf 0 1 -1 0 300 100 Tm (all sideways) Tj ET")
    [run] = content.runs
    assert run.angle == 0
    assert (content.width, content.height) == (842, 595)
    assert (round(run.starts[0]), round(run.baseline)) == (100, 300)


def slanted(text, x=100, y=300):
    return b"BT /F1 20 Tf 0.7 0.7 -0.7 0.7 %d %d Tm (%s) Tj ET\n" % (x, y, text)


def test_slanted_text_is_apart_from_the_runs():
    content = content_of(slanted(b"DRAFT") + shown_at(50, 700, "text"))
    assert [run.text for run in content.runs] == ["text"]
    assert content.slanted_texts == ["DRAFT"]
    assert content_of(shown_at(50, 700, "text")).slanted_texts == []


def test_objects_that_draw_one_slanted_text_one_after_the_other_are_one_text():
    stream = slanted(b"do not ") + slanted(b"copy", 150, 350) + shown_at(50, 700, "text")
    [text] = content_of(stream + slanted(b"May", 300, 100)).slanted_texts[:1]
    assert " ".join(text.split()) == "do not copy"


def test_lines_and_rectangles_are_rules():
    stream = b"50 700 m 250 700 l S 50 600 100 50 re S 300 650 0.5 80 re f"
    rules = {tuple(map(round, rule)) for rule in content_of(stream).rules}
    assert {
        (49, 142, 251, 142),
        (50, 192, 150, 192),
        (50, 242, 150, 242),
        (50, 192, 50, 242),
        (150, 192, 150, 242),
        (300, 112, 300, 192),
    } == rules


def test_the_sides_of_a_scaled_rectangle_are_where_it_is_drawn():
    plain = content_of(b"75 300 150 75 re S").rules
    scaled = content_of(b"q .75 0 0 .75 15 0 cm 80 400 200 100 re S Q").rules
    assert sorted(map(tuple, scaled)) == sorted(map(tuple, plain))


def test_shapes_that_are_not_drawn_are_no_rules():
    assert content_of(b"50 600 100 50 re W n").rules == []


def test_a_page_of_many_shapes_has_pictures():
    assert content_of(b"10 10 50 50 re f " * 60).has_pictures
    assert not content_of(b"10 10 50 50 re f").has_pictures


def test_characters_without_a_meaning_are_marked():
    [run] = content_of(b"BT /F4 12 Tf 50 700 Td <00410042> Tj ET").runs
    assert run.text == "\ufffd\ufffd"


def test_of_a_page_with_very_many_characters_only_the_text_is_read(monkeypatch):
    monkeypatch.setattr(characters, "MAX_PAGE_CHARS", 5)
    content = content_of(shown_at(50, 700, "one line") + shown_at(90, 500, "another"))
    assert [(run.text, run.starts[0]) for run in content.runs] == [("one line", 0), ("another", 0)]


def test_an_empty_page():
    content = content_of(b"")
    assert (content.runs, content.rules, content.has_pictures) == ([], [], False)
