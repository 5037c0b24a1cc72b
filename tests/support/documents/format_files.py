"""Files of the formats beyond text, Markdown and PDF, written by the usual libraries.

Each file describes bees in two sections, with the elements that its format offers: a table, a list,
a title.
"""

import datetime
import re
from collections.abc import Iterable, Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import docx
import openpyxl
import pptx
import xlwt
from pptx.util import Inches

TITLE = "The Bee Book"
_TRANSITIONAL = re.compile(
    rb"http://schemas\.openxmlformats\.org/"
    rb"(wordprocessingml|presentationml|drawingml|officeDocument)/2006/"
)
ROWS = (("Flower", "Nectar"), ("Clover", "4 mg"), ("Linden", "7 mg"))
DANCE = "Bees dance to tell where flowers are."
HONEY = "Honey ripens in closed cells."


def docx_file() -> bytes:
    """Returns a document with headings of two levels, a list, a table, bold and hidden runs."""
    document = docx.Document()
    document.core_properties.title = TITLE
    document.core_properties.author = "jsmith"
    document.add_heading("Dance", 1)
    dance = document.add_paragraph(DANCE)
    dance.add_run(" It is round.").bold = True
    dance.add_run(" secret").font.hidden = True
    dance.add_run(".").font.hidden = False
    document.add_paragraph("north", style="List Bullet")
    document.add_paragraph("south", style="List Bullet")
    document.add_heading("Honey", 2)
    document.add_paragraph(HONEY)
    table = document.add_table(len(ROWS), 2)
    for line, row in zip(table.rows, ROWS, strict=True):
        for cell, text in zip(line.cells, row, strict=True):
            cell.text = text
    return saved(document)


def pptx_file() -> bytes:
    """Returns a presentation of three slides.

    The first slide has bullets and notes, the second one is hidden. The third one has a table, a
    hidden box, and no title.
    """
    deck = pptx.Presentation()
    deck.core_properties.title = TITLE
    dance = deck.slides.add_slide(deck.slide_layouts[1])
    dance.shapes.title.text = "Dance"
    body = dance.placeholders[1].text_frame
    body.text = DANCE
    inner = body.add_paragraph()
    inner.text, inner.level = "It is round.", 1
    dance.notes_slide.notes_text_frame.text = "Show the film."
    hidden = deck.slides.add_slide(deck.slide_layouts[5])
    hidden.shapes.title.text = "Secret"
    hidden.element.set("show", "0")
    honey = deck.slides.add_slide(deck.slide_layouts[6])
    box = honey.shapes.add_textbox(Inches(1), Inches(1), Inches(4), Inches(1))
    box.text_frame.text = HONEY
    unseen = honey.shapes.add_textbox(Inches(1), Inches(2), Inches(4), Inches(1))
    unseen.text_frame.text = "secret"
    unseen.element.nvSpPr.cNvPr.set("hidden", "1")
    table = honey.shapes.add_table(len(ROWS), 2, Inches(1), Inches(3), Inches(4), Inches(1)).table
    for index, row in enumerate(ROWS):
        for column, text in enumerate(row):
            table.cell(index, column).text = text
    return saved(deck)


def xlsx_file() -> bytes:
    """Returns a sheet of two tables, a hidden sheet, and a sheet of dates and numbers."""
    book = openpyxl.Workbook()
    book.properties.title = TITLE
    flowers = book.active
    flowers.title = "Dance"
    for row in ROWS:
        flowers.append(row)
    flowers["B6"] = DANCE
    hidden = book.create_sheet("Secret")
    hidden["A1"] = "secret"
    hidden.sheet_state = "hidden"
    honey = book.create_sheet("Honey")
    honey.append(("Day", "kg", "share", "sold"))
    honey.append((datetime.date(2026, 5, 1), 0.1 + 0.2, 0.25, True))
    honey.append((datetime.datetime(2026, 5, 2, 10, 30), 3, 1e6, "=1+1"))
    return saved(book)


def xls_file() -> bytes:
    """Returns the workbook of `xlsx_file`, without its title, in the format of Excel 97 to 2003."""
    book = xlwt.Workbook()
    flowers = book.add_sheet("Dance")
    for index, row in enumerate(ROWS):
        for column, text in enumerate(row):
            flowers.write(index, column, text)
    flowers.write(5, 1, DANCE)
    hidden = book.add_sheet("Secret")
    hidden.write(0, 0, "secret")
    hidden.visibility = 1
    honey = book.add_sheet("Honey")
    for column, text in enumerate(("Day", "kg", "share", "sold")):
        honey.write(0, column, text)
    day = xlwt.easyxf(num_format_str="yyyy-mm-dd")
    time = xlwt.easyxf(num_format_str="yyyy-mm-dd hh:mm")
    honey.write(1, 0, datetime.date(2026, 5, 1), day)
    honey.write(2, 0, datetime.datetime(2026, 5, 2, 10, 30), time)
    for index, values in enumerate(((0.1 + 0.2, 0.25, True), (3, 1e6)), start=1):
        for column, value in enumerate(values, start=1):
            honey.write(index, column, value)
    return saved(book)


_ODS_SHEETS = """<?xml version="1.0" encoding="UTF-8"?><office:document-content
 xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.3">
<office:automatic-styles><style:style style:name="h" style:family="table">
<style:table-properties table:display="false"/></style:style></office:automatic-styles>
<office:body><office:spreadsheet>{}</office:spreadsheet></office:body></office:document-content>"""
_ODS_TITLE = """<?xml version="1.0" encoding="UTF-8"?><office:document-meta
 xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><office:meta><dc:title>{}</dc:title></office:meta>
</office:document-meta>"""


_ODS_MANIFEST = """<?xml version="1.0" encoding="UTF-8"?><manifest:manifest
 xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><manifest:file-entry
 manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>"""


def ods_cell(value: object) -> str:
    """Returns a cell of an OpenDocument spreadsheet; None makes an empty cell."""
    kinds = {bool: ("boolean", "boolean-value"), str: ("string", "string-value")}
    dates = dict.fromkeys((datetime.date, datetime.datetime), ("date", "date-value"))
    kind, attribute = (kinds | dates).get(type(value), ("float", "value"))
    shown = value.isoformat() if isinstance(value, datetime.date) else str(value)
    shown = shown.lower() if isinstance(value, bool) else shown
    if value is None:
        return "<table:table-cell/>"
    return (
        f'<table:table-cell office:value-type="{kind}" office:{attribute}="{shown}">'
        f"<text:p>{shown}</text:p></table:table-cell>"
    )


def ods_sheet(name: str, rows: Iterable[str], style: str = "") -> str:
    """Returns a sheet of an OpenDocument spreadsheet. Each row is the XML of its cells."""
    lines = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    shown = f' table:style-name="{style}"' if style else ""
    return f'<table:table table:name="{name}"{shown}>{lines}</table:table>'


def ods_of(*sheets: str, **parts: str) -> bytes:
    """Returns an OpenDocument spreadsheet. `parts` replaces or adds files of the archive."""
    files = {
        "META-INF/manifest.xml": _ODS_MANIFEST,
        "content.xml": _ODS_SHEETS.format("".join(sheets)),
        **parts,
    }
    return archive({"mimetype": "application/vnd.oasis.opendocument.spreadsheet", **files})


def ods_file() -> bytes:
    """Returns the workbook of `xlsx_file` as an OpenDocument spreadsheet."""
    dance = [*ROWS, (), (), (None, DANCE)]
    honey = [
        ("Day", "kg", "share", "sold"),
        (datetime.date(2026, 5, 1), 0.1 + 0.2, 0.25, True),
        (datetime.datetime(2026, 5, 2, 10, 30), 3, 1e6),
    ]
    return ods_of(
        ods_sheet("Dance", ("".join(map(ods_cell, row)) for row in dance)),
        ods_sheet("Secret", [ods_cell("secret")], style="h"),
        ods_sheet("Honey", ("".join(map(ods_cell, row)) for row in honey)),
        **{"meta.xml": _ODS_TITLE.format(TITLE)},
    )


CHAPTERS = {
    "one.xhtml": f"<h1>Dance</h1><p>{DANCE}</p>",
    "two.xhtml": f"<p>{HONEY}</p>",
}
_XHTML = (
    '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html>'
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>{}</body></html>'
)
_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)
_BOOK = (
    '<package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
    '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></metadata>'
    "<manifest>"
    '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
    "{items}</manifest><spine>{spine}</spine></package>"
)
_CONTENTS = '<nav><ol><li><a href="text/two.xhtml#top">Honey</a></li></ol></nav>'


def epub_file(chapters: Mapping[str, str] = CHAPTERS, **parts: str) -> bytes:
    """Returns a book with `chapters` in the folder `text`.

    `parts` replaces or adds files of the archive.
    """
    items = "".join(
        f'<item id="c{index}" href="text/{name}" media-type="application/xhtml+xml"/>'
        for index, name in enumerate(chapters)
    )
    spine = "".join(f'<itemref idref="c{index}"/>' for index in range(len(chapters)))
    files = {
        "META-INF/container.xml": _CONTAINER,
        "OEBPS/book.opf": _BOOK.format(title=TITLE, items=items, spine=spine),
        "OEBPS/nav.xhtml": _XHTML.format(_CONTENTS),
        **{f"OEBPS/text/{name}": _XHTML.format(body) for name, body in chapters.items()},
        **parts,
    }
    return archive({"mimetype": "application/epub+zip", **files})


def archive(files: Mapping[str, str | bytes]) -> bytes:
    """Returns a ZIP archive. Its first file is not compressed, and all other files are."""
    target = BytesIO()
    with ZipFile(target, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name, content, ZIP_DEFLATED if zipped.namelist() else ZIP_STORED)
    return target.getvalue()


def with_part(content: bytes, name: str, part: bytes) -> bytes:
    """Returns the archive `content` with its part `name` replaced or added."""
    with ZipFile(BytesIO(content)) as zipped:
        files = {path: zipped.read(path) for path in zipped.namelist()}
    return archive({**files, name: part})


def strict(content: bytes) -> bytes:
    """Returns an Office document whose namespaces are those of Strict Open XML."""
    with ZipFile(BytesIO(content)) as zipped:
        files = {path: zipped.read(path) for path in zipped.namelist()}
    for name, part in files.items():
        if name.endswith((".xml", ".rels")):
            files[name] = _TRANSITIONAL.sub(rb"http://purl.oclc.org/ooxml/\1/", part)
    return archive(files)


def html_page() -> bytes:
    """Returns a page with navigation, a list, a table, code, and elements that are not shown."""
    rows = "".join(f"<tr><td>{flower}<td>{nectar}" for flower, nectar in ROWS[1:])
    return f"""<!DOCTYPE html><html><head><title>{TITLE}</title><style>p {{}}</style></head><body>
<nav>Home &gt; Bees</nav><h1>Dance<a href="#dance">\N{PILCROW SIGN}</a></h1>
<p>{DANCE} It&nbsp;is <b>ro</b>und.<br>So they say.<!-- comment --><script>script()</script>
<ul><li>north<ul><li>pole</ul><li><p>south<p>sea</ul>
<h2>Honey</h2><p>{HONEY}</p><table><tr><th>{ROWS[0][0]}<th>{ROWS[0][1]}{rows}</table>
<pre>def bee():
    return 1</pre><p hidden>hidden</p><p style="color: red; display:none">unseen</p>
<template>template</template></body></html>""".encode()


def saved(document: object) -> bytes:
    """Returns the bytes that the `save` method of a library's document writes."""
    target = BytesIO()
    document.save(target)  # type: ignore[attr-defined]
    return target.getvalue()
