"""A file gives the same document through every door: command line, gRPC, HTTP, `hrag read`.

This holds for each format in `hrag.values.formats`, and for files whose format or encoding must be
detected. The documents have the same text, pages, sections, metadata and chunks, and each door
returns the same report.
"""

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.cli.read_report import report_fields
from hrag.cli.tree import hierarchies, nodes
from hrag.client import Client
from hrag.errors import HragError
from hrag.types import ChunkNode, Document, DocumentInfo
from hrag.v1 import indexer_pb2
from hrag.values.formats import FORMATS, PICTURES, PYTHON, format_of, mime_type_of
from hrag.wire.indexer import ingest_result_from
from indexer_svc.text_recognition import has_ocr_extra
from tests.support.documents import odf_files
from tests.support.documents.format_files import (
    DANCE,
    HONEY,
    TITLE,
    archive,
    docx_file,
    epub_file,
    html_page,
    ods_file,
    pptx_file,
    xls_file,
    xlsx_file,
)
from tests.support.documents.messages import mail_file, msg_file
from tests.support.documents.ole_files import ole_file
from tests.support.documents.pdfs import Bookmark, encrypted_pdf, pdf_of
from tests.support.documents.pictures import picture_file, printed
from tests.support.servers.gateways import INGEST, Gateway, gateway_to
from tests.support.servers.processes import Running

GERMAN = "# Größe\n\nDie Größe der Tür und der Straße.\n"
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title"}],
}
LATEX = b"\\documentclass{article}\\author{Ann}\\begin{document}\\section{One}Text.\\end{document}"
GUESSED_MAIL = (
    b"From: Ann <ann@example.org>\r\nTo: bob@example.org\r\n"
    b"Subject: =?utf-8?q?Gr=C3=B6=C3=9Fe?="
    b"\r\nDate: Thu, 26 Nov 2026 10:00:00 +0100\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: text/plain; charset=iso-8859-1\r\n\r\nDie Gr\xf6\xdfe der T\xfcr.\r\n"
)
# A file of each format, with sections, pages, tables and metadata where the format has them.
OF_EACH_FORMAT: Mapping[str, bytes] = {
    "a.md": GERMAN.encode(),
    "front.md": b"---\ntitle: Guide\nteam: search\n---\n\n# Heading\n\nText\n",
    "plain.txt": b"Only ASCII.\r\n",
    "guide.rst": b"Guide\n=====\n\nBees\n----\n\n.. note:: Bees dance.\n",
    "page.html": html_page(),
    "report.pdf": pdf_of(["One", "Two"], [Bookmark("Two", 1, 1)], title="Report"),
    "text.docx": docx_file(),
    "slides.pptx": pptx_file(),
    "sheets.xlsx": xlsx_file(),
    "sheets.xls": xls_file(),
    "sheets.ods": ods_file(),
    "book.epub": epub_file(),
    "table.csv": b"Flower,Nectar\nClover,4 mg\nLinden,7 mg\n",
    "table.tsv": b"Flower\tNectar\nClover\t4 mg\nLinden\t7 mg\n",
    "mail.eml": mail_file(
        attachments=[
            ("honey.docx", "application/octet-stream", docx_file()),
            ("a.bin", "application/octet-stream", b"\0\1"),
        ],
        To="bob@bee.example",
        Date="Thu, 26 Nov 2026 10:00:00 +0100",
    ),
    "mail.msg": msg_file(
        {0x0037: "The dance", 0x1000: "Bees dance.\r\n", 0x0C1A: "Ann", 0x5D01: "ann@bee.example"},
        attachments=[{0x3707: "honey.txt", 0x3701: HONEY.encode()}],
    ),
    "letter.rtf": b"{\\rtf1\\ansi\\ansicpg1252 Die Gr\\'f6\\'dfe der T\\'fcr.\\par}",
    "text.odt": odf_files.odt_file(
        odf_files.heading("Dance")
        + odf_files.paragraph(DANCE)
        + odf_files.table(odf_files.row("Flower", "Nectar"), odf_files.row("Clover", "4 mg")),
        title=TITLE,
    ),
    "slides.odp": odf_files.odp_file(
        f'<draw:page draw:name="Dance"><draw:frame><draw:text-box>{odf_files.paragraph(DANCE)}'
        "</draw:text-box></draw:frame></draw:page>",
        title=TITLE,
    ),
    "notebook.ipynb": json.dumps(NOTEBOOK).encode(),
    "paper.tex": LATEX,
    "data.json": b'{"pump": {"price": 12, "parts": ["valve", "seal"]}}',
    "data.xml": '<?xml version="1.0" encoding="iso-8859-1"?><a><b>Größe</b></a>'.encode("latin-1"),
    "film.srt": b"1\r\n00:00:01,000 --> 00:00:02,000\r\nHello.\r\n",
    "film.vtt": b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello.\n",
    **{
        f"code{format_.extensions[0]}": b"class Bee { dance(); }\n"
        for format_ in FORMATS[FORMATS.index(format_of(PYTHON)) :]
    },
}
# Files whose name says little or is wrong, and texts in other encodings than UTF-8.
DETECTED: Mapping[str, bytes] = {
    "marked.md": b"\xef\xbb\xbf" + GERMAN.encode(),
    "western.md": GERMAN.encode("cp1252"),
    "wide.md": GERMAN.encode("utf-16"),
    "no-mark.txt": GERMAN.encode("utf-16-le"),
    "chinese.csv": "名称,价格\n泵,12\n阀门,7\n".encode("gb18030"),
    "page-in-text.txt": b"<!DOCTYPE html><html><h1>Page</h1><p>Text</p></html>",
    "koi8.html": '<meta charset="koi8-r"><h1>Мир</h1>'.encode("koi8_r"),
    "latin.py": "# coding: latin-1\nclass Höhe:\n    pass\n".encode("latin-1"),
    "script.sh": b"#!/bin/sh\n# No title\n",
    "text.xls": b"Name\tPrice\nPump\t12\n",
    "not-a.pdf.docx": pdf_of(["One"]),
    "guessed.eml": GUESSED_MAIL,
    "letter.doc": b"{\\rtf1\\ansi A letter with the name of a Word document.\\par}",
    "paper.txt": LATEX,
    "unknown.xyz": b"Text of an unknown format",
    "no-extension": docx_file(),
}
FILES = {**OF_EACH_FORMAT, **DETECTED}
REFUSED: Mapping[str, tuple[bytes, str]] = {
    "old.doc": (ole_file("WordDocument"), "--convert-to docx"),
    "old.ppt": (ole_file("PowerPoint Document"), "--convert-to pptx"),
    "film.mp4": (b"\0\0\0\x20ftypisom\0\0", "a recording"),
    "program": (b"\x7fELF\2\1\1\0\0", "a program"),
    "letter.pages": (archive({"Index/Document.iwa": b"\0"}), "a document of Pages"),
    "noise.md": (bytes(range(256)), "neither text nor a file of a known format"),
    "damaged.txt": (GERMAN.encode()[:-30] + b"\xff\xfe x", "content is not utf-8"),
    "broken.docx": (docx_file()[:5000], "is not a Word document"),
    "text.pdf": (b"No PDF at all", "although its name says that it is a .pdf file"),
    "locked.pdf": (encrypted_pdf(["One"], "secret"), "encrypted"),
    "broken.png": (b"\x89PNG\r\n\x1a\n", "picture"),
    "empty.txt": (b"", "content"),
}
# An archive is opened by the command line, and the other doors refuse it.
ARCHIVES: Mapping[str, tuple[bytes, str]] = {
    "a.zip": (archive({"a.md": GERMAN, "b.txt": GERMAN.encode("cp1252")}), "a ZIP archive"),
    "b.md.gz": (gzip.compress(GERMAN.encode()), "a GZIP file"),
}

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def gateway(services: Running) -> Iterator[Gateway]:
    with gateway_to(services.indexer.address, services.retriever.address) as gateway:
        yield gateway


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    refused = {name: content for name, (content, _) in {**REFUSED, **ARCHIVES}.items()}
    for name, content in {**FILES, **refused}.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def run(services: Running, tenant: str) -> Run:
    """A function that runs a command for the test's tenant; returns its lines of JSON."""
    env = {"HRAG_INDEXER_ADDRESS": services.indexer.address, "NO_COLOR": "1"}

    def run_command(command: str, *arguments: object, code: int = 0) -> list[dict[str, Any]]:
        options = ("--json",) if command == "read" else ("--json", "--tenant", tenant)
        result = CliRunner().invoke(app, [command, *map(str, arguments), *options], env=env)
        assert result.exit_code == code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run_command


def _upload(gateway: Gateway, tenant: str, collection: str, path: Path) -> Any:
    document = {
        "documentId": path.name,
        "source": str(path),
        "content": base64.b64encode(path.read_bytes()).decode(),
    }
    request = {"tenantId": tenant, "collection": collection, "document": document}
    return gateway.post(INGEST, request)


def _stored(
    client: Client, tenant: str, collection: str, name: str
) -> tuple[DocumentInfo, str, list[ChunkNode]]:
    """Returns a document as it is stored: what is known of it, its text, and all its chunks."""
    info = client.get_document(tenant, name, collection=collection)
    trees = hierarchies(client, tenant, collection, info)
    chunks = [node for hierarchy in trees for node in nodes(hierarchy)]
    return replace(info, sequence=0), client.get_text(tenant, name, collection=collection), chunks


def _check_doors(
    services: Running, gateway: Gateway, tenant: str, run: Run, paths: Sequence[Path]
) -> None:
    """Fails unless each file gives the same document and the same report through every door."""
    client = services.client
    for collection in ("grpc", "http"):
        client.create_collection(tenant, collection)
    planned = _by_name(run("ingest", "--dry-run", *paths)[:-1])
    lines = _by_name(run("ingest", *paths)[:-1])
    read = _by_name(run("read", *paths))
    for path in paths:
        name = path.name
        document = Document(path.read_bytes(), name, source=str(path))
        by_grpc = client.ingest(tenant, document, collection="grpc")
        reply = _upload(gateway, tenant, "http", path)
        assert reply.status == 200, reply.json
        by_http = ingest_result_from(ParseDict(reply.json, indexer_pb2.IngestDocumentResponse()))
        assert replace(by_http, sequence=0) == replace(by_grpc, sequence=0), name

        assert by_grpc.report is not None
        report = json.loads(json.dumps(report_fields(by_grpc.report)))
        for line in (planned[name], lines[name], read[name]):
            assert line.get("report") == report, line

        info, text, chunks = _stored(client, tenant, "default", name)
        for collection in ("grpc", "http"):
            assert _stored(client, tenant, collection, name) == (info, text, chunks), name
        assert len(chunks) == sum(info.chunks_per_level)
        assert (read[name]["title"], read[name]["metadata"]) == (info.title, info.metadata)
        assert read[name]["text"] == text
        assert (len(read[name]["pages"]), len(read[name]["sections"])) == (
            (info.page_count, info.section_count)
        )
        assert report["mime_type"] == info.mime_type
        # A document that was stored through one door is unchanged through another.
        again = client.ingest(tenant, document)
        assert (again.outcome, again.report) == ("unchanged", None), name


def _by_name(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {Path(line["input"]).name: line for line in lines}


def test_the_files_have_every_format() -> None:
    names = {mime_type_of(name) for name in OF_EACH_FORMAT}
    assert {*names, *PICTURES} == {format_.mime_type for format_ in FORMATS}


def test_a_file_gives_the_same_document_through_every_door(
    services: Running, gateway: Gateway, tenant: str, folder: Path, run: Run
) -> None:
    _check_doors(services, gateway, tenant, run, [folder / name for name in FILES])
    stored = services.client.list_documents(tenant, page_size=len(FILES)).items
    mime_types = {info.document_id: info.mime_type for info in stored}
    expected = {name: mime_type_of(name) for name in OF_EACH_FORMAT}
    assert {name: mime_types[name] for name in OF_EACH_FORMAT} == expected


@pytest.mark.skipif(not has_ocr_extra(), reason="the extra ocr is not installed")
def test_a_picture_gives_the_same_document_through_every_door(
    services: Running, gateway: Gateway, tenant: str, tmp_path: Path, run: Run
) -> None:
    paths = [tmp_path / name for name in ("page.png", "page.jpg", "page.tiff")]
    for path, form in zip(paths, ("PNG", "JPEG", "TIFF"), strict=True):
        path.write_bytes(picture_file(printed(HONEY), form))
    _check_doors(services, gateway, tenant, run, paths)
    assert {services.client.get_text(tenant, path.name) for path in paths} == {HONEY}


def test_files_that_are_not_read_are_refused_at_every_door(
    services: Running, gateway: Gateway, tenant: str, folder: Path, run: Run
) -> None:
    paths = [folder / name for name in REFUSED]
    lines = {Path(line["input"]).name: line for line in run("ingest", *paths, code=1)[:-1]}
    read = {Path(line["input"]).name: line for line in run("read", *paths, code=1)}
    for name, (content, message) in REFUSED.items():
        assert message in lines[name]["error"]["message"], name
        assert message in read[name]["error"]["message"], name
        with pytest.raises(HragError, match=message):
            services.client.ingest(tenant, Document(content, name, source=name))
        reply = _upload(gateway, tenant, "", folder / name)
        assert reply.status == 400
        assert message in reply.json["message"], name


def test_archives_are_opened_by_the_command_line_and_refused_by_the_services(
    services: Running, gateway: Gateway, tenant: str, folder: Path, run: Run
) -> None:
    paths = [folder / name for name in ARCHIVES]
    for line in [*run("ingest", *paths)[:-1], *run("read", *paths)]:
        assert line["input"].startswith(str(folder))
        assert line["report"]["section_count"] == line["input"].endswith(".md")
    texts = {
        services.client.get_text(tenant, name)
        for name in ("a.zip:a.md", "a.zip:b.txt", "b.md.gz:b.md")
    }
    assert texts == {GERMAN}
    for name, (content, message) in ARCHIVES.items():
        with pytest.raises(HragError, match=f"{message}; send each file in it"):
            services.client.ingest(tenant, Document(content, name, source=name))
        assert message in _upload(gateway, tenant, "", folder / name).json["message"]


def test_read_shows_pages_and_sections(folder: Path) -> None:
    result = CliRunner().invoke(app, ["read", str(folder / "report.pdf")], env={"NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"{folder}/report.pdf: pdf, 2 pages, 1 section",
        "title: Report",
        "  Two (page 2)",
        "",
        "--- page 1 ---",
        "One",
        "--- page 2 ---",
        "# Two",
        "",
    ]


def test_options_of_reading_apply_at_every_door(
    services: Running, gateway: Gateway, tenant: str, folder: Path, run: Run
) -> None:
    path = folder / "a.txt"
    path.write_bytes("č <b>".encode("cp1250"))
    options = ("--encoding", "windows-1250", "--as", "html", "--keep-boilerplate")
    run("ingest", path, *options)
    (read,) = run("read", path, *options)
    document = Document(
        path.read_bytes(),
        "a.txt",
        source=str(path),
        mime_type="text/html",
        encoding="windows-1250",
        keep_boilerplate=True,
    )
    assert services.client.ingest(tenant, document).outcome == "unchanged"
    assert services.client.get_text(tenant, "a.txt") == read["text"] == "č"
    content = base64.b64encode(path.read_bytes()).decode()
    sent = {"documentId": "http", "content": content, "encoding": "windows-1250"}
    reply = gateway.post(INGEST, {"tenantId": tenant, "document": sent})
    assert reply.json["report"]["encoding"] == "windows-1250"
    assert services.client.get_text(tenant, "http") == "č <b>"
