"""Parsers of files, credentials and command-line filters refuse invalid input quickly.

They raise the documented error.
"""

import random
import re
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
import typer
from structlog.testing import capture_logs

from hrag.cli.option_values import parse_filters
from hrag.errors import InvalidArgument, TooLarge, Unauthenticated
from hrag.server.auth.api_keys import ApiKeys
from hrag.server.auth.web_tokens import TokenPolicy, WebTokens
from hrag.text.sentences import sentence_ends
from hrag.types import MARKDOWN, MAX_TITLE_BYTES, PDF, PLAIN_TEXT, Document, TreeSettings
from hrag.values.deadline import Deadline
from hrag.values.formats import (
    CSV,
    DOCX,
    EML,
    EPUB,
    HTML,
    JSON,
    LATEX,
    MSG,
    NOTEBOOK,
    ODP,
    ODS,
    ODT,
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
from indexer_svc.chunker import build_tree
from indexer_svc.extract import extract
from indexer_svc.parsers.parser_functions import parse
from indexer_svc.parsers.parser_pool import Parse, ParserPool
from tests.fuzz.damage import damaged
from tests.fuzz.test_fuzz import SEED
from tests.support.documents.format_files import (
    archive,
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
from tests.support.documents.odf_files import (
    cell,
    heading,
    item,
    level,
    list_of,
    list_style,
    odp_file,
    odt_file,
    paragraph,
    row,
    table,
    text_style,
)
from tests.support.documents.pdfs import Bookmark, encrypted_pdf, pdf_of, pdf_without_text
from tests.support.servers.credentials import AUDIENCE, ISSUER, new_issuer, new_key, write_jwks

FEWEST, FEW, MORE, MANY = 10, 150, 1_000, 10_000
# The most processor time for parsing some kilobytes, in seconds. Most files need a hundredth of it.
_SOON_S = 5.0
# The seconds in which a parser process must have read such a file, also on a busy machine.
_READ_S = 60.0
_LONG_S = 1_200.0
_PARSER_MEMORY_BYTES = 512 << 20
# The memory that this process may take beyond what it has before a test.
_GROWTH_BYTES = 1 << 30
_SMALL = (TreeSettings((32, 64, 128)), TreeSettings((32, 33, 40), 0.5, 1))

_PDFS = (
    pdf_of(["Fish swim.\nDogs bark.", "Cats.", ""], [Bookmark("One", 1, 0), Bookmark("B", 2, 1)]),
    encrypted_pdf(["Nobody knows."], ""),
    encrypted_pdf(["Nobody knows."], "password"),
    pdf_without_text(),
    b"/Count 99999999 /Kids [6 0 R 6 0 R] /Length -1 /Prev 0 stream << >> endobj %%EOF",
)
_MARKDOWNS = (
    b"---\na: b\n---\n# One *x* `y`\n\n- a\n  - b\n    1. c\n\n> d\n\n```\n# no\n```\n\nTwo\n===\n",
    b"---\ntitle: \"T \\u00e9\" # c\nb: 'it''s'\n---\nTwo lines\nof title\n===\n",
    "[x]: y 't'\n# [x] ![i](u) &amp; \\# 猫\n<div>\n# no\n</div>\n\n    # no\n| a |\n".encode(),
    b"#" * 50 + b"[" * 50 + b"> " * 50 + b"- " * 50 + b"*_`<!--?>\r\n" * 20,
)
_TEXTS = (
    "Dogs bark. 猫睡觉。 A. B. e.g. c! \u3000\f\n\n- d\n# E\n".encode() * 5,
    "e\u0301👩‍👩‍👧‍👦🇩🇪\u200b\ufeff".encode() * 20,
    b"\xef\xbb\xbf" + b"." * 300 + b" \r\n\x01" * 20,
)


_TABLES = (
    b'Name;Price\n"Pump; b\nig";1,5\n' + '猫;""\n'.encode() * 100,
    b"a,b\tc|d\r\n1,2\t3|4\r\n" * 5,
)
_RST = (
    "====\nBook\n====\n\n:ref:`a <b>`\n---------\n::\n\n  x\n  -\n\n猫\n==\n".encode() * 3,
    b"a\n=\n" * 30 + b"`" * 50 + b"\n" + b"-" * 60 + b"\n",
)
_PYTHON = (
    b'"""a\ndef b(): pass"""\n@c\nclass D:\n    async def e(self, f=\'"\'):  # g\n        pass\n'
    * 3,
)
_HTML = (
    html_page(),
    b"<meta charset=gbk>\xc3\xa8<table><tr><td rowspan=3 colspan=9>a<ol><li>b<pre>c<h1>d</table>",
)
_RICH_TEXTS = (
    (
        rb"{\rtf1\ansi{\fonttbl{\f1\fcharset204 x;}}{\stylesheet{\s1 heading 1;}}{\info{\title T}}"
        rb"\pard\s1 A\par{\listtext 1.}\pard\f1\'cf\u-10179?\u-8704?{\*\footnote n}\par"
        rb"\trowd\pard\intbl a\cell b\cell\row\pard{\pict 00}\bin3 }}}x}"
    ),
)
_JSONS = (
    b'{"a": [{"b": 1, "c": "x"}, {"b": 2.5e9, "c": null}], "d.e": {"title": "\\ud83d\\ude00"}}',
    b'{"a": 1}\n{"a": [[true], {}], "a": "' + b"QUJD" * 200 + b'"}\n',
)
_XMLS = (
    (
        b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY e 'x'>]><a xmlns:b='u'>"
        b"<b:c d='&e;'>x<i>y</i>&eacute;"
        b"</b:c><r k='1'><v>z</v></r><r k='2'><v>z</v></r><![CDATA[&]]><!-- c --></a>"
    ),
)
_CAPTIONS = (
    b"WEBVTT - T\nLanguage: en\n\nNOTE x\n\n1\n00:01.000 --> 00:02.000\n<v Ann>a <c>b</c>\n\n"
    b"00:01:02.000 --> 00:01:03.000\na b\nc &amp; d\n" * 3,
    b"1\n00:00:01,000 --> 00:00:02,000\n<i>a</i>\n\n2\n00:00:02,000 --> 00:00:03,000\na\nb\n",
)
_LATEXS = (
    rb"\documentclass{a}\newcommand{\x}{y}\title{T}\author{A \and B}\begin{document}\section{S} % c"
    b"\n" + rb"\begin{itemize}\item[l] caf\'e $x_1$ \x\end{itemize}\begin{tabular}{ll}a & b \\ c &"
    rb"\multicolumn{2}{c}{d}\end{tabular}\begin{equation}x\end{equation}\verb|z|\cite{k}"
    rb"\begin{verbatim}%\end{verbatim}\textsuperscript{2}\[ y \]\input{f}\end{document}",
)
_NOTEBOOKS = (
    (
        b'{"cells": [{"cell_type": "markdown", "source": ["# A\\n", "b"]},'
        b'{"cell_type": "code", "source": "x", "outputs": [{"output_type": "stream", "text": "y"},'
        b'{"output_type": "execute_result", "data": {"text/plain": ["z"]}}]}],'
        b'"metadata": {"title": "T"}}'
    ),
)
_MAILS = (
    mail_file(
        "Bees dance.",
        "<p>Bees <b>dance</b><ul><li>x</ul>",
        [("a.csv", "text/csv", b"a,b\n1,2\n"), ("b.md", "text/markdown", b"# b\n")],
        [mail("Inner.", To="Bob <b@x.example>")],
        Date="Thu, 26 Nov 2026 04:00:00 +0100",
    ),
    b"Subject: =?utf-8?q?=C3=A9?=\nContent-Type: text/plain; charset=gbk\n\na \nb\n> c\n",
)
_OUTLOOK_MESSAGES = (
    msg_file(
        {0x37: "The dance", 0x1000: "Bees dance.", 0x1013: b"<p>Bees", 0x0C1A: "Ann"},
        [{0x3001: "Bob", 0x39FE: "b@x.example", 0x0C15: 1}],
        [{0x3707: "a.csv", 0x3701: b"a,b\n1,2\n"}],
        [{0x37: "Inner", 0x1000: "Inner."}],
    ),
)
_ODT_STYLES = list_style("L", level(1, "1"), level(2, "a")) + text_style(
    "s", 'text:display="none" style:text-position="super"'
)
_ODT_BODY = (
    heading("Bees")
    + list_of("one", item("two", list_of("three")), attributes='text:style-name="L"')
    + table(row("a", cell("b", 'table:number-rows-spanned="2"')), row("c", "d"))
    + paragraph("x<text:span text:style-name='s'>y</text:span><text:s text:c='3'/>")
)
# The DOCX file has one style, because hundreds of unused styles would take most of a test's time.
_STYLES = (
    b'<w:styles xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    b'<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>'
    b"</w:styles>"
)
_ARCHIVES = {
    DOCX: with_part(docx_file(), "word/styles.xml", _STYLES),
    PPTX: pptx_file(),
    XLSX: xlsx_file(),
    ODS: ods_file(),
    EPUB: epub_file(),
    ODT: odt_file(_ODT_BODY, _ODT_STYLES, "Bees"),
    ODP: odp_file(f"<draw:page><draw:frame>{_ODT_BODY}</draw:frame></draw:page>", _ODT_STYLES),
}


def _times(count: int, more: int = MANY) -> pytest.MarkDecorator:
    """Runs a test with `count` damaged files, in the slow group with a fifth of `more`.

    The endurance group has all `more` files.
    """
    slow = pytest.param(more // 5, marks=[pytest.mark.slow, pytest.mark.timeout(600)])
    endurance = pytest.param(more, marks=[pytest.mark.endurance, pytest.mark.timeout(1200)])
    return pytest.mark.parametrize("count", [count, slow, endurance])


@pytest.fixture(autouse=True)
def _limited_memory() -> Iterator[None]:
    """Limits the memory of this process: a file that needs endless memory fails its test alone."""
    (data_kib,) = re.findall(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(data_kib) * 1024 + _GROWTH_BYTES, hard_limit))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))


def _damaged(whole: Sequence[bytes], count: int) -> Iterator[bytes]:
    draw = random.Random(SEED)
    for _ in range(count):
        yield damaged(draw.choice(whole), draw, whole)


@_times(FEW)
@pytest.mark.parametrize(
    ("mime_type", "whole"),
    [
        (PDF, _PDFS),
        (MARKDOWN, _MARKDOWNS),
        (PLAIN_TEXT, _TEXTS),
        (CSV, _TABLES),
        (RST, _RST),
        (PYTHON, _PYTHON),
        (HTML, _HTML),
        (RTF, _RICH_TEXTS),
        (JSON, _JSONS),
        (VTT, _CAPTIONS),
        (SRT, _CAPTIONS),
        (LATEX, _LATEXS),
        (NOTEBOOK, _NOTEBOOKS),
        (EML, _MAILS),
    ],
    ids=[
        *("pdf", "markdown", "text", "csv", "rst", "python", "html", "rtf", "json", "vtt"),
        *("srt", "latex", "notebook", "mail"),
    ],
)
def test_a_damaged_file_is_parsed_or_refused(
    mime_type: str, whole: Sequence[bytes], count: int
) -> None:
    _check_damaged(mime_type, whole, count)


@_times(FEW)
@pytest.mark.parametrize(("mime_type", "whole"), [(MSG, _OUTLOOK_MESSAGES), (XML, _XMLS)])
def test_a_damaged_file_is_parsed_or_refused_at_any_ratio(
    mime_type: str, whole: Sequence[bytes], count: int
) -> None:
    """Damage to the padding of an Outlook message is harmless; damage to XML almost never is."""
    extract(Document(whole[0], mime_type=mime_type), 1 << 20, parse)
    _check(mime_type, _damaged(whole, count), 0)


@_times(FEWEST, MORE)
@pytest.mark.parametrize("mime_type", _ARCHIVES)
def test_a_damaged_archive_is_parsed_or_refused(mime_type: str, count: int) -> None:
    """Either bytes of the archive are damaged, or a file in it, whose checksum is valid."""
    whole = _ARCHIVES[mime_type]
    extract(Document(whole, mime_type=mime_type), 1 << 20, parse)
    _check(mime_type, _damaged([whole], count), 0)
    _check(mime_type, _with_damaged_parts(whole, count), 0)


@_times(FEWEST, MORE)
def test_a_damaged_old_workbook_is_parsed_or_refused(count: int) -> None:
    """For some of these files calamine needs endless memory, which ends its process."""
    pool = ParserPool(2, _PARSER_MEMORY_BYTES, _READ_S)
    parse_confined = partial(pool.parse, "tenant", Deadline.after(_LONG_S))
    with closing(pool), capture_logs():
        extract(Document(xls_file(), mime_type=XLS), 1 << 20, parse_confined)
        _check(XLS, _damaged([xls_file()], count), 0, parse_confined)


def _with_damaged_parts(content: bytes, count: int) -> Iterator[bytes]:
    draw = random.Random(SEED)
    with ZipFile(BytesIO(content)) as zipped:
        parts = {name: zipped.read(name) for name in zipped.namelist()}
    markup = [name for name in parts if name.endswith((".xml", ".rels", ".opf", ".xhtml"))]
    for _ in range(count):
        name = draw.choice(markup)
        yield archive({**parts, name: damaged(parts[name], draw, list(parts.values()))})


def _check_damaged(mime_type: str, whole: Sequence[bytes], count: int) -> None:
    extract(Document(whole[0], mime_type=mime_type), 1 << 20, parse)
    _check(mime_type, _damaged(whole, count), count / 20)


def _check(
    mime_type: str, contents: Iterator[bytes], at_least: float, parse: Parse = parse
) -> None:
    """Fails unless each content is parsed or refused within `_SOON_S`, or by a parser in its time.

    At least `at_least` contents must be parsed, and as many must be refused.
    """
    read = Counter[bool]()
    for content in contents:
        began = time.thread_time()
        try:
            extracted = extract(Document(content, mime_type=mime_type), 1 << 20, parse)
        except TooLarge as error:
            if error.limit == "parser_time":
                raise
            read[False] += 1
        except InvalidArgument:
            read[False] += 1
        else:
            read[True] += 1
            parsed = extracted.parsed
            assert len(extracted.title.encode()) <= MAX_TITLE_BYTES
            assert sentence_ends(parsed.text)[-1] == len(parsed.text)
            for settings in _SMALL:
                build_tree(parsed, settings)
        assert time.thread_time() - began < _SOON_S, content.hex()
    assert min(read[True], read[False]) >= at_least


def _api_key(folder: Path) -> tuple[str, Callable[[str], object]]:
    return new_key(folder / "keys.json"), ApiKeys(folder / "keys.json")


def _web_token(folder: Path) -> tuple[str, Callable[[str], object]]:
    issuer = new_issuer()
    terms = TokenPolicy(ISSUER, AUDIENCE, 30, "tenants", "role")
    return issuer.token(), WebTokens(write_jwks(folder / "jwks.json", issuer), terms)


@_times(FEW)
@pytest.mark.parametrize("create", [_api_key, _web_token])
def test_a_damaged_credential_is_refused(
    create: Callable[[Path], tuple[str, Callable[[str], object]]], count: int, tmp_path: Path
) -> None:
    right, admit = create(tmp_path)
    admit(right)
    refused = 0
    with capture_logs():
        for raw in _damaged([right.encode(), b"..", b"hrag__"], count):
            # The server refuses credentials that are not ASCII before they reach these classes.
            credential = raw.decode("ascii", "ignore")
            if credential != right:
                with pytest.raises(Unauthenticated):
                    admit(credential)
                refused += 1
    assert refused > count / 2


@_times(FEW)
def test_a_damaged_filter_is_parsed_or_refused(count: int) -> None:
    whole = (
        b'team=["a","b"]', b"year>=2026", b"date<2026-11-21T10:00:00Z", b"!title", b"a.b!=true",
        b"a=" + b"[" * 5000, b"a=" + b"9" * 5000, b"a>1e999",
    )  # fmt: skip
    read = Counter[bool]()
    for raw in _damaged(whole, count):
        try:
            parse_filters([raw.decode("utf-8", "surrogateescape")])
            read[True] += 1
        except typer.BadParameter:
            read[False] += 1
    assert min(read.values()) > count / 20
