"""A parser process reads what the same code reads here, and is confined."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hrag.errors import TooLarge, UnreadableDocument
from hrag.types import MARKDOWN, PDF
from hrag.values.deadline import Deadline
from hrag.values.formats import DOCX, EPUB, HTML, PPTX, XLSX
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import Family, parse
from indexer_svc.parsers.parser_process import ParserEnded, ParserNotStarted, ParserProcess
from indexer_svc.parsers.protocol import ParserFault
from tests.support.documents import pdfs
from tests.support.documents.bombs import inflating_page, repeated_page
from tests.support.documents.format_files import (
    docx_file,
    epub_file,
    html_page,
    pptx_file,
    with_part,
    xlsx_file,
)

PLENTY = 1 << 25
MEMORY_BYTES = 1 << 29
LEAST_MEMORY_BYTES = 128 << 20
ROOT = Path(__file__).resolve().parents[4]


def read(
    process: ParserProcess, content: bytes, mime_type: str = PDF, cpu_s: float = 60.0
) -> ParsedFile:
    deadline = Deadline.after(60)

    def check() -> None:
        deadline.check("reading")

    process.wait_until_ready(check)
    request = {"mime_type": mime_type, "max_text_bytes": PLENTY, "cpu_s": cpu_s}
    return process.parse(request, content, PLENTY, check)


@pytest.fixture(scope="module")
def process() -> Iterator[ParserProcess]:
    process = ParserProcess(MEMORY_BYTES, Family.CORE)
    yield process
    assert process.is_alive
    assert process.kill() == "SIGKILL"


@pytest.fixture
def own_process() -> Iterator[ParserProcess]:
    process = ParserProcess(MEMORY_BYTES, Family.CORE)
    yield process
    process.kill()


MARKDOWN_TEXTS = (
    "",
    "\ufeff---\ntitle: 'T é'\n---\n# One *x* &amp; `y` ![i](u)\n\n- a\n  - b\n\n> q\n\nTwo\n===\n",
    "# 猫 😀\r\n\r\n## B\r\n" * 500,
    "[x]: y 't'\n# [x] \\# &copy;\n<div>\n# no\n</div>\n\n    # no\n```\n# no\n```\n###### Six\n",
)


@pytest.mark.parametrize("text", MARKDOWN_TEXTS)
def test_markdown_reads_as_it_does_here(process, text):
    content = text.encode()
    assert read(process, content, MARKDOWN) == parse(content, MARKDOWN, PLENTY)


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
def test_a_pdf_reads_as_it_does_here(process, content):
    assert read(process, content) == parse(content, PDF, PLENTY)


@pytest.fixture(scope="module")
def extra_process() -> Iterator[ParserProcess]:
    """One with so little memory as is allowed."""
    process = ParserProcess(LEAST_MEMORY_BYTES, Family.EXTRA)
    yield process
    assert process.is_alive
    process.kill()


LEGACY_PAGE = "<meta charset=windows-1251><title>Мёд</title><p>Мёд".encode("cp1251")
BROKEN_DOCX = with_part(docx_file(), "word/document.xml", b"<a>" * 500)


@pytest.mark.parametrize(
    ("mime_type", "content"),
    [
        (HTML, html_page()),
        (HTML, LEGACY_PAGE),
        (DOCX, docx_file()),
        (PPTX, pptx_file()),
        (XLSX, xlsx_file()),
        (EPUB, epub_file()),
    ],
)
def test_other_formats_read_as_they_do_here(extra_process, mime_type, content):
    read_here = parse(content, mime_type, PLENTY)
    assert read_here.text
    assert read(extra_process, content, mime_type) == read_here


@pytest.mark.parametrize(
    ("mime_type", "content"),
    [
        (HTML, b"\xff"),
        (HTML, b"<meta charset=klingon>\xff"),
        (DOCX, xlsx_file()),
        (DOCX, BROKEN_DOCX),
        (PPTX, b"PK\x03\x04"),
        (XLSX, xlsx_file()[:3000]),
        (EPUB, epub_file(**{"OEBPS/book.opf": ""})),
    ],
)
def test_other_formats_are_refused_as_they_are_here(extra_process, mime_type, content):
    with pytest.raises(UnreadableDocument) as here:
        parse(content, mime_type, PLENTY)
    with pytest.raises(UnreadableDocument) as there:
        read(extra_process, content, mime_type)
    assert there.value.message == here.value.message


def test_a_process_loads_the_libraries_of_its_family_alone():
    program = (
        "import sys; from indexer_svc.parsers.parser_functions import Family, load;"
        " load(Family({!r}));"
        "print(sorted({{*sys.modules}} & {{'mammoth', 'python_calamine', 'selectolax',"
        " 'pypdfium2', 'markdown_it', 'numpy', 'lmdb', 'grpc'}}))"
    )
    loaded = {
        family: subprocess.check_output([sys.executable, "-c", program.format(family.value)])
        for family in Family
    }
    assert loaded[Family.CORE] == b"['markdown_it', 'pypdfium2']\n"
    assert loaded[Family.EXTRA] == b"['mammoth', 'python_calamine', 'selectolax']\n"


@pytest.mark.parametrize("content", [pdfs.broken_pdf(), b"", pdfs.encrypted_pdf(["a"], "secret")])
def test_a_refusal_is_the_same_as_here(process, content):
    with pytest.raises(UnreadableDocument) as here:
        parse(content, PDF, PLENTY)
    with pytest.raises(UnreadableDocument) as there:
        read(process, content)
    assert there.value.message == here.value.message


def test_too_much_text_is_refused_while_it_is_read(process):
    content = pdfs.pdf_of(["x" * 60] * 20)
    request = {"mime_type": PDF, "max_text_bytes": 100, "cpu_s": 10}
    with pytest.raises(TooLarge, match="first 2 pages; HRAG_MAX_DOCUMENT_BYTES allows 100"):
        process.parse(request, content, PLENTY, lambda: None)


def test_an_unexpected_error_is_a_fault(process):
    with pytest.raises(ParserFault, match="KeyError"):
        read(process, b"x", "text/unknown")


def test_more_memory_than_the_limit_ends_the_process(own_process):
    with pytest.raises(ParserEnded):
        read(own_process, inflating_page())
    assert not own_process.is_alive
    assert not own_process.is_reusable


def test_the_least_memory_that_is_allowed_reads_pdfs():
    process = ParserProcess(LEAST_MEMORY_BYTES, Family.CORE)
    try:
        assert read(process, pdfs.pdf_of(["x"] * 100)).text.count("x") == 100
    finally:
        process.kill()


def test_more_processor_time_than_the_limit_ends_the_process(own_process):
    with pytest.raises(ParserEnded, match="SIGPROF"):
        read(own_process, repeated_page(), cpu_s=0.2)


def test_a_process_that_ends_at_its_start_says_so(monkeypatch):
    monkeypatch.setattr("indexer_svc.parsers.parser_process._MODULE", "no_such_module")
    with pytest.raises(ParserNotStarted, match="exit code 1"):
        read(ParserProcess(MEMORY_BYTES, Family.CORE), b"")


def test_a_crash_is_named(own_process):
    own_process.wait_until_ready(lambda: None)
    os.kill(own_process.pid, signal.SIGABRT)
    with pytest.raises(ParserEnded, match="SIGABRT"):
        read(own_process, b"x" * PLENTY)


def test_a_process_that_has_read_many_files_is_not_reused(own_process, monkeypatch):
    monkeypatch.setattr("indexer_svc.parsers.parser_process._MAX_FILES", 2)
    read(own_process, pdfs.pdf_of(["a"]))
    assert own_process.is_reusable
    read(own_process, pdfs.pdf_of(["a"]))
    assert not own_process.is_reusable


def test_it_ends_when_its_socket_closes(own_process):
    own_process.wait_until_ready(lambda: None)
    own_process._socket.close()
    assert own_process._process.wait(10) == 0


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


def test_a_confined_process_reaches_nothing():
    ran = subprocess.run(
        [sys.executable, "-c", ATTEMPTS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("all refused", "")
