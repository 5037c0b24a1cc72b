"""`hrag read` shows what is read of files, and reports files that cannot be read."""

import json

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.cli.file_reader import FileReader
from hrag.types import Document
from tests.support.documents.format_files import archive
from tests.support.documents.pdfs import Bookmark, pdf_of


def run(*arguments: object, code: int = 0, data: bytes = b"") -> str:
    environment = {"NO_COLOR": "1", "COLUMNS": "100"}
    result = CliRunner().invoke(app, ["read", *map(str, arguments)], env=environment, input=data)
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(scope="module")
def reader():
    with FileReader() as reader:
        yield reader


def test_one_process_reads_any_number_of_documents(reader):
    read = reader.read(Document("# Größe\n\ntext", mime_type="text/markdown"))
    assert (read["title"], read["text"]) == ("Größe", "# Größe\n\ntext")
    assert read["sections"] == [{"title": "Größe", "depth": 1, "char_start": 0}]
    refused = reader.read(Document(b"\0\1"))
    assert refused["error"]["type"] == "UnreadableDocument"
    assert refused["error"]["field"] == "mime_type"
    again = reader.read(Document(pdf_of(["One", "Two"], [Bookmark("Two", 1, 1)])))
    assert [page["number"] for page in again["pages"]] == [1, 2]
    assert again["report"]["page_count"] == 2


def test_files_archives_and_failures_are_shown(tmp_path):
    (tmp_path / "a.zip").write_bytes(archive({"b.md": "# Title\n\nText", "c.bin": "x"}))
    (tmp_path / "d.txt").write_bytes("Größe".encode("cp1252"))
    (tmp_path / "e.md").write_bytes(b"\0\1")
    shown = run(tmp_path, code=1)
    assert (
        f"{tmp_path}/a.zip/b.md: md, 1 section\ntitle: Title\n  Title\n\n# Title\n\nText" in shown
    )
    assert f"{tmp_path}/d.txt: txt, read as windows-1252; the encoding is a guess" in shown
    assert f"{tmp_path}/e.md: content is neither text" in shown
    assert "skipped 1: 1 of unknown format (.bin)" in shown
    lines = [json.loads(line) for line in run(tmp_path, "--json", code=1).splitlines()]
    assert [sorted(line) for line in lines[:1]] == [
        ["input", "metadata", "pages", "report", "sections", "text", "title"]
    ]
    assert lines[2]["error"]["type"] == "UnreadableDocument"


def test_standard_input_and_options(tmp_path):
    options = ("--encoding", "windows-1250", "--as", "md")
    assert "č" in run("-", *options, data="č".encode("cp1250"))
    assert "title: A" in run("-", "--id", "a.md", data=b"# A")
    path = tmp_path / "a.md"
    path.write_text("x")
    run(path, "--as", "docs", code=2)
    run("-", path, code=2)
    assert run(tmp_path / "none.md", code=1) == f"{tmp_path}/none.md: No such file or directory\n"
    run(tmp_path / "empty", code=1)


def test_pictures_in_folders_without_recognition_are_skipped_and_named_ones_fail(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HRAG_OCR_MAX_PAGES", "0")
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "b.md").write_text("Text")
    shown = run(tmp_path)
    assert "skipped 1: 1 picture whose text was not recognised\n" in shown
    assert f"  1 picture whose text was not recognised: {picture}; " in shown
    assert f"{picture}: content is a picture, whose text must be recognised; " in run(
        picture, code=1
    )
