"""A file gives the same document through every door: command line, gRPC, HTTP, `hrag read`."""

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.errors import HragError
from hrag.types import Document
from tests.support.documents.format_files import (
    archive,
    docx_file,
    epub_file,
    html_page,
    pptx_file,
    xlsx_file,
)
from tests.support.documents.ole_files import ole_file
from tests.support.documents.pdfs import Bookmark, pdf_of
from tests.support.servers.gateways import INGEST, Gateway, gateway_to
from tests.support.servers.processes import Running

GERMAN = "# Größe\n\nDie Größe der Tür und der Straße.\n"
FILES: Mapping[str, bytes] = {
    "a.md": GERMAN.encode(),
    "marked.md": b"\xef\xbb\xbf" + GERMAN.encode(),
    "western.md": GERMAN.encode("cp1252"),
    "wide.md": GERMAN.encode("utf-16"),
    "no-mark.txt": GERMAN.encode("utf-16-le"),
    "chinese.csv": "名称,价格\n泵,12\n阀门,7\n".encode("gb18030"),
    "plain.txt": b"Only ASCII.\r\n",
    "page.html": html_page(),
    "page-in-text.txt": b"<!DOCTYPE html><html><h1>Page</h1><p>Text</p></html>",
    "koi8.html": '<meta charset="koi8-r"><h1>Мир</h1>'.encode("koi8_r"),
    "code.py": "# coding: latin-1\nclass Höhe:\n    pass\n".encode("latin-1"),
    "script.sh": b"#!/bin/sh\n# No title\n",
    "table.xls": b"Name\tPrice\nPump\t12\n",
    "report.pdf": pdf_of(["One", "Two"], [Bookmark("Two", 1, 1)], title="Report"),
    "not-a.pdf.docx": pdf_of(["One"]),
    "text.docx": docx_file(),
    "slides.pptx": pptx_file(),
    "sheets.xlsx": xlsx_file(),
    "book.epub": epub_file(),
    "mail.eml": (
        b"From: Ann <ann@example.org>\r\nTo: bob@example.org\r\n"
        b"Subject: =?utf-8?q?Gr=C3=B6=C3=9Fe?="
        b"\r\nDate: Thu, 26 Nov 2026 10:00:00 +0100\r\nMIME-Version: 1.0\r\n"
        b"Content-Type: text/plain; charset=iso-8859-1\r\n\r\nDie Gr\xf6\xdfe der T\xfcr.\r\n"
    ),
    "letter.rtf": b"{\\rtf1\\ansi\\ansicpg1252 Die Gr\\'f6\\'dfe der T\\'fcr.\\par}",
    "letter.doc": b"{\\rtf1\\ansi A letter with the name of a Word document.\\par}",
    "notebook.ipynb": json.dumps(
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {},
            "cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title"}],
        }
    ).encode(),
    "paper.tex": b"\\documentclass{article}\\begin{document}\\section{One}Text.\\end{document}",
    "paper.txt": b"\\documentclass{article}\\begin{document}\\section{One}Text.\\end{document}",
    "data.json": b'{"pump": {"price": 12, "parts": ["valve", "seal"]}}',
    "data.xml": '<?xml version="1.0" encoding="iso-8859-1"?><a><b>Größe</b></a>'.encode("latin-1"),
    "film.srt": b"1\r\n00:00:01,000 --> 00:00:02,000\r\nHello.\r\n",
    "film.vtt": b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello.\n",
    "front.md": b"---\ntitle: Guide\nteam: search\n---\n\n# Heading\n\nText\n",
    "unknown.xyz": b"Text of an unknown format",
    "no-extension": docx_file(),
}
REFUSED: Mapping[str, tuple[bytes, str]] = {
    "old.doc": (ole_file("WordDocument"), "--convert-to docx"),
    "old.ppt": (ole_file("PowerPoint Document"), "--convert-to pptx"),
    "film.mp4": (b"\0\0\0\x20ftypisom\0\0", "a recording"),
    "program": (b"\x7fELF\2\1\1\0\0", "a program"),
    "noise.md": (bytes(range(256)), "neither text nor a file of a known format"),
    "damaged.txt": (GERMAN.encode()[:-30] + b"\xff\xfe x", "content is not utf-8"),
    "broken.docx": (docx_file()[:5000], "is not a Word document"),
    "text.pdf": (b"No PDF at all", "although its name is the name of application/pdf"),
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


def test_a_file_gives_the_same_document_through_every_door(
    services: Running, gateway: Gateway, tenant: str, folder: Path, run: Run
) -> None:
    client = services.client
    for collection in ("grpc", "http"):
        client.create_collection(tenant, collection)
    paths = [folder / name for name in FILES]
    lines = {Path(line["input"]).name: line for line in run("ingest", *paths)[:-1]}
    read = {Path(line["input"]).name: line for line in run("read", *paths)}
    for path in paths:
        name = path.name
        document = Document(path.read_bytes(), name, source=str(path))
        by_grpc = client.ingest(tenant, document, collection="grpc")
        by_http = _upload(gateway, tenant, "http", path)
        assert by_http.status == 200, by_http.json
        stored = [
            client.get_document(tenant, name, collection=collection)
            for collection in ("default", "grpc", "http")
        ]
        assert len({_described(info) for info in stored}) == 1, name
        texts = {client.get_text(tenant, name, collection=c) for c in ("default", "grpc", "http")}
        assert texts == {read[name]["text"]}, name
        assert stored[0].title == read[name]["title"]
        assert stored[0].metadata == read[name]["metadata"]
        # Each door reports the same.
        report = by_grpc.report
        assert report is not None
        assert lines[name]["report"]["encoding"] == report.encoding
        assert read[name]["report"]["mime_type"] == report.mime_type == stored[0].mime_type
        assert by_http.json["report"].get("encoding", "") == report.encoding
        assert by_http.json["report"].get("sectionCount", 0) == report.section_count
        # A document that was stored through one door is unchanged through another.
        again = client.ingest(tenant, document)
        assert again.outcome == "unchanged", name
        assert again.report is None


def _described(info: Any) -> tuple[object, ...]:
    metadata = json.dumps(info.metadata, sort_keys=True)
    return info.title, info.source, info.mime_type, metadata, info.page_count, info.section_count


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
