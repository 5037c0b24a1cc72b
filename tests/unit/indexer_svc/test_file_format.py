"""The format of a file is the one that its bytes show, or else the one that its name says."""

import gzip
import io
import json
import tarfile

import pytest

from hrag.errors import UnreadableDocument
from hrag.values.formats import (
    CSV,
    DOCX,
    EML,
    EPUB,
    FORMATS,
    HTML,
    JPEG,
    JSON,
    LATEX,
    MARKDOWN,
    MSG,
    NOTEBOOK,
    ODS,
    ODT,
    PDF,
    PLAIN_TEXT,
    PNG,
    PPTX,
    PYTHON,
    RTF,
    SRT,
    TIFF,
    TSV,
    VTT,
    XLS,
    XLSX,
    XML,
)
from indexer_svc.file_format import detect
from tests.support.documents.format_files import (
    archive,
    docx_file,
    epub_file,
    html_page,
    pptx_file,
    xlsx_file,
)
from tests.support.documents.ole_files import ole_file

MAIL = b"Received: from a by b\r\nFrom: a@example.org\r\nSubject: Bees\r\n\tdance\r\n\r\nHoney."
PAGE = b"\xef\xbb\xbf \n<!DOCTYPE  html><html><body>Honey."
NOTEBOOK_TEXT = json.dumps({"cells": [], "nbformat": 4}).encode()


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "detected"),
    [
        (b"%PDF-1.7", PDF),
        (html_page(), HTML),
        (docx_file(), DOCX),
        (pptx_file(), PPTX),
        (xlsx_file(), XLSX),
        (epub_file(), EPUB),
        (archive({"mimetype": ODT, "content.xml": "x"}), ODT),
        (archive({"mimetype": ODS, "content.xml": "x"}), ODS),
        (archive({"xl/workbook.xml": "x", "embedded.docx": b"word/document.xml"}), XLSX),
        (ole_file("Workbook", "SummaryInformation"), XLS),
        (ole_file("Book"), XLS),
        (ole_file("__nameid_version1.0", "__properties_version1.0"), MSG),
        (ole_file("__properties_version1.0", nested=("WordDocument",)), MSG),
        (b"\xef\xbb\xbf {\\rtf1\\ansi Honey.}", RTF),
        (b"\x89PNG\r\n\x1a\n\0", PNG),
        (b"\xff\xd8\xff\xe0\0", JPEG),
        (b"II*\0\0", TIFF),
        (b"MM\0*\0", TIFF),
    ],
)
@pytest.mark.parametrize("name", ["", "a.md", "a.docx", "a.unknown", "https://example.org/a.csv?b"])
def test_a_signature_decides_whatever_the_name_says(content, detected, name):
    assert detect(content, name) == detected


@pytest.mark.parametrize(
    ("content", "detected"),
    [
        (PAGE, HTML),
        (b"<?xml version='1.0'?>\n<!-- a --><!doctype html><html>", HTML),
        (b"<?xml version='1.0'?><rss>", XML),
        (b"WEBVTT\n\n00:01.000 --> 00:02.000\nHoney.", VTT),
        (b"1\r\n00:00:01,000 --> 00:00:02,000\r\nHoney.", SRT),
        (b"% a comment\n\n\\documentclass[a4paper]{article}\n", LATEX),
        (MAIL, EML),
        (NOTEBOOK_TEXT, NOTEBOOK),
        (b'{"a": [1]}', JSON),
        (b'[{"a": 1}]', JSON),
        (b"a <html>", PLAIN_TEXT),
        (b"<htmlx>", PLAIN_TEXT),
        (b"WEBVTTX", PLAIN_TEXT),
        (b"{not json}", PLAIN_TEXT),
        (b'{"a": 1} {"b": 2}', PLAIN_TEXT),
        (b"[" * 100_000, PLAIN_TEXT),
        (b"From: me\nTo: you\nSubject: a letter\n\nHoney.", PLAIN_TEXT),
        (b"Subject: x\nThis is no header\nReceived: y\n", PLAIN_TEXT),
        (b"BZhang is a name.", PLAIN_TEXT),
        (b"ID3 tags are old.", PLAIN_TEXT),
        (b"", PLAIN_TEXT),
        ("Größe".encode("utf-16-le"), PLAIN_TEXT),
        ("Größe".encode("cp1252"), PLAIN_TEXT),
    ],
)
@pytest.mark.parametrize("name", ["", "a.txt", "README"])
def test_the_beginning_of_a_text_decides_if_the_name_says_little(content, detected, name):
    assert detect(content, name) == detected


def test_many_comments_before_other_text_take_no_time():
    assert detect(b"<!-- -->" * 500 + b"<p>") == PLAIN_TEXT
    assert detect(b"<!-- a -->\n<!-- b --><html>") == HTML


@pytest.mark.parametrize(
    ("name", "detected"),
    [(f"a{ending}", known.mime_type) for known in FORMATS for ending in known.extensions]
    + [
        ("A.MD", MARKDOWN),
        ("docs/a.b.md", MARKDOWN),
        ("https://example.org/docs/a.md?b=c.csv#d", MARKDOWN),
        ("https://[", PLAIN_TEXT),
        (".md", PLAIN_TEXT),
        ("a.log", PLAIN_TEXT),
    ],
)
def test_the_name_decides_if_the_content_shows_nothing(name, detected):
    # Blank content is of any format; its parser reports that it is blank.
    assert detect(b"", name) == detected


@pytest.mark.parametrize("name", ["a.php", "a.js", "a.ts", "a.py", "a.tex", "a.json", "a.html"])
def test_names_of_source_code_are_right(name):
    assert detect(PAGE, name) == detect(b"", name)


@pytest.mark.parametrize(
    ("content", "name", "detected"),
    [
        (PAGE, "a.md", HTML),
        (PAGE, "a.xls", HTML),
        (PAGE, "a.doc", HTML),
        (MAIL, "a.msg", EML),
        (b"Name\tPrice\nPump\t12\n", "a.xls", CSV),
        (b"Name;Price\nPump;12\n", "a.xlsx", CSV),
        (b"x" * 100 + b"%PDF-1.4 \0", "a.pdf", PDF),
        (b"\0" * 100 + b"%PDF-1.4 \0", "", PDF),
        (b"text about %PDF-1.7", "a.txt", PLAIN_TEXT),
        (archive({"a.bin": bytes(100)})[:60], "a.docx", DOCX),
        (b"\0\1damaged", "a.docx", DOCX),
        (b"print(1)", "a.py", PYTHON),
        (b"a\tb", "a.tsv", TSV),
        (b"any text", "a.eml", EML),
    ],
)
def test_the_content_corrects_names_that_are_often_wrong(content, name, detected):
    assert detect(content, name) == detected


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (archive({"a.txt": "text"}), "a.zip", "a ZIP archive; send each file in it"),
        (archive({"a.txt": "text"}), "a.docx", "a ZIP archive"),
        (archive({"a.txt": "text"})[:50], "a.zip", "damaged or cut off"),
        (archive({"META-INF/MANIFEST.MF": "x"}), "a.jar", "a program"),
        (archive({"Index/Document.iwa": "x"}), "a.pages", "Pages, Numbers or Keynote"),
        (archive({})[-22:], "", "an empty ZIP archive"),
        (gzip.compress(b"a" * 100), "a.gz", "a GZIP file; send each file in it"),
        (_tar(), "a.tar", "a TAR archive; send each file in it"),
        (b"7z\xbc\xaf\x27\x1c\0\4", "", r"an archive \(7z\)"),
        (ole_file("WordDocument"), "a.doc", r"\(.doc\); convert it first, .* --convert-to docx"),
        (ole_file("PowerPoint Document"), "", r"\(.ppt\); convert it first, .* --convert-to pptx"),
        (ole_file("EncryptionInfo", "EncryptedPackage"), "a.docx", "an encrypted Office document"),
        (ole_file("Something"), "", "an old Office program"),
        (ole_file("WordDocument")[:300], "", "an old Office program"),
        (b"GIF89a\0\0", "a.gif", "a picture .* save it as PNG"),
        (b"\0\0\0\x20ftypisom\0", "a.mp4", "a recording; send a transcript"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "a.webp", "a picture of a format that hrag does not read"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "a.wav", "a recording; send a transcript"),
        (b"\x7fELF\2\1\1\0", "a.md", "a program"),
        (b"SQLite format 3\0\x10", "a.db", "a database"),
        (b"just a text", "a.pdf", "a text, although its name .* text/plain reads it as text"),
        (b"just a text", "a.png", "a text, although"),
    ],
)
def test_known_formats_that_are_not_read_are_refused_by_name(content, name, message):
    with pytest.raises(UnreadableDocument, match=message) as caught:
        detect(content, name)
    is_text = message.startswith("a text")
    assert caught.value.field == ("mime_type" if is_text else "content")
