"""The text of a Word document has equations but no hidden text, as Word shows it."""

from io import BytesIO
from zipfile import ZipFile

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE

from hrag.values.formats import DOCX
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.format_files import saved, strict, with_part

AMPLE_BYTES = 1 << 20
MAIN_PART = "word/document.xml"
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def text_of(content: bytes) -> str:
    return parse(content, DOCX, AMPLE_BYTES).text


def with_body(document: docx.document.Document, markup: str) -> bytes:
    """Returns the document with this markup at the start of its body."""
    content = saved(document)
    with ZipFile(BytesIO(content)) as zipped:
        part = zipped.read(MAIN_PART).decode()
    return with_part(content, MAIN_PART, part.replace("<w:body>", f"<w:body>{markup}").encode())


@pytest.fixture
def document():
    """A document with three styles of each kind: for characters, for paragraphs and for tables.

    The style `hiding` hides text. The styles `based` and `showing` are based on `hiding`, but
    `showing` shows text again.
    """
    document = docx.Document()
    for kind in (WD_STYLE_TYPE.CHARACTER, WD_STYLE_TYPE.PARAGRAPH, WD_STYLE_TYPE.TABLE):
        hiding = document.styles.add_style(f"{kind.name} hiding", kind)
        hiding.font.hidden = True
        based = document.styles.add_style(f"{kind.name} based", kind)
        based.base_style = hiding
        showing = document.styles.add_style(f"{kind.name} showing", kind)
        showing.base_style = hiding
        showing.font.hidden = False
    return document


@pytest.mark.parametrize("convert", [bytes, strict], ids=["transitional", "strict"])
@pytest.mark.parametrize("style", ["hiding", "based"])
def test_text_that_a_style_hides_is_left_out(document, style, convert):
    document.add_paragraph("shown").add_run(" hidden").style = f"CHARACTER {style}"
    document.add_paragraph("hidden", f"PARAGRAPH {style}").add_run(" shown").font.hidden = False
    table = document.add_table(1, 1, f"TABLE {style}")
    table.cell(0, 0).text = "hidden"
    assert text_of(convert(saved(document))) == "shown\n\nshown"


def test_text_that_a_style_shows_again_is_read(document):
    document.add_paragraph("one").add_run(" two").style = "CHARACTER showing"
    document.add_paragraph("three", "PARAGRAPH showing")
    # If the style of a run and the style of its paragraph both hide text, the text is shown.
    document.add_paragraph("", "PARAGRAPH hiding").add_run("four").style = "CHARACTER hiding"
    assert text_of(saved(document)) == "one two\n\nthree\n\nfour"


def test_text_that_the_default_style_hides_is_left_out():
    document = docx.Document()
    document.styles["Normal"].font.hidden = True
    document.add_paragraph("hidden").add_run(" shown").font.hidden = False
    document.add_paragraph("hidden", "List Bullet")
    assert text_of(saved(document)) == "shown"


def test_styles_that_are_based_on_each_other_cause_no_endless_loop():
    document = docx.Document()
    first, second = (document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH) for name in "ab")
    first.base_style, second.base_style = second, first
    document.add_paragraph("text", first)
    assert text_of(saved(document)) == "text"


@pytest.mark.parametrize("convert", [bytes, strict], ids=["transitional", "strict"])
def test_text_that_is_hidden_without_a_style_is_left_out(convert):
    document = docx.Document()
    document.add_paragraph("shown").add_run(" hidden").font.hidden = True
    assert text_of(convert(saved(document))) == "shown"


SQUARE = "<m:sSup><m:e>{c}</m:e><m:sup>{two}</m:sup></m:sSup>"
HALF = "<m:f><m:num>{one}</m:num><m:den>{two}</m:den></m:f>"
PARTS = {
    name: f"<m:r><m:t>{text}</m:t></m:r>"
    for name, text in {"c": "c", "one": "1", "two": "2"}.items()
}
HIDDEN = "<m:r><w:rPr><w:vanish/></w:rPr><m:t>hidden</m:t></m:r>"
DELETED = "<w:del><m:r><m:t>deleted</m:t></m:r></w:del>"


@pytest.mark.parametrize("convert", [bytes, strict], ids=["transitional", "strict"])
@pytest.mark.parametrize(
    ("math", "text"),
    [
        ("<m:r><m:t>E=m</m:t></m:r>" + SQUARE.format(**PARTS), "E=mc^2"),
        (HALF.format(**PARTS), "1/2"),
        ("<m:r><m:t>x</m:t></m:r>" + HIDDEN + DELETED, "x"),
    ],
)
def test_the_equations_of_a_paragraph_are_text(math, text, convert):
    inline = f"<w:p><w:r><w:t>so:</w:t></w:r><m:oMath {MATH}>{math}</m:oMath></w:p>"
    block = f"<w:p><m:oMathPara {MATH}><m:oMath>{math}</m:oMath></m:oMathPara></w:p>"
    content = with_body(docx.Document(), inline + block)
    assert text_of(convert(content)) == f"so:{text}\n\n{text}"


def test_equations_next_to_each_other_are_separated():
    both = "".join(f"<m:oMath><m:r><m:t>{name}</m:t></m:r></m:oMath>" for name in "ab")
    block = f"<w:p><m:oMathPara {MATH}>{both}</m:oMathPara></w:p>"
    assert text_of(with_body(docx.Document(), block)) == "a b"
