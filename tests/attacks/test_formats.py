"""Hostile files of every format are read or refused with a reason.

The pool of parser processes reads the next file as usual.
"""

import struct
import time
import zlib
from collections.abc import Iterator

import pytest

from hrag.errors import InvalidArgument, TooLarge, UnreadableDocument
from hrag.values.deadline import Deadline
from hrag.values.formats import CSV, DOCX, EPUB, HTML, ODP, ODT, PPTX, PYTHON, RST, XLSX
from indexer_svc.parsers.parser_pool import ParserPool
from tests.support.documents.format_files import (
    archive,
    docx_file,
    epub_file,
    html_page,
    pptx_file,
    with_part,
    xlsx_file,
)
from tests.support.documents.odf_files import odp_file, odt_file

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
    began = time.monotonic()
    try:
        _read(pool, content, mime_type)
    except InvalidArgument as error:
        return error
    finally:
        assert time.monotonic() - began < TIMEOUT_S + _MARGIN_S
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
    "epub": (EPUB, lambda: epub_file({"a.xhtml": "<div>" * 300_000})),
}


@pytest.mark.parametrize("name", _DEEP)
def test_deep_nesting_is_read_or_refused(pool, name):
    mime_type, build = _DEEP[name]
    error = _refused(pool, build(), mime_type)
    assert error is None or isinstance(error, TooLarge | UnreadableDocument)


_WIDE = {
    "a cell far away": (XLSX, lambda: _sheet(_cell("A1") + _cell("XFD1048576"))),
    "many rows": (XLSX, lambda: _sheet(b"".join(_cell(f"A{n}") for n in range(1, 3 * 10**5)))),
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
    "csv quotes": (CSV, lambda: b'"' * 8_000_001),
    "titles": (RST, lambda: b"a\n=\n" * 10**6),
    "definitions": (PYTHON, lambda: b"def a(): pass\n" * 10**6),
    "quotes": (PYTHON, lambda: b"'''\"\"\"\\" * 10**6),
    "decorators": (PYTHON, lambda: b"@a\n" * 3 * 10**6),
}


def _cell(place: str) -> bytes:
    row = place.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return f'<row r="{row}"><c r="{place}"><v>1</v></c></row>'.encode()


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


@pytest.mark.parametrize("name", ["backticks", "tags"])
def test_the_time_of_parsing_grows_in_proportion_to_the_size(pool, name):
    mime_type, build = _WIDE[name]
    assert _refused(pool, build(), mime_type) is None


def test_random_bytes_are_refused_whatever_their_declared_format(pool):
    noise = zlib.compress(bytes(range(256)) * 4000)
    for mime_type in (HTML, DOCX, PPTX, XLSX, EPUB, ODT, ODP):
        for content in (noise, b"PK\x03\x04" + noise, archive({"a": noise})):
            assert isinstance(_refused(pool, content, mime_type), UnreadableDocument), mime_type
