"""The processor time of parsing grows in proportion to the count of each structure in a file.

Each case builds a file with many of one structure, for example rows, nested lists or styles, and a
file with four times as many. Times are of the processor, so other programs do not change them.
"""

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from zipfile import ZipFile

import pytest

from hrag.errors import InvalidArgument
from hrag.values.formats import (
    CSV,
    DOCX,
    EML,
    EPUB,
    HTML,
    JSON,
    LATEX,
    MARKDOWN,
    MSG,
    NOTEBOOK,
    ODP,
    ODS,
    ODT,
    PDF,
    PPTX,
    PYTHON,
    RST,
    RTF,
    SRT,
    VTT,
    XLSX,
    XML,
)
from indexer_svc.parsers.parser_functions import FormatFamily, load, parse
from tests.support.documents import odf_files as odf
from tests.support.documents import word_files as word
from tests.support.documents.bombs import TALL_ROW, WIDE_ROW, wide_tables
from tests.support.documents.format_files import (
    epub_file,
    ods_cell,
    ods_of,
    ods_sheet,
    pptx_file,
    with_part,
    xlsx_file,
)
from tests.support.documents.messages import mail_file, msg_file
from tests.support.documents.pdfs import Bookmark, pdf_of

pytestmark = pytest.mark.attacks

Build = Callable[[int], bytes]

MIB = 1 << 20
# A file that is parsed faster than this is not compared with a smaller one.
_FLOOR_S = 0.15
# Four times as much work may take this many times as long. Quadratic work takes 16 times as long.
_MAX_RATIO = 8.0
_ATTEMPTS = 3
# The most seconds of processor time for a small file that declares much content.
_SOON_S = 3.0


def _seconds(content: bytes, mime_type: str) -> float:
    """Returns the processor time of parsing a file; also if the parser refuses it."""
    gc.collect()
    began = time.process_time()
    with suppress(InvalidArgument):
        parse(content, mime_type, 32 * MIB)
    return time.process_time() - began


@pytest.fixture(scope="module", autouse=True)
def _parsers() -> None:
    """Loads all parsers, so that the import of their modules is not measured."""
    load(FormatFamily.MAIL)


# Files of Office programs.

_SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RUN = word.run("x")
_PARAGRAPH = word.paragraph("x")
_CELL = word.cell("x")
_BOX = "<w:r><w:pict><v:textbox><w:txbxContent>{}</w:txbxContent></v:textbox></w:pict></w:r>"
_FIELD = '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>REF</w:instrText></w:r>'


def _in_paragraph(runs: str) -> str:
    return f"<w:p>{runs}</w:p>"


def _word(body: Callable[[int], str], count: int = 3_000) -> tuple[str, Build, int]:
    return DOCX, lambda n: word.word_file(body(n)), count


def _word_notes(n: int) -> bytes:
    marks = (f'<w:r><w:footnoteReference w:id="{at}"/></w:r>' for at in range(n))
    notes = (f'<w:footnote w:id="{at}">{_PARAGRAPH}</w:footnote>' for at in range(n))
    return word.word_file("".join(map(_in_paragraph, marks)), footnotes="".join(notes))


def _word_styles(n: int) -> bytes:
    """Returns a document of `n` styles, each based on the next one; the last on the first."""
    styles = (word.style(f"s{at}", "x", based_on=f"s{(at + 1) % n}") for at in range(n))
    body = (word.paragraph("x", style=f"s{at}") for at in range(n))
    return word.word_file("".join(body), styles="".join(styles))


def _word_lists(n: int) -> bytes:
    lists = "".join(word.list_of(at, 1) for at in range(n))
    numbering = word.definition(1, word.level(0, "%1.", "lowerRoman")) + lists
    return word.word_file("".join(word.item("x", at) for at in range(n)), numbering=numbering)


_WORD: dict[str, tuple[str, Build, int]] = {
    "paragraphs": _word(lambda n: _PARAGRAPH * n),
    "runs": _word(lambda n: _in_paragraph(_RUN * n)),
    "insertions": _word(lambda n: _in_paragraph("<w:ins>" * n + _RUN + "</w:ins>" * n)),
    "rows": _word(lambda n: word.table(word.row("x", "y") * n), 1_000),
    "rows of one cell": _word(lambda n: word.table(word.row("x") * n), 1_000),
    "columns": _word(lambda n: word.table(word.row(_CELL * n) * 2), 1_000),
    "rows of headers": _word(
        lambda n: word.table(
            *(word.row("x", f"{at}", properties="<w:tblHeader/>") for at in range(n)),
            *(word.row("x", f"y{at}") for at in range(n)),
        ),
        1_000,
    ),
    "merged cells": _word(
        lambda n: word.table(word.row(word.cell("x", properties="<w:vMerge/>"), "y") * n), 1_000
    ),
    "tables": _word(lambda n: word.table(word.row("x", "y") * 2) * n, 500),
    "nested tables": _word(
        lambda n: "<w:tbl><w:tr><w:tc>" * n + _PARAGRAPH + "</w:tc></w:tr></w:tbl>" * n, 1_000
    ),
    "tables in a cell": _word(
        lambda n: word.table(word.row("x", word.cell(word.table(word.row("x", "y")) * n))), 1_000
    ),
    "headings": _word(lambda n: word.paragraph("x", style="Heading1") * n),
    "fields": _word(lambda n: _in_paragraph(word.field("REF a", _RUN) * n), 1_000),
    "nested fields": _word(lambda n: _in_paragraph((_FIELD + _RUN) * n)),
    "boxes": _word(lambda n: _in_paragraph(_BOX.format(_PARAGRAPH) * n), 1_000),
    "equations": _word(
        lambda n: _in_paragraph(
            "<m:oMath>" + "<m:f><m:num>" * n + "</m:num></m:f>" * n + "</m:oMath>"
        )
    ),
    "controls": _word(
        lambda n: "<w:sdt><w:sdtContent>" * n + _PARAGRAPH + "</w:sdtContent></w:sdt>" * n
    ),
    "notes": (DOCX, _word_notes, 1_000),
    "styles": (DOCX, _word_styles, 1_000),
    "lists": (DOCX, _word_lists, 1_000),
}

_ODF_PARAGRAPH = odf.paragraph("x")


def _odt(body: Callable[[int], str], count: int = 3_000) -> tuple[str, Build, int]:
    return ODT, lambda n: odf.odt_file(body(n)), count


def _odt_styles(n: int) -> bytes:
    style = '<style:style style:name="s{}" style:family="paragraph" style:parent-style-name="s{}"/>'
    styles = (style.format(at, (at + 1) % n) for at in range(n))
    body = (odf.paragraph("x", f"s{at}") for at in range(n))
    return odf.odt_file("".join(body), "".join(styles))


_NOTE = (
    '<text:note text:note-class="footnote"><text:note-citation>1</text:note-citation>'
    f"<text:note-body>{_ODF_PARAGRAPH}</text:note-body></text:note>"
)
_FRAME = f"<draw:frame><draw:text-box>{_ODF_PARAGRAPH}</draw:text-box></draw:frame>"
_ODF: dict[str, tuple[str, Build, int]] = {
    "spans": _odt(lambda n: odf.paragraph("<text:span>" * n + "x" + "</text:span>" * n)),
    "items": _odt(lambda n: odf.list_of(*["x"] * n)),
    "nested lists": _odt(
        lambda n: "<text:list><text:list-item>" * n + "</text:list-item></text:list>" * n
    ),
    "rows": _odt(lambda n: odf.table(odf.row("x", "y") * n), 1_000),
    "columns": _odt(lambda n: odf.table(odf.row(odf.cell("x") * n) * 2), 1_000),
    "tables": _odt(lambda n: odf.table(odf.row("x", "y")) * n, 1_000),
    "notes": _odt(lambda n: odf.paragraph("x" + _NOTE * n), 1_000),
    "boxes": _odt(lambda n: odf.paragraph(_FRAME * n), 1_000),
    "styles": (ODT, _odt_styles, 1_000),
    "slides": (ODP, lambda n: odf.odp_file(f"<draw:page>{_FRAME}</draw:page>" * n), 300),
    "frames": (ODP, lambda n: odf.odp_file(f"<draw:page>{_FRAME * n}</draw:page>"), 1_000),
    "cells of a sheet": (ODS, lambda n: ods_of(ods_sheet("a", [ods_cell("x") * 2] * n)), 3_000),
}

_SLIDE = (
    '<p:sld xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><p:cSld><p:spTree>{}'
    "</p:spTree></p:cSld></p:sld>"
)
_LINE = "<a:p><a:r><a:t>x</a:t></a:r></a:p>"
_SHAPE = f"<p:sp><p:txBody>{_LINE}</p:txBody></p:sp>"
_SHAPE_CELL = f'<a:tc vMerge="1"><a:txBody>{_LINE}</a:txBody></a:tc>'


def _slide(body: Callable[[int], str], count: int = 1_000) -> tuple[str, Build, int]:
    def build(n: int) -> bytes:
        return with_part(pptx_file(), "ppt/slides/slide1.xml", _SLIDE.format(body(n)).encode())

    return PPTX, build, count


def _sheet(n: int) -> bytes:
    rows = (f'<row r="{at}"><c r="A{at}"><v>1</v></c></row>' for at in range(1, n + 1))
    name = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    main = f'<worksheet xmlns="{name}"><sheetData>{"".join(rows)}</sheetData></worksheet>'
    return with_part(xlsx_file(), "xl/worksheets/sheet1.xml", main.encode())


_SLIDES: dict[str, tuple[str, Build, int]] = {
    "shapes": _slide(lambda n: _SHAPE * n),
    "paragraphs": _slide(lambda n: f"<p:sp><p:txBody>{_LINE * n}</p:txBody></p:sp>"),
    "groups": _slide(lambda n: "<p:grpSp>" * n + _SHAPE + "</p:grpSp>" * n),
    "merged cells": _slide(lambda n: f"<a:tbl>{f'<a:tr>{_SHAPE_CELL * 2}</a:tr>' * n}</a:tbl>"),
    "rows of a sheet": (XLSX, _sheet, 3_000),
}

# Pages and books.


def _repeated(markup: str, count: int = 4_000) -> tuple[str, Build, int]:
    return HTML, lambda n: (markup * n).encode(), count


def _page(build: Callable[[int], str], count: int = 4_000) -> tuple[str, Build, int]:
    return HTML, lambda n: build(n).encode(), count


def _book_of_notes(n: int) -> bytes:
    """Returns a book whose chapters each refer to a note of the same page."""
    link = '<p>x <a epub:type="noteref" href="notes.xhtml#n{}">1</a>'
    chapters = {f"c{at}.xhtml": link.format(at) for at in range(n)}
    notes = "".join(f'<aside epub:type="footnote" id="n{at}">x</aside>' for at in range(n))
    return epub_file({**chapters, "notes.xhtml": f"<table><tr><td>x</table>{notes}"})


_PAGES: dict[str, tuple[str, Build, int]] = {
    **{
        f"nested {tag}": _page(lambda n, tag=tag: f"<{tag}>x" * n, 1_000)  # type: ignore[misc]
        for tag in (
            *("a", "b", "span", "div", "p", "ul", "li", "ol reversed", "dl", "blockquote", "nav"),
            *("section", "article", "main", "aside", "form", "button", "figure", "details", "q"),
            *("math", "svg", "ruby", "sup", "table", "table><tr><td", "label", "template"),
            *("aside role=doc-footnote", "div class=menu", "div class='cookie banner'"),
        )
    },
    **{
        f"many {tag}": _repeated(f"<{tag}>x</{tag}>")
        for tag in ("a", "p", "div", "li", "td", "h1", "nav", "option", "pre", "code", "sup", "dt")
    },
    "options": _page(lambda n: "<select>" + "<option>x" * n),
    "attributes": _page(lambda n: f"<p {' '.join(f'a{at}=1' for at in range(n))}>x"),
    "rows": _page(lambda n: "<table>" + "<tr><td>x<td>y" * n, 2_000),
    "columns": _page(lambda n: "<table>" + ("<tr>" + "<td>x" * n) * 2, 2_000),
    "tables": _repeated("<table><tr><td>x<td>y<tr><td>1<td>2</table>", 500),
    "anchors": _page(
        lambda n: "".join(f"<p id=a{at}><a href='#a{n - at}'>x</a>" for at in range(n))
    ),
    "links": _repeated("<li><a href=/x>x</a>", 2_000),
    "formatting": _page(lambda n: "<b><i><a>" * n + "<p>x</a>" * n, 300),
    "styles": _page(lambda n: "<p style='" + "color:red;" * n + "'>x"),
    "notes of chapters": (EPUB, _book_of_notes, 200),
    "chapters": (EPUB, lambda n: epub_file({f"{at}.xhtml": "x" for at in range(n)}), 200),
    "navigation": (EPUB, lambda n: epub_file({"a.xhtml": "<nav>x" * n}), 2_000),
}

# Texts.


def _text(mime_type: str, build: Callable[[int], str], count: int) -> tuple[str, Build, int]:
    return mime_type, lambda n: build(n).encode(), count


_LAZY = ">" * 30 + " x\n" + "y\n" * 30
_TEXTS: dict[str, tuple[str, Build, int]] = {
    "lines below nested quotes": _text(MARKDOWN, lambda n: _LAZY * n, 40),
    "nested quotes": _text(MARKDOWN, lambda n: ">" * n + "x", 3_000),
    "items": _text(MARKDOWN, lambda n: "- x\n" * n, 3_000),
    "nested items": _text(MARKDOWN, lambda n: "- " * n + "x", 3_000),
    "headings": _text(MARKDOWN, lambda n: "# x\ny\n" * n, 1_000),
    "open brackets": _text(MARKDOWN, lambda n: "# " + "[" * n, 3_000),
    "references": _text(MARKDOWN, lambda n: "".join(f"[a{at}]: /x\n" for at in range(n)), 1_000),
    "tables": _text(MARKDOWN, lambda n: "|a|b|\n|-|-|\n|1|2|\n\n" * n, 500),
    "fences": _text(MARKDOWN, lambda n: "```\nx\n" * n, 2_000),
    "front matter": _text(
        MARKDOWN, lambda n: "---\n" + "".join(f"a{at}: b\n" for at in range(n)) + "---\nx", 300
    ),
    "csv rows": _text(CSV, lambda n: "a,b\n" + "1,2\n" * n, 3_000),
    "csv columns": _text(CSV, lambda n: ("1," * n + "x\n") * 3, 3_000),
    "csv gaps": _text(CSV, lambda n: "a,b\n1,2\n\n" * n, 1_000),
    "titles": _text(RST, lambda n: "a\n=\n\nx\n\n" * n, 200),
    "rst items": _text(RST, lambda n: "* x\n" * n, 200),
    "directives": _text(RST, lambda n: ".. note:: x\n\n" * n, 100),
    "sections": _text(LATEX, lambda n: "\\section{x} y\n" * n, 500),
    "environments": _text(LATEX, lambda n: "\\begin{a}x\\end{a}\n" * n, 500),
    "latex rows": _text(
        LATEX, lambda n: "\\begin{tabular}{ll}" + "x & y \\\\\n" * n + "\\end{tabular}", 500
    ),
    "latex tables": _text(LATEX, lambda n: "\\begin{tabular}\\end{tabular}" * n, 20_000),
    "latex code": _text(LATEX, lambda n: "\\begin{verbatim}x\\end{verbatim}" * n, 5_000),
    "latex verb": _text(LATEX, lambda n: "\\verb|x| \\verb|x\n" * n, 4_000),
    "latex comments": _text(LATEX, lambda n: "x % y\n% z\n" * n, 20_000),
    "latex definitions": _text(LATEX, lambda n: "\\newcommand{\\a}{x}\\a " * n, 1_000),
    "environments without an end": _text(LATEX, lambda n: "\\begin{a}x" * n, 4_000),
    "formulas without an end": _text(LATEX, lambda n: "\\begin{align}x $$ \\[ " * n, 4_000),
    "ends without an environment": _text(LATEX, lambda n: "\\end{a}\\\\\\'" * n, 700),
    "latex braces": _text(LATEX, lambda n: "{" * n + "x" + "}" * n, 10_000),
    "latex accents": _text(LATEX, lambda n: "\\'{\\^{\\c{e}}}" * n, 500),
    "captions": _text(VTT, lambda n: "WEBVTT\n\n" + "00:01.000 --> 00:02.000\nx\n\n" * n, 1_000),
    "srt captions": _text(SRT, lambda n: "1\n00:00:01,000 --> 00:00:02,000\nx\n\n" * n, 1_000),
    "definitions": _text(PYTHON, lambda n: "def a():\n    pass\n" * n, 1_000),
    "elements": _text(XML, lambda n: f"<a>{'<b>x</b>' * n}</a>", 3_000),
    "values": _text(JSON, lambda n: f"[{'1,' * n}1]", 3_000),
    "objects": _text(JSON, lambda n: "[" + '{"k":1},' * n + "1]", 2_000),
    "cells": _text(
        NOTEBOOK, lambda n: '{"nbformat":4,"cells":[' + _NOTEBOOK_CELL * n + "{}]}", 500
    ),
    "groups": _text(RTF, lambda n: "{\\rtf1 " + "{x}" * n + "}", 2_000),
    "rtf rows": _text(RTF, lambda n: "{\\rtf1 " + "\\trowd x\\cell y\\cell\\row " * n + "}", 1_000),
    "rtf notes": _text(RTF, lambda n: "{\\rtf1 " + "x{\\footnote y}\\par " * n + "}", 1_000),
}
_NOTEBOOK_CELL = '{"cell_type":"markdown","source":["x"]},'

# Mails and PDFs.

_ATTACHED = [("a.csv", "text/csv", b"a,b\n1,2\n")]
_MAILS: dict[str, tuple[str, Build, int]] = {
    "quoted lines": _text(EML, lambda n: "Subject: x\n\n" + "> x\n" * n, 2_000),
    "quote levels": _text(EML, lambda n: "Subject: x\n\n" + ">" * n + "x", 4_000),
    "addresses": _text(EML, lambda n: "To: " + "a@x, " * n + "b@x\n\nx", 1_000),
    "headers": _text(EML, lambda n: "X-A: b\n" * n + "\nx", 2_000),
    "encoded words": _text(EML, lambda n: "Subject: " + "=?utf-8?q?a?= " * n + "\n\nx", 1_000),
    "attachments": (EML, lambda n: mail_file(attachments=_ATTACHED * n), 30),
    "attachments of a message": (
        MSG,
        lambda n: msg_file({0x37: "x"}, attachments=[{0x3707: "a.csv", 0x3701: b"a,b\n"}] * n),
        30,
    ),
    "pages": (PDF, lambda n: pdf_of(["Fish swim."] * n), 30),
    "bookmarks": (PDF, lambda n: pdf_of(["x"], [Bookmark("x", 1, 0)] * n), 300),
    "lines of a page": (PDF, lambda n: pdf_of(["x\n" * n]), 100),
}

_CASES = {
    f"{group}: {name}": case
    for group, cases in (
        ("word", _WORD),
        ("odf", _ODF),
        ("slides", _SLIDES),
        ("page", _PAGES),
        ("text", _TEXTS),
        ("mail", _MAILS),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", _CASES)
def test_four_times_as_many_of_a_structure_take_about_four_times_as_long(name: str) -> None:
    mime_type, build, count = _CASES[name]
    few, many = build(count), build(4 * count)
    many_s = _seconds(many, mime_type)
    few_s = many_s
    for _ in range(_ATTEMPTS):
        if many_s < _FLOOR_S:
            return
        few_s = min(few_s, _seconds(few, mime_type))
        if many_s <= _MAX_RATIO * few_s:
            return
        many_s = min(many_s, _seconds(many, mime_type))
    pytest.fail(f"{count} take {few_s:.3f} s, four times as many take {many_s:.3f} s")


def _book(spine: int, chapter: str) -> bytes:
    """Returns a book that lists one chapter `spine` times."""
    items = '<item id="c" href="text/a.xhtml" media-type="text/html"/>'
    reference = '<itemref idref="c"/>'
    book = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest>'
        f"<spine>{reference * spine}</spine></package>"
    )
    return epub_file({"a.xhtml": chapter}, **{"OEBPS/book.opf": book})


def _sheets(count: int) -> bytes:
    """Returns a workbook with `count` sheets that name the same part of many empty cells."""
    part, link = "xl/workbook.xml", "xl/_rels/workbook.xml.rels"
    content = xlsx_file()
    with ZipFile(BytesIO(content)) as zipped:
        sheets, links = zipped.read(part).decode(), zipped.read(link).decode()
    sheet = sheets[sheets.index("<sheet ") :].split("/>")[0] + "/>"
    more = "".join(sheet.replace('"Dance"', f'"S{number}"') for number in range(count))
    rows = f"<row>{'<c/>' * 100}</row>" * 2_000
    big = f'<worksheet xmlns="{_SHEETS}"><sheetData>{rows}</sheetData></worksheet>'
    content = with_part(content, part, sheets.replace(sheet, sheet + more).encode())
    assert "/xl/worksheets/sheet1.xml" in links
    return with_part(content, "xl/worksheets/sheet1.xml", big.encode())


def _contents_pages(count: int) -> bytes:
    """Returns a book that lists one small table of contents `count` times."""
    item = '<item id="c{}" href="text/a.xhtml" media-type="text/html" properties="nav"/>'
    items = "".join(map(item.format, range(count)))
    book = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest>'
        "<spine/></package>"
    )
    return epub_file({"a.xhtml": "<p>x"}, **{"OEBPS/book.opf": book})


_LABEL = f"<table><thead><tr><th rowspan=0>{'x ' * 50_000}"
_SMALL: dict[str, tuple[str, Build, int]] = {
    "rows of one cell": (DOCX, lambda n: wide_tables(n, 2_000), 20),
    "wide cells of a book": (
        EPUB,
        lambda n: epub_file({"a.xhtml": f"<p>x<table>{WIDE_ROW * n}"}),
        30_000,
    ),
    "wide cells": _page(lambda n: f"<table>{WIDE_ROW * n}", 30_000),
    "tall cells": _page(lambda n: f"<table>{TALL_ROW * n}", 50_000),
    "repeated headers": _page(lambda n: f"{_LABEL}<tbody>{'<tr><td>x' * 3_000}</table>" * n, 9),
    "a chapter listed often": (EPUB, lambda n: _book(n, "<!-- -->" * n), 50_000),
    "a sheet listed often": (XLSX, _sheets, 10_000),
    "a table of contents listed often": (EPUB, _contents_pages, 200_000),
    "options": _page(lambda n: f"<select>{'<option>x' * n}", 250_000),
    "attributes": _page(lambda n: f"<p {' '.join(f'a{at}' for at in range(n))}>", 300_000),
    "lines below nested quotes": _text(MARKDOWN, lambda n: _LAZY * n, 170),
    "emphasis without an end": _text(RST, lambda n: "*a " * n, 100_000),
    "names without an end": _text(RST, lambda n: "**_\n" * n, 100_000),
}


@pytest.mark.parametrize("name", _SMALL)
def test_a_small_file_that_declares_much_is_read_or_refused_soon(name: str) -> None:
    mime_type, build, count = _SMALL[name]
    content = build(count)
    assert len(content) < 3 * MIB
    assert _seconds(content, mime_type) < _SOON_S
