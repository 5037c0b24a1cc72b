"""Hostile files of every format are read or refused with a reason.

The pool of parser processes reads the next file as usual.
"""

import struct
import zlib
from collections.abc import Iterator

import pytest

from hrag.errors import InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.deadline import Deadline
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
    XLS,
    XLSX,
    XML,
)
from indexer_svc.parsers.parser_functions import parse
from indexer_svc.parsers.parser_pool import ParserPool
from tests.attacks.uptime_clock import uptime_s
from tests.support.documents.format_files import (
    archive,
    docx_file,
    epub_file,
    html_page,
    ods_cell,
    ods_of,
    ods_sheet,
    pptx_file,
    with_part,
    xlsx_file,
)
from tests.support.documents.messages import mail, mail_file, msg_file
from tests.support.documents.odf_files import odp_file, odt_file
from tests.support.documents.ole_files import ole_archive
from tests.support.documents.pdfs import pdf_of

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(300)]

MIB = 1 << 20
# The time limit for parsing one file. A harmless file takes milliseconds.
TIMEOUT_S = 2.0
_MARGIN_S = 5.0
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


@pytest.fixture(scope="module")
def pool() -> Iterator[ParserPool]:
    pool = ParserPool(2, 512 * MIB, TIMEOUT_S)
    yield pool
    pool.close()


def _read(pool: ParserPool, content: bytes, mime_type: str) -> str:
    return pool.parse("attacker", Deadline.after(60), content, mime_type, 32 * MIB).text


def _refused(pool: ParserPool, content: bytes, mime_type: str) -> InvalidArgument | None:
    """Returns the error with which the pool refuses a file; None if the pool reads the file.

    Fails if the pool exceeds its time limit by `_MARGIN_S`, or does not read the next file.
    """
    began = uptime_s()
    try:
        _read(pool, content, mime_type)
    except InvalidArgument as error:
        return error
    finally:
        assert uptime_s() - began < TIMEOUT_S + _MARGIN_S
        assert "Honey" in _read(pool, html_page(), HTML)
    return None


def _document(body: bytes) -> bytes:
    main = b'<w:document xmlns:w="%s"><w:body>%s</w:body></w:document>' % (_WORD.encode(), body)
    return with_part(docx_file(), "word/document.xml", main)


def _nested(start: bytes, depth: int) -> bytes:
    """Returns a document with the elements `start` nested `depth` times."""
    return _document(_nested_markup(start.decode(), depth).encode())


def _nested_markup(start: str, depth: int) -> str:
    names = start.strip("<>").split("><")
    end = "".join(f"</{name}>" for name in reversed(names))
    return start * depth + "x" + end * depth


def _nested_equation(depth: int) -> bytes:
    space = b'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    nested = b"<m:d><m:e>" * depth + b"</m:e></m:d>" * depth
    return b"<w:p><m:oMath %s>%s</m:oMath></w:p>" % (space, nested)


_RAISED = (
    b'<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r>'
    b"<w:r><w:t>x</w:t></w:r>"
)
_FIELD_BEGIN = b'<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r></w:p>'
_FIELD_CODE = b"<w:p><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
_MERGED_CELLS = (
    b"<w:tbl>"
    b'<w:tr><w:tc><w:tcPr><w:gridSpan w:val="999"/><w:vMerge w:val="restart"/></w:tcPr>'
    + b"<w:p><w:r><w:t>%s</w:t></w:r></w:p></w:tc><w:tc/></w:tr>" % (b"x" * 100_000)
    + b"<w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr></w:tc><w:tc/></w:tr>" * 50_000
    + b"</w:tbl>"
)
_ODF_CELL = "<table:table><table:table-row><table:table-cell>"
_ODF_ROW = (
    '<table:table-row table:number-rows-repeated="999999"><table:table-cell'
    ' table:number-columns-repeated="999999"/><table:table-cell><text:p>x</text:p>'
    "</table:table-cell></table:table-row>"
)
_ODF_STYLES = "".join(
    f'<style:style style:name="{n}" style:family="paragraph" style:parent-style-name="{n + 1}"/>'
    for n in range(100_000)
)


def _sheet(rows: bytes) -> bytes:
    main = b'<worksheet xmlns="%s"><sheetData>%s</sheetData></worksheet>' % (_SHEET.encode(), rows)
    return with_part(xlsx_file(), "xl/worksheets/sheet1.xml", main)


_SPACES = 300 * MIB
_BOMBS = {
    "docx": (DOCX, lambda: with_part(docx_file(), "word/document.xml", b" " * _SPACES)),
    "pptx": (PPTX, lambda: with_part(pptx_file(), "ppt/slides/slide1.xml", b" " * _SPACES)),
    "xlsx": (XLSX, lambda: with_part(xlsx_file(), "xl/worksheets/sheet1.xml", b" " * _SPACES)),
    "epub": (EPUB, lambda: epub_file(**{"OEBPS/text/one.xhtml": " " * _SPACES})),
    "odt": (ODT, lambda: with_part(odt_file(""), "content.xml", b" " * _SPACES)),
    "odp": (ODP, lambda: with_part(odp_file(""), "meta.xml", b" " * _SPACES)),
}


@pytest.mark.parametrize("name", _BOMBS)
def test_a_zip_bomb_is_refused_because_of_the_sizes_in_its_directory(pool, name):
    mime_type, build = _BOMBS[name]
    content = build()
    assert len(content) < MIB
    error = _refused(pool, content, mime_type)
    assert isinstance(error, TooLarge)
    assert "when unpacked; at most 268435456 are allowed" in error.message


def test_a_zip_bomb_that_declares_a_false_size_is_unpacked_only_to_that_size(pool):
    size = struct.pack("<I", 200 * MIB)
    content = with_part(docx_file(), "word/document.xml", b" " * (200 * MIB))
    assert content.count(size) == 2
    assert isinstance(
        _refused(pool, content.replace(size, struct.pack("<I", 99)), DOCX), UnreadableDocument
    )


def test_entities_that_expand_to_gigabytes_are_not_expanded(pool):
    names = "abcdefghij"
    laughs = "".join(
        f'<!ENTITY {name} "{f"&{inner};" * 10}">'
        for name, inner in zip(names[1:], names, strict=False)
    )
    xml = f'<!DOCTYPE x [<!ENTITY a "lol">{laughs}]><x>&j;</x>'.encode()
    for build, mime_type, part in (
        (docx_file, DOCX, "word/document.xml"),
        (pptx_file, PPTX, "ppt/presentation.xml"),
        (epub_file, EPUB, "OEBPS/book.opf"),
        (lambda: odt_file(""), ODT, "content.xml"),
        (lambda: odp_file(""), ODP, "content.xml"),
    ):
        error = _refused(pool, with_part(build(), part, xml), mime_type)
        assert isinstance(error, UnreadableDocument)
        assert "declares XML entities" in error.message
    _refused(pool, with_part(xlsx_file(), "xl/worksheets/sheet1.xml", xml), XLSX)
    assert _read(pool, xml, XML) == "x: &j;"
    assert _refused(pool, xml.replace(b"<x>", b"<html>"), HTML) is None


_DEEP = {
    "docx": (DOCX, lambda: _document(b"<w:p>" * 200_000 + b"</w:p>" * 200_000)),
    "docx tables": (DOCX, lambda: _nested(b"<w:tbl><w:tr><w:tc>", 60_000)),
    "docx boxes": (DOCX, lambda: _nested(b"<w:p><w:r><w:pict><w:txbxContent>", 60_000)),
    "docx equations": (DOCX, lambda: _document(_nested_equation(100_000))),
    "odt lists": (ODT, lambda: odt_file(_nested_markup("<text:list><text:list-item>", 60_000))),
    "odt tables": (ODT, lambda: odt_file(_nested_markup(_ODF_CELL, 40_000))),
    "odp groups": (ODP, lambda: odp_file("<draw:page>" + _nested_markup("<draw:g>", 90_000))),
    "pptx": (PPTX, lambda: with_part(pptx_file(), "ppt/slides/slide1.xml", b"<a>" * 10**6)),
    "html": (HTML, lambda: b"<div>" * 300_000),
    "html lists": (HTML, lambda: b"<ul><li>" * 100_000 + b"x"),
    "html tables": (HTML, lambda: b"<table><tr><td>" * 50_000 + b"x"),
    "html formatting": (HTML, lambda: b"<b><i><a><p>" * 100_000 + b"x"),
    "html formulas": (HTML, lambda: b"<math>" + b"<msup><mi>x</mi><mrow>" * 50_000),
    "html menus": (HTML, lambda: b"<div class=sidebar><a href=/>x</a>" * 50_000),
    "epub": (EPUB, lambda: epub_file({"a.xhtml": "<div>" * 300_000})),
    "xml": (XML, lambda: b"<a>" * 10**6),
    "xml text": (XML, lambda: b"<a>x" * 99 + b"<b/>y" * 10**6 + b"</a>" * 99),
    "json": (JSON, lambda: b"[" * 10**6),
    "json paths": (JSON, lambda: b'{"k":' * 90 + b"[" + b"{}," * 10**6 + b"1]" + b"}" * 90),
    "notebook": (NOTEBOOK, lambda: b'{"cells":' + b"[" * 10**6),
    "rtf": (RTF, lambda: b"{\\rtf1 " + b"{" * 10**6),
    "latex groups": (LATEX, lambda: b"{" * 10**6),
    "latex lists": (LATEX, lambda: rb"\begin{itemize}\item " * 10**5),
    "mail parts": (EML, lambda: _multiparts(5_000)),
    "mails": (EML, lambda: b"Content-Type: message/rfc822\n\n" * 50_000 + b"x"),
    "mails in files": (EML, lambda: _mails_in_files(6)),
    "storages": (MSG, lambda: ole_archive(_storages(400))),
    "rst quotes": (RST, lambda: b"".join(b" " * n + b"a\n\n" for n in range(1_200))),
    "rst items": (RST, lambda: b"* " * 500_000 + b"a"),
    "rst directives": (RST, lambda: b"".join(b"   " * n + b".. a::\n\n" for n in range(700))),
}


def _multiparts(depth: int) -> bytes:
    begin = "".join(
        f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(depth)
    )
    return f"Subject: x\n{begin}\nword\n".encode()


def _mails_in_files(depth: int) -> bytes:
    content = mail_file()
    for _ in range(depth):
        content = mail_file(attachments=[("a.eml", "application/octet-stream", content)] * 2)
    return content


def _storages(depth: int) -> dict[str, object]:
    inner: dict[str, object] = {"__properties_version1.0": bytes(32)}
    for _ in range(depth):
        inner = {"__properties_version1.0": bytes(32), "__attach_version1.0_#00000000": inner}
    return inner


@pytest.mark.parametrize("name", _DEEP)
def test_deep_nesting_is_read_or_refused(pool, name):
    mime_type, build = _DEEP[name]
    error = _refused(pool, build(), mime_type)
    assert error is None or isinstance(error, TooLarge | UnreadableDocument)


def _bomb_in_a_mail() -> bytes:
    bomb = with_part(docx_file(), "word/document.xml", b" " * _SPACES)
    return mail_file(attachments=[("bomb.docx", "application/octet-stream", bomb)] * 3)


_WIDE = {
    "a cell far away": (XLSX, lambda: _sheet(_cell("A1") + _cell("XFD1048576"))),
    "many rows": (XLSX, lambda: _sheet(b"".join(_cell(f"A{n}") for n in range(1, 3 * 10**5)))),
    "percentages": (XLSX, lambda: _sheet(b'<c r="A1" ' * 10**6)),
    "repeated rows": (ODS, lambda: _repeated_cells(1, 1_048_576)),
    "repeated cells": (ODS, lambda: _repeated_cells(16_384, 1_048_576)),
    "columns": (HTML, lambda: b"<table>" + b"<tr><td colspan=1000>x" * 100_000),
    "rows": (HTML, lambda: b"<table><tr>" + b"<td rowspan=9999>x" * 1000 + b"<tr><td>y" * 9999),
    "backticks": (HTML, lambda: b"<pre>" + b"`" * 10**6),
    "tags": (HTML, lambda: b"<?xml " + b"<a" * 10**6 + b"<" + b"a" * 10**7),
    "runs of a paragraph": (
        DOCX,
        lambda: _document(b"<w:p>" + b"<w:r><w:t>x</w:t></w:r>" * 600_000 + b"</w:p>"),
    ),
    "texts of a run": (
        DOCX,
        lambda: _document(b"<w:p><w:r>" + b"<w:t>x</w:t>" * 600_000 + b"</w:r></w:p>"),
    ),
    "superscripts": (DOCX, lambda: _document(b"<w:p>" + _RAISED * 100_000 + b"</w:p>")),
    "code of a field": (DOCX, lambda: _document(_FIELD_BEGIN + _FIELD_CODE * 400_000)),
    "merged cells": (DOCX, lambda: _document(_MERGED_CELLS)),
    "odt rows": (ODT, lambda: odt_file(f"<table:table>{_ODF_ROW * 100_000}</table:table>")),
    "odt styles": (ODT, lambda: odt_file("<text:p text:style-name='0'>x</text:p>", _ODF_STYLES)),
    "runs": (DOCX, lambda: _document(b"<w:p><w:r><w:t>x</w:t></w:r></w:p>" * 400_000)),
    "spine": (EPUB, lambda: _repeating_book(200_000)),
    "csv columns": (CSV, lambda: (b"," * 10**6 + b"x\n") * 8),
    "csv cells": (CSV, lambda: (b"1," * 10**5 + b"x\n") * 80),
    "csv empty rows": (CSV, lambda: b"a,b\n" + b"1,2\n\n" * 10**6),
    "csv single cells": (CSV, lambda: b"a,\n" + b",b\n" * 10**6),
    "a long name": (MARKDOWN, lambda: b"|" + b"a" * 10**6 + b"|\n|-|\n" + b"|1|2|\n" * 10**6),
    "tables": (MARKDOWN, lambda: b"|a|b|\n|-|-|\n\n" * 5 * 10**5),
    "rules": (MARKDOWN, lambda: b"|-|-|\n" * 10**6),
    "csv quotes": (CSV, lambda: b'"' * 8_000_001),
    "xml elements": (XML, lambda: b"<a>" + b"<b/>" * 2 * 10**6 + b"</a>"),
    "xml attributes": (XML, lambda: b"<a %s/>" % b" ".join(b'a%d="x"' % n for n in range(10**5))),
    "xml doctypes": (XML, lambda: b"<!DOCTYPE a [<!--" * 10**6),
    "json values": (JSON, lambda: b"[" + b"[]," * 10**6 + b"1]"),
    "json number": (JSON, lambda: b"9" * 10**7),
    "json base64": (JSON, lambda: b'["' + b"QUJD" * 2 * 10**6 + b'"]'),
    "cells of a notebook": (NOTEBOOK, lambda: b'{"cells":[' + b"{}," * 10**6 + b"{}]}"),
    "rtf cells": (RTF, lambda: rb"{\rtf1 " + rb"x\cell " * 10**6),
    "rtf notes": (RTF, lambda: rb"{\rtf1 " + rb"{\footnote a}" * 10**5),
    "rtf picture": (RTF, lambda: rb"{\rtf1{\pict " + b"0123456789abcdef\n" * 10**6),
    "latex arguments": (LATEX, lambda: rb"\section{" * 10**5),
    "latex tables": (LATEX, lambda: rb"\begin{tabular}" * 10**6),
    "latex commands": (LATEX, lambda: rb"\newcommand{\a}{\a\a}" * 10**5),
    "captions": (VTT, lambda: b"WEBVTT\n\n" + b"00:01.000 --> 00:02.000\nx\n\n" * 2 * 10**5),
    "lines of a caption": (SRT, lambda: b"00:01,000 --> 00:02,000\n" + b"x\n" * 10**6),
    "voices": (VTT, lambda: b"WEBVTT\n\n00:01.000 --> 00:02.000\n" + b"<v " * 10**6),
    "parts of a mail": (
        EML,
        lambda: b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\n" * 10**5,
    ),
    "attachments": (EML, lambda: _attachments(5_000)),
    "base64": (EML, lambda: b"Content-Transfer-Encoding: base64\n\n" + b"QUJD" * 10**6),
    "address": (EML, lambda: b"To: " + b"a@x," * 10**6 + b"\n\nx"),
    "parameters": (EML, lambda: b"Content-Type: text/plain" + b"; a=b" * 10**6 + b"\n\nx"),
    "zip bomb in a mail": (EML, _bomb_in_a_mail),
    "attachments of a message": (MSG, lambda: _message_with_attachments(2_000)),
    "titles": (RST, lambda: b"a\n=\n" * 10**6),
    "references": (RST, lambda: b"|a|_ `b`_ " * 10**5),
    "buttons": (HTML, lambda: b"<h1>" + b"<button>ab</button>" * 10**5),
    "pictures": (HTML, lambda: b"<figure>" + b"<img alt='a long description'>" * 10**5),
    "definitions": (PYTHON, lambda: b"def a(): pass\n" * 10**6),
    "quotes": (PYTHON, lambda: b"'''\"\"\"\\" * 10**6),
    "decorators": (PYTHON, lambda: b"@a\n" * 3 * 10**6),
}


def _attachments(count: int) -> bytes:
    return mail(attachments=[("a.csv", "text/csv", b"a,b\n1,2\n")] * count).as_bytes()


def _message_with_attachments(count: int) -> bytes:
    file = {0x3707: "a.csv", 0x3701: b"a,b\n1,2\n"}
    return msg_file({0x37: "x", 0x1000: "y"}, attachments=[file] * count)


def _cell(place: str) -> bytes:
    row = place.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return f'<row r="{row}"><c r="{place}"><v>1</v></c></row>'.encode()


def _repeated_cells(columns: int, rows: int) -> bytes:
    """Returns a spreadsheet in which one cell is repeated in columns and rows."""
    cell = ods_cell(7).replace("cell", f"cell table:number-columns-repeated='{columns}'", 1)
    sheet = ods_sheet("Sheet", [cell])
    return ods_of(sheet.replace("-row>", f"-row table:number-rows-repeated='{rows}'>", 1))


def _repeating_book(times: int) -> bytes:
    """Returns a book whose reading order names one chapter `times` times."""
    spine = '<itemref idref="c"/>' * times
    book = (
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="c" '
        f'href="text/one.xhtml" media-type="text/html"/></manifest><spine>{spine}</spine></package>'
    )
    return epub_file({"one.xhtml": "<p>" + "word " * 20_000}, **{"OEBPS/book.opf": book})


@pytest.mark.parametrize("name", _WIDE)
def test_a_small_file_with_much_content_is_read_or_refused(pool, name):
    mime_type, build = _WIDE[name]
    error = _refused(pool, build(), mime_type)
    assert error is None or isinstance(error, TooLarge | UnreadableDocument)
    if error is not None:
        assert "content" in error.message


_LINEAR = {
    "backticks": _WIDE["backticks"],
    "tags": _WIDE["tags"],
    "spaces after a command": (LATEX, lambda: rb"\title" + b" " * 300_000 + b"x"),
    "spaces after a definition": (LATEX, lambda: rb"\newcommand" + b" " * 300_000 + b"x"),
    "open arguments": (LATEX, lambda: (rb"\sqrt[" * 25 + b"\n\n") * 100),
    "accents": (LATEX, lambda: rb"\'{" * 200 + b"\n\n" + rb"\^{\'{" * 50 + b"a"),
    "flowed lines": (EML, lambda: _FLOWED + b"aaaaaaaa \n" * 80_000),
    "fields of parts": (EML, lambda: _PARTS + _PART * 20),
    "notices": (HTML, lambda: b"<div class='cookie banner'>" * 12_000 + b"x"),
    "styles of a list": (HTML, lambda: b"<ol style='list-style:" + b" " * 300_000 + b"'><li>x"),
    "pictures of formulas": (HTML, lambda: b"<p>" + b"<img class=tex alt=x>" * 10_000),
    "substitutions": (RST, lambda: _SUBSTITUTIONS),
    "names in TOML": (MARKDOWN, lambda: b"+++\n" + b"a." * 30_000 + b"a=1\n+++\nx"),
    "a long word": (PDF, lambda: pdf_of(["a" * 90_000 + "!-\nbee fly"])),
}
_FLOWED = b"Subject: x\nContent-Type: text/plain; format=flowed\n\n"
_PARTS = b"Content-Type: multipart/mixed; boundary=b\n\nx\n"
_PART = b"--b\nContent-Type: text/plain" + b"; a=b" * 10_000 + b"\n\nx\n"
_SUBSTITUTIONS = b"|a0|\n\n%s.. |a60| replace:: x\n" % b"".join(
    b".. |a%d| replace:: |a%d| |a%d|\n" % (n, n + 1, n + 1) for n in range(60)
)


@pytest.mark.parametrize("name", _LINEAR)
def test_the_time_of_parsing_grows_in_proportion_to_the_size(pool, name):
    mime_type, build = _LINEAR[name]
    _refused(pool, b"x", mime_type)  # The start of a process is not measured.
    assert _refused(pool, build(), mime_type) is None


@pytest.mark.parametrize("codec", ["cp720", "koi8-u", "mac-farsi", "hz", "utf-7"])
def test_a_confined_process_knows_all_encodings(pool, codec):
    _refused(pool, b"x", EML)
    text = "\u0628\u064a\u062a" if codec in ("cp720", "mac-farsi") else "\u0434\u043e\u043c"
    header = f"Subject: x\nContent-Type: text/plain; charset={codec}\n\n".encode()
    assert text in _read(pool, header + text.encode(codec), EML)


_NAMED_FILES = {
    "include": (RST, b".. include:: %s\n\nx"),
    "literalinclude": (RST, b".. literalinclude:: %s\n\nx"),
    "csv-table": (RST, b".. csv-table:: t\n   :file: %s\n\nx"),
    "raw": (RST, b".. raw:: html\n   :file: %s\n\nx"),
    "image": (RST, b".. image:: %s\n   :scale: 50\n\nx"),
    "parsed-literal": (RST, b".. code:: text\n   :file: %s\n\nx"),
    "input": (LATEX, rb"x \input{%s} \include{%s} \lstinputlisting{%s} \verbatiminput{%s}"),
    "entity": (XML, b"<!DOCTYPE a SYSTEM '%s' [<!ENTITY e SYSTEM '%s'>]><a>x &e;</a>"),
    "xinclude": (
        XML,
        b"<a xmlns:i='http://www.w3.org/2001/XInclude'>x<i:include href='%s' parse='text'/></a>",
    ),
    "includetext": (RTF, rb"{\rtf1 x{\field{\*\fldinst INCLUDETEXT %s}{\fldrslt y}}}"),
    "frame": (HTML, b"<p>x<iframe src='file://%s'></iframe><object data='%s'></object>"),
    "external body": (EML, b"Content-Type: message/external-body; name='%s'\n\nSubject: x\n\nx"),
}


@pytest.mark.parametrize("name", _NAMED_FILES)
def test_files_that_a_document_names_are_not_read(pool, tmp_path, name):
    """The file is not read in the indexer's own process, which may open files, either."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the marker 7f3a9c", "ascii")
    mime_type, content = _NAMED_FILES[name]
    content = content.replace(b"%s", bytes(secret))
    assert "7f3a9c" not in parse(content, mime_type, MIB).text
    error = _refused(pool, content, mime_type)
    assert error is None or isinstance(error, UnreadableDocument)


def test_random_bytes_are_refused_whatever_their_declared_format(pool):
    noise = zlib.compress(bytes(range(256)) * 4000)
    for mime_type in (HTML, DOCX, PPTX, XLSX, XLS, ODS, ODT, ODP, EPUB, EML, MSG, RTF, XML):
        for content in (noise, b"PK\x03\x04" + noise, archive({"a": noise})):
            assert isinstance(_refused(pool, content, mime_type), UnreadableDocument), mime_type
