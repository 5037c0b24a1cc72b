"""Of a Word document, what Word shows is text: nothing hidden, and equations too."""

from io import BytesIO
from zipfile import ZipFile

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE

from hrag.values.formats import DOCX
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.format_files import saved, strict, with_part

PLENTY = 1 << 20
MAIN_PART = "word/document.xml"
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def text_of(content: bytes) -> str:
    return parse(content, DOCX, PLENTY).text


def with_body(document: docx.document.Document, markup: str) -> bytes:
    """The document with markup at the start of its body."""
    content = saved(document)
    with ZipFile(BytesIO(content)) as zipped:
        part = zipped.read(MAIN_PART).decode()
    return with_part(content, MAIN_PART, part.replace("<w:body>", f"<w:body>{markup}").encode())


@pytest.fixture
def document():
    """A document with a style of each kind that hides text, and one based on each of them."""
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


@pytest.mark.parametrize("made_strict", [bytes, strict], ids=["transitional", "strict"])
@pytest.mark.parametrize("style", ["hiding", "based"])
def test_text_that_a_style_hides_is_left_out(document, style, made_strict):
    document.add_paragraph("shown").add_run(" hidden").style = f"CHARACTER {style}"
    document.add_paragraph("hidden", f"PARAGRAPH {style}").add_run(" shown").font.hidden = False
    table = document.add_table(1, 1, f"TABLE {style}")
    table.cell(0, 0).text = "hidden"
    assert text_of(made_strict(saved(document))) == "shown\n\nshown"


def test_a_style_that_shows_text_again_is_read(document):
    document.add_paragraph("one").add_run(" two").style = "CHARACTER showing"
    document.add_paragraph("three", "PARAGRAPH showing")
    # A style of a run toggles what the style of its paragraph says.
    document.add_paragraph("", "PARAGRAPH hiding").add_run("four").style = "CHARACTER hiding"
    assert text_of(saved(document)) == "one two\n\nthree\n\nfour"


def test_hidden_by_default_is_hidden():
    document = docx.Document()
    document.styles["Normal"].font.hidden = True
    document.add_paragraph("hidden").add_run(" shown").font.hidden = False
    document.add_paragraph("hidden", "List Bullet")
    assert text_of(saved(document)) == "shown"


def test_styles_that_are_based_on_each_other_end():
    document = docx.Document()
    one, two = (document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH) for name in "ab")
    one.base_style, two.base_style = two, one
    document.add_paragraph("text", one)
    assert text_of(saved(document)) == "text"


@pytest.mark.parametrize("made_strict", [bytes, strict], ids=["transitional", "strict"])
def test_directly_hidden_text_is_left_out(made_strict):
    document = docx.Document()
    document.add_paragraph("shown").add_run(" hidden").font.hidden = True
    assert text_of(made_strict(saved(document))) == "shown"


SQUARE = "<m:sSup><m:e>{c}</m:e><m:sup>{two}</m:sup></m:sSup>"
HALF = "<m:f><m:num>{one}</m:num><m:den>{two}</m:den></m:f>"
PARTS = {
    name: f"<m:r><m:t>{text}</m:t></m:r>"
    for name, text in {"c": "c", "one": "1", "two": "2"}.items()
}
HIDDEN = "<m:r><w:rPr><w:vanish/></w:rPr><m:t>hidden</m:t></m:r>"
DELETED = "<w:del><m:r><m:t>deleted</m:t></m:r></w:del>"


@pytest.mark.parametrize("made_strict", [bytes, strict], ids=["transitional", "strict"])
@pytest.mark.parametrize(
    ("math", "text"),
    [
        ("<m:r><m:t>E=m</m:t></m:r>" + SQUARE.format(**PARTS), "E=mc^2"),
        (HALF.format(**PARTS), "1/2"),
        ("<m:r><m:t>x</m:t></m:r>" + HIDDEN + DELETED, "x"),
    ],
)
def test_the_equations_of_a_paragraph_are_text(math, text, made_strict):
    inline = f"<w:p><w:r><w:t>so:</w:t></w:r><m:oMath {MATH}>{math}</m:oMath></w:p>"
    block = f"<w:p><m:oMathPara {MATH}><m:oMath>{math}</m:oMath></m:oMathPara></w:p>"
    content = with_body(docx.Document(), inline + block)
    assert text_of(made_strict(content)) == f"so:{text}\n\n{text}"


def test_equations_side_by_side_are_divided():
    both = "".join(f"<m:oMath><m:r><m:t>{name}</m:t></m:r></m:oMath>" for name in "ab")
    block = f"<w:p><m:oMathPara {MATH}>{both}</m:oMathPara></w:p>"
    assert text_of(with_body(docx.Document(), block)) == "a b"
