"""A parser process returns what the same code returns in this process, and is confined."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hrag.errors import TooLarge, UnreadableDocument
from hrag.types import MARKDOWN, PDF
from hrag.values.deadline import Deadline
from hrag.values.formats import (
    DOCX,
    EML,
    EPUB,
    HTML,
    JSON,
    LATEX,
    MSG,
    NOTEBOOK,
    ODS,
    PPTX,
    RTF,
    SRT,
    VTT,
    XLS,
    XLSX,
    XML,
)
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import FormatFamily, parse
from indexer_svc.parsers.parser_process import ParserEnded, ParserNotStarted, ParserProcess
from indexer_svc.parsers.protocol import ParserFault, received
from tests.support.documents import pdfs
from tests.support.documents.bombs import inflating_page, repeated_page
from tests.support.documents.format_files import (
    docx_file,
    epub_file,
    html_page,
    ods_file,
    pptx_file,
    with_part,
    xls_file,
    xlsx_file,
)
from tests.support.documents.messages import mail, mail_file, msg_file

AMPLE_BYTES = 1 << 25
MEMORY_BYTES = 1 << 29
LEAST_MEMORY_BYTES = 128 << 20
ROOT = Path(__file__).resolve().parents[4]


def _request(mime_type: str, max_text_bytes: int, cpu_s: float) -> dict[str, Any]:
    return {
        "mime_type": mime_type,
        "max_text_bytes": max_text_bytes,
        "keep_boilerplate": False,
        "cpu_s": cpu_s,
    }


def read_file(
    process: ParserProcess, content: bytes, mime_type: str = PDF, cpu_s: float = 60.0
) -> ParsedFile:
    """Sends a file to the process and returns what it answers."""
    deadline = Deadline.after(60)

    def check() -> None:
        deadline.check("reading")

    process.wait_until_ready(check)
    request = _request(mime_type, AMPLE_BYTES, cpu_s)
    return process.parse(request, content, AMPLE_BYTES, check)


@pytest.fixture(scope="module")
def process() -> Iterator[ParserProcess]:
    """A process for the core formats that the tests of this module share."""
    process = ParserProcess(MEMORY_BYTES, FormatFamily.CORE)
    process.wait_until_ready(lambda: None)
    yield process
    assert process.is_alive
    assert process.kill() == "SIGKILL"


@pytest.fixture
def new_process() -> Iterator[ParserProcess]:
    """A process for the core formats that only one test uses."""
    process = ParserProcess(MEMORY_BYTES, FormatFamily.CORE)
    yield process
    process.kill()


MARKDOWN_TEXTS = (
    "",
    "\ufeff---\ntitle: 'T é'\n---\n# One *x* &amp; `y` ![i](u)\n\n- a\n  - b\n\n> q\n\nTwo\n===\n",
    "# 猫 😀\r\n\r\n## B\r\n" * 500,
    "[x]: y 't'\n# [x] \\# &copy;\n<div>\n# no\n</div>\n\n    # no\n```\n# no\n```\n###### Six\n",
)


@pytest.mark.parametrize("text", MARKDOWN_TEXTS)
def test_markdown_is_parsed_as_in_this_process(process, text):
    content = text.encode()
    assert read_file(process, content, MARKDOWN) == parse(content, MARKDOWN, AMPLE_BYTES)


@pytest.mark.parametrize(
    "content",
    [
        pdfs.pdf_of(["First page\nsecond line", "", "Café (3) \\ x"]),
        pdfs.pdf_of(["One\ntext", "b"], [pdfs.Bookmark("一 One", 1, 0)], title="研究 😀"),
        pdfs.pdf_without_text(2),
        pdfs.encrypted_pdf(["open to all"], ""),
        pdfs.pdf_of([f"Page {number}. " + "Bees dance. " * 50 for number in range(300)]),
    ],
    ids=["pages", "bookmark", "no text", "encrypted", "long"],
)
def test_a_pdf_is_parsed_as_in_this_process(process, content):
    assert read_file(process, content) == parse(content, PDF, AMPLE_BYTES)


@pytest.fixture(scope="module")
def extra_process() -> Iterator[ParserProcess]:
    """A process for the other formats, with the least memory that is allowed."""
    process = ParserProcess(LEAST_MEMORY_BYTES, FormatFamily.EXTRA)
    yield process
    assert process.is_alive
    process.kill()


LEGACY_PAGE = "<meta charset=windows-1251><title>Мёд</title><p>Мёд".encode("cp1251")
CHAPTER = "OEBPS/text/one.xhtml"
BROKEN_DOCX = with_part(docx_file(), "word/document.xml", b"<a>" * 500)


@pytest.mark.parametrize(
    ("mime_type", "content"),
    [
        (HTML, html_page()),
        (EPUB, with_part(epub_file(), CHAPTER, LEGACY_PAGE)),
        (DOCX, docx_file()),
        (PPTX, pptx_file()),
        (XLSX, xlsx_file()),
        (XLS, xls_file()),
        (ODS, ods_file()),
        (EPUB, epub_file()),
    ],
)
def test_other_formats_are_parsed_as_in_this_process(extra_process, mime_type, content):
    expected = parse(content, mime_type, AMPLE_BYTES)
    assert expected.text
    assert read_file(extra_process, content, mime_type) == expected


@pytest.mark.parametrize(
    ("mime_type", "content"),
    [
        (EPUB, with_part(epub_file(), CHAPTER, b"\xff")),
        (EPUB, with_part(epub_file(), CHAPTER, b"<meta charset=klingon>\xff")),
        (DOCX, xlsx_file()),
        (DOCX, BROKEN_DOCX),
        (PPTX, b"PK\x03\x04"),
        (XLSX, xlsx_file()[:3000]),
        (EPUB, epub_file(**{"OEBPS/book.opf": ""})),
    ],
)
def test_other_formats_are_refused_as_in_this_process(extra_process, mime_type, content):
    with pytest.raises(UnreadableDocument) as expected:
        parse(content, mime_type, AMPLE_BYTES)
    with pytest.raises(UnreadableDocument) as caught:
        read_file(extra_process, content, mime_type)
    assert caught.value.message == expected.value.message


def japanese_mail() -> bytes:
    message = mail("蜂は踊る。", Subject="蜂の踊り")
    message.set_content("蜂は踊る。", charset="iso-2022-jp", cte="7bit")
    return message.as_bytes()


ATTACHMENTS = (
    ("bee.docx", "application/octet-stream", docx_file()),
    ("page.html", "text/html", LEGACY_PAGE),
    ("pages.pdf", "application/pdf", pdfs.pdf_of(["First page"])),
    ("notes.md", "text/markdown", b"# Notes\n\nx\n"),
    ("mail.eml", "application/octet-stream", mail_file("Inner.", Subject="Inner")),
    ("letter.rtf", "application/rtf", rb"{\rtf1\ansi{\fonttbl{\f1\fcharset128 x;}}\f1\'93\'fa}"),
    ("text.txt", "text/plain", "Ärger über Müll".encode("cp1252")),
    ("data.json", "application/json", b'{"a": [1, 2]}'),
    ("photo.png", "image/png", b"\x89PNG\r\n\x1a\n"),
)


@pytest.fixture(scope="module")
def mail_process() -> Iterator[ParserProcess]:
    """A process for mails, with the least memory that is allowed."""
    process = ParserProcess(LEAST_MEMORY_BYTES, FormatFamily.MAIL)
    yield process
    assert process.is_alive
    process.kill()


@pytest.mark.parametrize(
    ("mime_type", "content"),
    [
        (EML, mail_file("Bees dance.", "<ul><li>Bees<li>dance</ul>", ATTACHMENTS)),
        (EML, mail_file(messages=[mail("Inner.", To="Bob <b@x.example>")])),
        (EML, japanese_mail()),
        (
            EML,
            "Subject: é\nContent-Type: text/plain; charset=x\n\nÄrger über Müll".encode("cp1252"),
        ),
        (MSG, msg_file({0x37: "Bees", 0x1013: "<p>Café".encode("cp1252"), 0x3FDE: 1252})),
        (MSG, msg_file({0x37: "Bees"}, attachments=[{0x3707: "a.docx", 0x3701: docx_file()}])),
    ],
    ids=["attachments", "inner mail", "japanese", "unknown encoding", "message", "file in message"],
)
def test_mails_are_parsed_as_in_this_process(mail_process, mime_type, content):
    expected = parse(content, mime_type, AMPLE_BYTES)
    assert expected.text
    assert read_file(mail_process, content, mime_type) == expected


@pytest.mark.parametrize(
    ("mime_type", "content"),
    [
        (RTF, rb"{\rtf1\ansi\ansicpg1251{\fonttbl{\f1\fcharset128 x;}}\'cf {\f1\'93\'fa}}"),
        (JSON, b'{"a": [{"b": 1}, {"b": 2}], "c": "\\ud83d\\ude00"}'),
        (XML, "<?xml version='1.0' encoding='cp1251'?><a>Мёд</a>".encode()),
        (NOTEBOOK, b'{"cells": [{"cell_type": "markdown", "source": "# A"}]}'),
        (SRT, b"1\n00:00:01,000 --> 00:00:02,000\nx &eacute;\n"),
        (VTT, b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>x\n"),
    ],
)
def test_texts_of_programs_are_parsed_as_in_this_process(process, mime_type, content):
    assert read_file(process, content, mime_type) == parse(content, mime_type, AMPLE_BYTES)


def test_latex_is_parsed_as_in_this_process(extra_process):
    content = rb"\section{A} caf\'e $x$ \begin{tabular}{l}a & b\end{tabular}\begin{broken}"
    assert read_file(extra_process, content, LATEX) == parse(content, LATEX, AMPLE_BYTES)


def test_a_process_loads_only_the_libraries_of_its_family():
    program = (
        "import sys; from indexer_svc.parsers.parser_functions import FormatFamily, load;"
        " load(FormatFamily({!r}));"
        "print(sorted({{*sys.modules}} & {{'python_calamine', 'selectolax',"
        " 'pypdfium2', 'markdown_it', 'numpy', 'lmdb', 'grpc', 'oxmsg', 'pylatexenc'}}))"
    )
    loaded = {
        family: subprocess.check_output([sys.executable, "-c", program.format(family.value)])
        for family in FormatFamily
    }
    assert loaded[FormatFamily.CORE] == b"['markdown_it', 'pypdfium2']\n"
    extra = b"['pylatexenc', 'python_calamine', 'selectolax']\n"
    assert loaded[FormatFamily.EXTRA] == extra
    assert loaded[FormatFamily.MAIL] == (
        b"['markdown_it', 'oxmsg', 'pylatexenc', 'pypdfium2', 'python_calamine', 'selectolax']\n"
    )


@pytest.mark.parametrize("content", [pdfs.broken_pdf(), b"", pdfs.encrypted_pdf(["a"], "secret")])
def test_a_pdf_is_refused_as_in_this_process(process, content):
    with pytest.raises(UnreadableDocument) as expected:
        parse(content, PDF, AMPLE_BYTES)
    with pytest.raises(UnreadableDocument) as caught:
        read_file(process, content)
    assert caught.value.message == expected.value.message


def test_too_much_text_is_refused_while_it_is_read(process):
    content = pdfs.pdf_of(["x" * 60] * 20)
    request = _request(PDF, 100, 10)
    with pytest.raises(TooLarge, match="first 2 pages; HRAG_MAX_DOCUMENT_BYTES allows 100"):
        process.parse(request, content, AMPLE_BYTES, lambda: None)


def test_an_unexpected_error_is_reported_as_a_fault(process):
    with pytest.raises(ParserFault, match="KeyError"):
        read_file(process, b"x", "text/unknown")


def test_more_memory_than_the_limit_ends_the_process(new_process):
    with pytest.raises(ParserEnded):
        read_file(new_process, inflating_page())
    assert not new_process.is_alive
    assert not new_process.is_reusable


def test_the_least_memory_that_is_allowed_reads_pdfs():
    process = ParserProcess(LEAST_MEMORY_BYTES, FormatFamily.CORE)
    try:
        assert read_file(process, pdfs.pdf_of(["x"] * 100)).text.count("x") == 100
    finally:
        process.kill()


def test_more_processor_time_than_the_limit_ends_the_process(new_process):
    with pytest.raises(ParserEnded, match="SIGPROF"):
        read_file(new_process, repeated_page(), cpu_s=0.2)


def test_a_process_that_ends_at_its_start_is_reported():
    """The process does not know the family, so it fails before it is ready."""
    with pytest.raises(ParserNotStarted, match="exit code 1"):
        read_file(ParserProcess(MEMORY_BYTES, "no family"), b"")


def test_the_error_names_the_signal_of_a_crash(new_process):
    new_process.wait_until_ready(lambda: None)
    os.kill(new_process.pid, signal.SIGABRT)
    with pytest.raises(ParserEnded, match="SIGABRT"):
        read_file(new_process, b"x" * AMPLE_BYTES)


def test_a_process_that_has_read_many_files_is_not_reusable():
    process = ParserProcess(MEMORY_BYTES, FormatFamily.CORE, max_files=2)
    try:
        read_file(process, pdfs.pdf_of(["a"]))
        assert process.is_reusable
        read_file(process, pdfs.pdf_of(["a"]))
        assert not process.is_reusable
    finally:
        process.kill()


def test_a_process_ends_when_its_socket_is_closed():
    parent_socket, child_socket = socket.socketpair()
    module = "indexer_svc.parsers.parser_child"
    command = [sys.executable, "-m", module, str(MEMORY_BYTES), FormatFamily.CORE]
    with child_socket:
        child = subprocess.Popen(command, stdin=child_socket, cwd=ROOT)
    with parent_socket, parent_socket.makefile("rb") as answers:
        ready, _ = received(answers.read, 0)
        assert "confined" in ready
    assert child.wait(60) == 0


ATTEMPTS = """
import os, signal, socket, subprocess, sys
from pathlib import Path
from indexer_svc.parsers.sandbox import confine
parent = os.getppid()
confined = confine(1 << 29)
for attempt in (
    lambda: open("/etc/hostname"),
    lambda: os.open("/tmp", os.O_RDONLY),
    lambda: os.listdir("/"),
    lambda: os.stat("/"),
    lambda: socket.socket(),
    lambda: subprocess.run(["/bin/true"]),
    lambda: os.fork(),
    lambda: os.kill(parent, signal.SIGCONT),
    lambda: os.truncate("/tmp/none", 0),
    lambda: os.unlink("/tmp/none"),
):
    try:
        attempt()
    except OSError as error:
        assert error.errno in (1, 24), error
    else:
        sys.exit("allowed")
os.write(1, b"all refused" if confined else b"not filtered")
os._exit(0)
"""


def test_a_confined_process_can_open_no_file_or_socket_and_start_no_process():
    completed = subprocess.run(
        [sys.executable, "-c", ATTEMPTS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (completed.stdout, completed.stderr) == ("all refused", "")
