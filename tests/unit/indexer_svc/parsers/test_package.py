"""Dangerous archives are refused before they are unpacked, and entities are never replaced."""

import struct
from io import BytesIO
from zipfile import ZipFile

import pytest

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.formats import DOCX, EPUB, PPTX, XLSX
from indexer_svc.parsers import package as module
from indexer_svc.parsers.package import Package, readable, resolved
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.format_files import (
    archive,
    docx_file,
    epub_file,
    pptx_file,
    with_part,
    xlsx_file,
)

AMPLE_BYTES = 1 << 20
ENTITIES = b'<!DOCTYPE a [<!ENTITY b "boom"><!ENTITY c SYSTEM "file:///etc/passwd">]><a>&b;&c;</a>'


@pytest.mark.parametrize(
    ("content", "mime_type", "part"),
    [
        (docx_file(), DOCX, "word/document.xml"),
        (docx_file(), DOCX, "word/styles.xml"),
        (pptx_file(), PPTX, "ppt/slides/slide1.xml"),
        (pptx_file(), PPTX, "docProps/core.xml"),
        (xlsx_file(), XLSX, "docProps/core.xml"),
        (epub_file(), EPUB, "META-INF/container.xml"),
        (epub_file(), EPUB, "OEBPS/book.opf"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_part_that_declares_entities_is_refused(content, mime_type, part, encoding):
    hostile = with_part(content, part, ENTITIES.decode().encode(encoding))
    with pytest.raises(UnreadableDocument, match=f"declares XML entities in its part {part}"):
        parse(hostile, mime_type, AMPLE_BYTES)


def test_no_entity_of_a_sheet_is_replaced():
    content = with_part(xlsx_file(), "xl/worksheets/sheet1.xml", ENTITIES)
    try:
        text = parse(content, XLSX, AMPLE_BYTES).text
    except UnreadableDocument as error:
        text = error.message
    assert "boom" not in text


def test_an_archive_whose_directory_lists_too_many_bytes_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_ARCHIVE_BYTES", 5000)
    Package(archive({"a.xml": "x" * 5000, "a.png": "x" * 9000}), "a test", "a.xml")
    with pytest.raises(TooLarge, match="5001 bytes of markup when unpacked; at most 5000"):
        Package(archive({"a.xml": "x" * 5000, "b.rels": "x"}), "a test", "a.xml")


def test_every_part_that_is_read_counts_for_the_limit(monkeypatch):
    monkeypatch.setattr(module, "MAX_ARCHIVE_BYTES", 5000)
    package = Package(archive({"a.xml": "x" * 3000, "b.dat": "x" * 2001}), "a test", "a.xml")
    with pytest.raises(TooLarge, match="5001 bytes of markup when unpacked; at most 5000"):
        package.read("b.dat")
    with pytest.raises(TooLarge, match="5001 bytes"):
        package.xml("b.dat")


def test_a_part_that_is_read_twice_counts_once(monkeypatch):
    monkeypatch.setattr(module, "MAX_ARCHIVE_BYTES", 5000)
    package = Package(archive({"a.xml": "x" * 3000, "b.dat": "x" * 2000}), "a test", "a.xml")
    for name in ("a.xml", "b.dat", "a.xml", "b.dat"):
        package.read(name)


def test_an_archive_with_too_many_parts_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_ARCHIVE_PARTS", 2)
    with pytest.raises(TooLarge, match="3 files; at most 2"):
        Package(archive(dict.fromkeys("abc", "")), "a test", "a")


def test_a_part_longer_than_its_size_in_the_directory_is_refused():
    content = archive({"m": "", "a.xml": "<a>" + " " * 100_000 + "</a>"})
    with_wrong_size = content.replace(struct.pack("<I", 100_007), struct.pack("<I", 7))
    with pytest.raises(UnreadableDocument, match="damaged"), readable("a test"):
        Package(with_wrong_size, "a test", "a.xml").read("a.xml")


def test_an_encrypted_archive_is_refused():
    content = bytearray(archive({"a.xml": "<a/>"}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    with pytest.raises(UnreadableDocument, match="encrypted archive"):
        Package(bytes(content), "a test", "a.xml")


def test_the_error_names_a_missing_part():
    with pytest.raises(UnreadableDocument, match=r"lacks its part b\.xml"):
        Package(archive({"a.xml": "<a/>"}), "a test", "a.xml").xml("b.xml")


class PanicException(BaseException):
    """Has the name of the error that a library in Rust raises."""


def test_a_panic_of_a_library_is_reported_as_damage():
    with pytest.raises(UnreadableDocument, match="PanicException: index"), readable("a workbook"):
        raise PanicException("index")
    with pytest.raises(KeyboardInterrupt), readable("a workbook"):
        raise KeyboardInterrupt


def test_a_memory_error_is_not_reported_as_damage():
    with pytest.raises(MemoryError), readable("a test"):
        raise MemoryError


@pytest.mark.parametrize(
    ("base", "target", "name"),
    [
        ("ppt/slides/slide1.xml", "../media/a.png", "ppt/media/a.png"),
        ("ppt/presentation.xml", "slides/slide1.xml", "ppt/slides/slide1.xml"),
        ("ppt/presentation.xml", "/ppt/slides/slide1.xml", "ppt/slides/slide1.xml"),
        ("OEBPS/book.opf", "text/a%20b.xhtml#top", "OEBPS/text/a b.xhtml"),
        ("a", "../../../etc/passwd", "etc/passwd"),
    ],
)
def test_the_name_of_a_part_is_relative_to_the_part_that_names_it(base, target, name):
    assert resolved(base, target) == name


def test_the_archives_of_the_tests_can_be_read_by_zipfile(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(archive({"a": "1", "b": b"2"}))
    with ZipFile(path) as zipped:
        assert [zipped.read(name) for name in zipped.namelist()] == [b"1", b"2"]


def test_a_part_is_read_again_only_within_a_limit(monkeypatch):
    monkeypatch.setattr(module, "MAX_REPEATED_BYTES", 16_384)
    package = Package(archive({"a.xml": b"<a/>" * 2_048, "b.xml": b"<b/>"}), "a test", "a.xml")
    for _ in range(3):
        package.read("a.xml")
    assert package.read("b.xml") == b"<b/>"
    with pytest.raises(TooLarge, match=r"its part a\.xml too often: at most 16,384 bytes"):
        package.read("a.xml")


def test_a_small_part_that_is_read_again_counts_as_four_kilobytes(monkeypatch):
    monkeypatch.setattr(module, "MAX_REPEATED_BYTES", 16_384)
    package = Package(archive({"a.xml": b"<a/>"}), "a test", "a.xml")
    for _ in range(5):
        package.read("a.xml")
    with pytest.raises(TooLarge, match=r"too often") as refused:
        package.read("a.xml")
    assert refused.value.limit == "repeated_bytes"


def test_a_slide_that_is_listed_twice_is_read_once():
    part = "ppt/presentation.xml"
    content = pptx_file()
    with ZipFile(BytesIO(content)) as zipped:
        main = zipped.read(part).decode()
    slide = main[main.index("<p:sldId ") :].split("/>")[0] + "/>"
    twice = with_part(content, part, main.replace(slide, slide * 50).encode())
    assert parse(twice, PPTX, AMPLE_BYTES) == parse(content, PPTX, AMPLE_BYTES)
