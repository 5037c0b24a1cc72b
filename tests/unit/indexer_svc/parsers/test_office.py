"""Word documents, presentations and workbooks become text with sections and pages."""

from collections.abc import Sequence
from io import BytesIO
from random import Random
from zipfile import ZipFile

import docx
import pptx
import pytest
from pptx.util import Inches

from hrag.errors import UnreadableDocument
from hrag.types import Document
from hrag.values.formats import DOCX, PPTX, XLSX
from indexer_svc.mime_types import resolve_mime_type
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.format_files import (
    DANCE,
    HONEY,
    TITLE,
    archive,
    docx_file,
    pptx_file,
    saved,
    strict,
    with_part,
    xlsx_file,
)

AMPLE_BYTES = 1 << 20
TABLE = "| Flower | Nectar |\n| --- | --- |\n| Clover | 4 mg |\n| Linden | 7 mg |"


def titles(parsed: ParsedFile) -> list[tuple[int, str]]:
    return [(heading.depth, heading.title) for heading in parsed.headings]


def test_a_word_document_keeps_headings_lists_and_tables():
    parsed = parse(docx_file(), DOCX, AMPLE_BYTES)
    assert parsed.text == (
        f"# Dance\n\n{DANCE} It is round..\n\n- north\n- south\n\n## Honey\n\n{HONEY}\n\n{TABLE}"
    )
    assert titles(parsed) == [(1, "Dance"), (2, "Honey")]
    assert (parsed.title, parsed.pages) == (TITLE, ())


def test_hidden_text_of_a_part_in_utf_16_is_left_out():
    with ZipFile(BytesIO(docx_file())) as zipped:
        part = zipped.read(MAIN_PARTS[DOCX]).decode().replace("encoding='UTF-8'", "")
    content = with_part(docx_file(), MAIN_PARTS[DOCX], part.encode("utf-16"))
    assert parse(content, DOCX, AMPLE_BYTES) == parse(docx_file(), DOCX, AMPLE_BYTES)


def test_a_word_document_may_have_numbered_parts():
    with ZipFile(BytesIO(docx_file())) as zipped:
        files = {name: zipped.read(name) for name in zipped.namelist()}
    for name in ("_rels/.rels", "[Content_Types].xml"):
        files[name] = files[name].replace(b"document.xml", b"document2.xml")
    renamed = {name.replace("document.xml", "document2.xml"): files[name] for name in files}
    content = archive(renamed)
    assert parse(content, DOCX, AMPLE_BYTES) == parse(docx_file(), DOCX, AMPLE_BYTES)
    assert resolve_mime_type(Document(content)) == DOCX


def with_main_part(content: bytes, part: bytes) -> bytes:
    """Returns a Word document whose relations name `word/main.dat` as the main part.

    `part` is the content of this part.
    """
    with ZipFile(BytesIO(content)) as zipped:
        relations = zipped.read("_rels/.rels").replace(b"word/document.xml", b"word/main.dat")
        part_relations = zipped.read("word/_rels/document.xml.rels")
    content = with_part(content, "_rels/.rels", relations)
    return with_part(
        with_part(content, "word/main.dat", part), "word/_rels/main.dat.rels", part_relations
    )


def test_the_relations_of_a_word_document_name_its_main_part():
    with ZipFile(BytesIO(docx_file())) as zipped:
        part = zipped.read(MAIN_PARTS[DOCX])
    decoy = docx.Document()
    decoy.add_paragraph("decoy")
    parsed = parse(with_main_part(saved(decoy), part), DOCX, AMPLE_BYTES)
    assert "decoy" not in parsed.text
    assert "secret" not in parsed.text
    assert DANCE in parsed.text


def test_a_main_part_of_any_name_that_declares_entities_is_refused():
    entities = b'<!DOCTYPE a [<!ENTITY b "boom">]><a>&b;</a>'
    with pytest.raises(UnreadableDocument, match=r"declares XML entities in its part word/main"):
        parse(with_main_part(docx_file(), entities), DOCX, AMPLE_BYTES)


def test_parts_without_text_are_not_unpacked():
    picture = Random(0).randbytes(999)
    content = with_part(docx_file(), "word/media/image1.png", picture)
    assert picture in content
    damaged = content.replace(picture, bytes(999))
    assert parse(damaged, DOCX, AMPLE_BYTES) == parse(docx_file(), DOCX, AMPLE_BYTES)


OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
NAMES = f'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:r="{OFFICE}"'
LINK = '<w:p><w:hyperlink r:id="rId1"><w:r><w:t>{}</w:t></w:r></w:hyperlink></w:p>'
NOTE = '<w:p><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'


def relations_to(**targets: str) -> str:
    """Returns the XML of relations with the ids `rId1`, `rId2` and so on.

    `targets` has the target of each relation by the last word of the relation's type.
    """
    relations = "".join(
        f'<Relationship Id="rId{number}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets.items(), start=1)
    )
    namespace = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{namespace}">{relations}</Relationships>'


def test_notes_in_a_part_of_any_name_are_read_with_their_links():
    body = f"<w:body>{LINK.format('shown')}{NOTE}</w:body>"
    note = f'<w:footnote w:id="2">{LINK.format("below")}</w:footnote>'
    content = archive(
        {
            "word/document.xml": f"<w:document {NAMES}>{body}</w:document>",
            "word/_rels/document.xml.rels": relations_to(hyperlink="a:b", footnotes="notes.dat"),
            "word/notes.dat": f"<w:footnotes {NAMES}>{note}</w:footnotes>",
            "word/_rels/notes.dat.rels": relations_to(hyperlink="a:b"),
        }
    )
    text = parse(content, DOCX, AMPLE_BYTES).text
    assert text.startswith("shown")
    assert "[1] below" in text


@pytest.mark.parametrize(
    ("property_title", "paragraphs", "title"),
    [
        ("Own", [("Shown", "Title")], "Own"),
        ("Microsoft Word - a.doc", [("Chapter", "Heading 1"), ("Shown", "Title")], "Shown"),
        ("", [("text", "Normal"), ("Chapter", "Heading 1")], "Chapter"),
        ("", [("text", "Normal")], ""),
    ],
)
def test_the_title_of_a_word_document_comes_from_its_properties_or_its_styles(
    property_title, paragraphs, title
):
    document = docx.Document()
    document.core_properties.title = property_title
    for text, style in paragraphs:
        document.add_paragraph(text, style=style)
    assert parse(saved(document), DOCX, AMPLE_BYTES).title == title


def test_a_presentation_has_its_slides_as_pages_and_sections():
    parsed = parse(pptx_file(), PPTX, AMPLE_BYTES)
    first, hidden, last = (parsed.text[page.char_start : page.char_end] for page in parsed.pages)
    assert first == f"# Dance\n\n- {DANCE}\n  - It is round.\n\nNotes: Show the film."
    assert hidden == ""
    assert last == f"# Slide 3\n\n{HONEY}\n\n{TABLE}"
    assert titles(parsed) == [(1, "Dance"), (1, "Slide 3")]
    assert parsed.headings[1].char_start == parsed.pages[2].char_start
    assert parsed.title == TITLE


def test_a_presentation_may_have_the_strict_format():
    assert parse(strict(pptx_file()), PPTX, AMPLE_BYTES) == parse(pptx_file(), PPTX, AMPLE_BYTES)


def test_a_presentation_without_a_title_has_the_title_of_its_first_slide():
    deck = pptx.Presentation()
    deck.core_properties.title = "PowerPoint Presentation"
    deck.slides.add_slide(deck.slide_layouts[0]).shapes.title.text = "Bees\vand honey"
    deck.slides.add_slide(deck.slide_layouts[6])
    parsed = parse(saved(deck), PPTX, AMPLE_BYTES)
    assert (parsed.title, parsed.text) == ("Bees and honey", "# Bees and honey")
    assert len(parsed.pages) == 2


def table_blocks(
    rows: Sequence[Sequence[str]], *merged: tuple[int, int, int, int], first_row: bool = True
) -> list[str]:
    """Returns the blocks of the text of a slide that has one table.

    `merged` has the first and the last row and column of each merged range.
    """
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    frame = slide.shapes.add_table(len(rows), len(rows[0]), *[Inches(1)] * 4)
    frame.table.first_row = first_row
    for index, row in enumerate(rows):
        for column, text in enumerate(row):
            frame.table.cell(index, column).text = text
    for top, bottom, left, right in merged:
        frame.table.cell(top, left).merge(frame.table.cell(bottom, right))
    return parse(saved(deck), PPTX, AMPLE_BYTES).text.split("\n\n")[1:]


def test_a_cell_of_a_slide_that_spans_rows_is_repeated_in_each_of_them():
    rows = [("Region", "Sales"), ("Europe", "1"), ("", "2"), ("Asia", "3")]
    (table,) = table_blocks(rows, (1, 2, 0, 0))
    assert table.splitlines()[2:] == ["| Europe | 1 |", "| Europe | 2 |", "| Asia | 3 |"]


def test_the_marked_first_row_of_a_table_on_a_slide_is_its_header():
    rows = [("1", "2"), *((f"text {n}", "more text") for n in range(60))]
    assert table_blocks(rows)[0] == "1: text 0\n2: more text"
    assert table_blocks(rows, first_row=False)[1] == "text 0 | more text"


def test_a_header_of_two_rows_on_a_slide_gives_each_column_one_name():
    rows = [("Product", "2023", ""), ("", "Revenue", "Cost")]
    rows += [(f"Pump {n}", "text", str(n)) for n in range(60)]
    blocks = table_blocks(rows, (0, 1, 0, 0), (0, 0, 1, 2))
    assert blocks[7] == "Product: Pump 7\n2023 Revenue: text\n2023 Cost: 7"


ALTERNATIVE = "<mc:AlternateContent>{}</mc:AlternateContent>"
SHAPE = "<p:sp><p:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:txBody></p:sp>"
SLIDE = (
    '<p:sld xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    ' xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
    ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
    "<p:cSld><p:spTree>{}</p:spTree></p:cSld></p:sld>"
)


@pytest.mark.parametrize(
    "shapes",
    [
        ALTERNATIVE.format("<mc:Choice>{new}</mc:Choice><mc:Fallback>{old}</mc:Fallback>"),
        '<p:grpSp><p:nvGrpSpPr><p:cNvPr hidden="true"/></p:nvGrpSpPr>{old}</p:grpSp>{new}',
        '<p:grpSp><p:sp><p:nvSpPr><p:cNvPr hidden="1"/></p:nvSpPr>{old}</p:sp>{new}</p:grpSp>',
    ],
    ids=["of older programs", "in a hidden group", "hidden in a group"],
)
def test_shapes_that_a_slide_does_not_show_are_left_out(shapes):
    slide = SLIDE.format(shapes.format(new=SHAPE.format("new"), old=SHAPE.format("old")))
    content = with_part(pptx_file(), "ppt/slides/slide2.xml", slide.encode())
    parsed = parse(content, PPTX, AMPLE_BYTES)
    page = parsed.pages[1]
    assert parsed.text[page.char_start : page.char_end] == "# Slide 2\n\nnew"


@pytest.mark.parametrize(
    ("baseline", "text"),
    [("30000", "10^6 cells"), ("30%", "10^6 cells"), ("0", "106 cells"), ("-25000", "10_6 cells")],
)
def test_raised_and_lowered_runs_of_a_presentation_get_a_sign(baseline, text):
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    for run_text in ("10", "6", " cells"):
        paragraph.add_run().text = run_text
    paragraph.runs[1].font._element.set("baseline", baseline)
    assert parse(saved(deck), PPTX, AMPLE_BYTES).text == f"# Slide 1\n\n{text}"


FILES = {DOCX: docx_file, PPTX: pptx_file, XLSX: xlsx_file}
MAIN_PARTS = {
    DOCX: "word/document.xml",
    PPTX: "ppt/presentation.xml",
    XLSX: "xl/workbook.xml",
}


@pytest.mark.parametrize("mime_type", FILES)
def test_a_file_of_one_format_with_the_type_of_another_is_refused(mime_type):
    other = XLSX if mime_type != XLSX else DOCX
    with pytest.raises(UnreadableDocument, match=f"an archive without {MAIN_PARTS[mime_type]}"):
        parse(FILES[other](), mime_type, AMPLE_BYTES)


@pytest.mark.parametrize("mime_type", FILES)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a .* damaged or cut off: File is not a zip file"),
        (b"plain text", "damaged or cut off"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "encrypted, or of an older format"),
    ],
    ids=["empty", "text", "ole"],
)
def test_a_file_that_is_no_archive_is_refused(mime_type, content, message):
    with pytest.raises(UnreadableDocument, match=message) as caught:
        parse(content, mime_type, AMPLE_BYTES)
    assert caught.value.field == "content"


@pytest.mark.parametrize("mime_type", FILES)
def test_half_a_file_is_refused(mime_type):
    content = FILES[mime_type]()
    with pytest.raises(UnreadableDocument):
        parse(content[: len(content) // 2], mime_type, AMPLE_BYTES)


@pytest.mark.parametrize("mime_type", FILES)
@pytest.mark.parametrize("part", [b"", b"<a", b"\0" * 99, b"<a/>", b"<a>" * 5000 + b"</a>" * 5000])
def test_a_broken_main_part_is_refused_or_has_no_text(mime_type, part):
    content = with_part(FILES[mime_type](), MAIN_PARTS[mime_type], part)
    try:
        text = parse(content, mime_type, AMPLE_BYTES).text
    except UnreadableDocument:
        text = ""
    assert text == ""
