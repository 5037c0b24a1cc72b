"""`hrag ingest` stores, skips and deletes documents, and reports what it did with each file."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.types import Document
from tests.support.documents.format_files import archive
from tests.support.documents.messages import mail_file
from tests.support.servers.processes import Running

Run = Callable[..., Any]


@pytest.fixture
def run(services: Running, tenant: str) -> Run:
    """A function that runs `hrag ingest` for the test's tenant and returns its result."""
    env = {"HRAG_INDEXER_ADDRESS": services.indexer.address, "NO_COLOR": "1", "COLUMNS": "100"}

    def ingest(*arguments: object, code: int = 0, data: bytes = b"") -> Any:
        command = ["ingest", *map(str, arguments), "--tenant", tenant]
        result = CliRunner().invoke(app, command, env=env, input=data)
        assert result.exit_code == code, result.output
        return result

    return ingest


@pytest.fixture
def ids(services: Running, tenant: str) -> Callable[[], list[str]]:
    """A function that returns the ids of the tenant's documents, in ascending order."""
    client = services.client
    return lambda: [info.document_id for info in client.list_documents(tenant).items]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "文档"
    (folder / "子").mkdir(parents=True)
    (folder / "a.md").write_text("# 概要\n\nText of a.")
    (folder / "子" / "b.txt").write_text("中文的文档，关于猫和狗。" * 5, encoding="gb18030")
    (folder / "image.bin").write_bytes(bytes(range(256)))
    (folder / "empty.md").touch()
    return folder


def _lines(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_metadata_title_and_encodings_are_stored_and_reported(run, services, tenant, folder):
    shown = run(folder, "--meta", "团队=搜索", "--meta", "year=2026").stdout
    assert f"{folder}/子/b.txt: txt, read as gb18030; the encoding is a guess" in shown
    assert f"{folder}/a.md: md, 1 section\n" in shown
    assert "2 of 2 documents: 2 created" in shown
    assert "skipped 2: 1 empty, 1 of unknown format (.bin)\n" in shown
    client = services.client
    stored = client.list_documents(tenant).items
    assert [info.metadata for info in stored] == [{"团队": "搜索", "year": 2026}] * 2
    assert [info.title for info in stored] == ["概要", ""]
    assert stored[1].source == f"{folder}/子/b.txt"
    assert client.get_text(tenant, stored[1].document_id).startswith("中文的文档")
    run(folder / "a.md", "--title", "新标题", "--id", "a.md")
    assert client.get_document(tenant, "a.md").title == "新标题"
    assert "there are 2" in run(folder, "--title", "x", code=2).stderr
    assert "--id" in run(folder, "--id", "x", code=2).stderr


def test_every_file_has_a_line_of_json(run, folder):
    *files, summary = _lines(run(folder, folder / "none.md", "--json", code=1))
    by_name = {Path(file["input"]).name: file for file in files}
    assert by_name["a.md"]["outcome"] == "created"
    assert by_name["a.md"]["document_id"] == "a.md"
    assert by_name["b.txt"]["encoding"] == "gb18030"
    assert by_name["none.md"]["error"]["message"] == "No such file or directory"
    assert (by_name["empty.md"]["outcome"], by_name["empty.md"]["reason"]) == ("skipped", "empty")
    counts = summary["summary"]
    assert (counts["created"], counts["failed"], counts["deleted"]) == (2, 1, 0)
    assert counts["skipped"] == {"of unknown format": 1, "empty": 1}


def test_binary_files_are_refused_by_name(run, folder):
    refused = run(folder, "--glob", "*.bin", code=1).stdout
    assert f"{folder}/image.bin: content is neither text nor a file of a known format" in refused
    assert "(--as)" in refused


def test_standard_input_is_one_document(run, services, tenant):
    run("-", "--id", "notes.md", "--meta", "x=1", data="# 标题\n\nText".encode())
    stored = services.client.get_document(tenant, "notes.md")
    assert (stored.title, stored.mime_type, stored.source) == ("标题", "text/markdown", "")
    assert "- must be the only PATH" in run("-", ".", code=2, data=b"x").stderr
    assert run("-", code=1, data=b" ").stdout.startswith("standard input: ")


def test_pruning_deletes_documents_whose_files_are_gone_from_the_folder(
    run, services, tenant, folder, tmp_path, ids
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "o.md").write_text("of another root")
    (folder / "old.md").write_text("it will be gone")
    services.client.ingest(tenant, Document("by a program", "p"))
    run(other, "--prune")
    run(other / "o.md", "--id", "loose.md")
    run(folder, "--prune")
    before = ids()
    (folder / "old.md").unlink()
    (folder / "a.md").rename(folder / "new.md")
    planned = run(folder, "--prune", "--dry-run").stdout
    assert "would delete a.md\nwould delete old.md\n" in planned
    assert f"would store {folder}/new.md: md, 1 section\n" in planned
    assert "would store 1, delete 2; 1 unchanged, 0 failed\n" in planned
    assert ids() == before
    # A document whose file exists is not deleted, even if the file does not match the pattern.
    done = run(folder, "--prune", "--glob", "*.txt").stdout
    assert "deleted a.md: its file is gone\ndeleted old.md: its file is gone\n" in done
    *_, summary = _lines(run(folder, "--prune", "--json"))
    assert summary["summary"]["deleted"] == 0
    remaining = [name for name in before if name not in ("a.md", "old.md")]
    assert ids() == sorted([*remaining, "new.md"])


def test_nothing_is_pruned_if_only_a_part_of_the_folder_is_read(run, folder, tmp_path, ids):
    for path in (tmp_path / "none", folder / "a.md"):
        message = re.sub(
            r"[\s│]+", " ", run(path, "--prune", code=2).stderr
        )  # Typer draws a box around the message.
        assert "is not a folder" in message
    run(folder, "--prune", "--root", "docs")
    empty = tmp_path / "unmounted"
    empty.mkdir()
    assert "no files to ingest" in run(empty, "--prune", "--root", "docs", code=1).stderr
    assert "is allowed only with --prune" in run(folder, "--root", "docs", code=2).stderr
    options = ("--glob", "a.md", "--id", "x", "--prune")
    assert "not allowed with --prune" in run(folder, *options, code=2).stderr
    moved = folder.rename(tmp_path / "moved")
    (moved / "a.md").unlink()
    done = run(moved, "--prune", "--root", "docs").stdout
    assert "deleted a.md" in done
    assert "1 unchanged" in done
    assert len(ids()) == 1


def test_a_wrong_encoding_is_refused(run, folder):
    assert "is not a text encoding" in run(folder, "--encoding", "base64", code=2).stderr
    refused = run(folder / "a.md", "--encoding", "ascii", code=1).stdout
    assert "content is not ascii: byte 0xE6 at offset 2" in refused
    assert "(--encoding)" in refused


def test_the_files_in_an_archive_are_stored_and_pruned_with_it(run, folder, ids):
    (folder / "a.zip").write_bytes(
        archive({"b.md": "# B\n\nText", "c/d.txt": "Text", "e.bin": "x"})
    )
    shown = run(folder, "--prune").stdout
    assert f"{folder}/a.zip/b.md: md, 1 section\n" in shown
    assert f"2 .bin: {folder}/image.bin, {folder}/a.zip/e.bin" in shown
    before = ids()
    assert {"a.zip:b.md", "a.zip:c:d.txt"} <= set(before)
    assert "4 unchanged" in run(folder, "--prune").stdout
    (folder / "a.zip").write_bytes(archive({"b.md": "# B\n\nText"}))
    assert "deleted a.zip:c:d.txt: its file is gone\n" in run(folder, "--prune").stdout
    (folder / "a.zip").unlink()
    assert "deleted a.zip:b.md: its file is gone\n" in run(folder, "--prune").stdout
    assert set(before) - set(ids()) == {"a.zip:b.md", "a.zip:c:d.txt"}


def test_a_dry_run_reads_the_files_and_stores_nothing(run, folder, ids):
    *outcomes, last = _lines(run(folder, "--dry-run", "--json"))
    lines = {Path(line["input"]).name: line for line in outcomes}
    summary = last["summary"]
    assert (summary["documents"], summary["would_store"], summary["unchanged"]) == (2, 2, 0)
    assert (summary["would_delete"], summary["failed"]) == (0, 0)
    assert summary["skipped"] == {"of unknown format": 1, "empty": 1}
    assert lines["a.md"]["outcome"] == "would store"
    assert lines["a.md"]["report"]["section_count"] == 1
    assert lines["b.txt"]["report"]["encoding"] == "gb18030"
    assert lines["empty.md"]["outcome"] == "skipped"
    (folder / "blank.md").write_text(" ")
    (folder / "broken.docx").write_bytes(b"no archive")
    refused = run(folder, "--dry-run", code=1).stdout
    assert f"  2 empty: {folder}/blank.md, {folder}/empty.md\n" in refused
    assert f"{folder}/broken.docx: content is a text" in refused
    assert "would store 2, delete 0; 0 unchanged, 1 failed\n" in refused


def test_verbose_shows_what_was_left_out(run, folder):
    content = mail_file(attachments=[("a.bin", "application/octet-stream", b"\0\1")])
    (folder / "mail.eml").write_bytes(content)
    shown = run(folder, "--dry-run", "--verbose").stdout
    report = f"{folder}/mail.eml: eml; left out: 1 attachment\n"
    example = "  left out: 1 attachment, for example: a.bin: content is neither text nor a file"
    assert f"would store {report}{example}" in shown
    assert f"{report}{example}" in run(folder, "--verbose").stdout


def test_the_user_names_the_format(run, services, tenant, folder):
    (folder / "page.bin").write_text("<html><p>Text")
    run(folder / "page.bin", "--id", "page")
    assert services.client.get_document(tenant, "page").mime_type == "text/html"
    run(folder / "page.bin", "--id", "page", "--as", "text")
    assert services.client.get_text(tenant, "page") == "<html><p>Text"
    assert "is no format" in run(folder, "--as", "docs", code=2).stderr
