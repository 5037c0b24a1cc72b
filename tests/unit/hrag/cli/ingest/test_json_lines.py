"""Each line of a .jsonl file is a document of its own."""

import json
from pathlib import Path

import pytest

from hrag.cli.ingest import files
from hrag.cli.ingest.input_document import GivenFields, InputDocument, Unreadable
from hrag.types import Document
from hrag.values.ids import check_document_id

LINES = (
    '{"_id": "b-1", "title": "Bees", "text": "Bees dance.", "year": 2026, "tags": ["a"]}',
    "",
    '{"content": "Honey ripens.", "source": "https://example.org", "mime_type": "text/markdown"}',
    '\ufeff{"id": 7, "body": "Wax melts."}',
)


def find(path: Path, text_field: str = "") -> list[InputDocument]:
    return files.find([path], text_field=text_field).documents


def _file(folder: Path, *lines: str) -> Path:
    path = folder / "notes.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_a_line_is_a_document_and_its_other_fields_are_metadata(tmp_path):
    path = _file(tmp_path, *LINES)
    found = find(path)
    assert [each.label for each in found] == [f"{path}:1", f"{path}:3", f"{path}:4"]
    assert [each.read().document for each in found] == [
        Document("Bees dance.", "b-1", "Bees", str(path), metadata={"year": 2026, "tags": ["a"]}),
        Document("Honey ripens.", "notes.jsonl:3", "", "https://example.org", "text/markdown"),
        Document("Wax melts.", "7", "", str(path)),
    ]


def test_the_field_of_the_text_may_be_named(tmp_path):
    path = _file(tmp_path, '{"text": "no", "answer": "Honey."}')
    (found,) = find(path, "answer")
    document = found.read().document
    assert (document.body, document.metadata) == ("Honey.", {"text": "no"})


def test_an_id_that_is_none_stands_for_a_valid_one(tmp_path):
    path = _file(tmp_path, '{"id": "a/b c", "text": "x"}', '{"id": "a_b_c", "text": "x"}')
    first, second = (check_document_id(each.read().document.document_id) for each in find(path))
    assert first != second == "a_b_c"
    (found,) = find(_file(tmp_path, '{"id": "a\\ud800", "text": "x"}'))
    check_document_id(found.read().document.document_id)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("no json", "not JSON: "),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"title": "a", "words": 3}', r"no text in text or content or body; .* words \(--text-f"),
        ('{"text": "  "}', "no text"),
        ('{"text": ["a"]}', "no text"),
        ('{"text": "a", "n": 9007199254740993}', "metadata"),
        ('{"text": "a", "n": NaN}', "metadata"),
        ('{"text": "a \\ud800"}', "text"),
        ('{"text": "a", "n": ' + "[" * 50 + "]" * 50 + "}", "metadata"),
    ],
)
def test_a_bad_line_fails_alone(tmp_path, line, says):
    path = _file(tmp_path, line, json.dumps({"text": "good"}))
    bad, good = find(path)
    with pytest.raises(Unreadable, match=says):
        bad.read()
    assert good.read().document.body == "good"


def test_bytes_that_are_no_text_fail_alone(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_bytes(bytes(range(1, 10)) + b'\xff\0\n{"text": "good"}\n')
    bad, good = find(path)
    with pytest.raises(Unreadable, match="neither text"):
        bad.read()
    assert good.read().document.document_id == "a.ndjson:2"


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("utf-16", ""),
        ("utf-16-be", ""),
        ("utf-16-le", ""),
        ("utf-32", ""),
        ("utf-32-be", ""),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
    ],
)
def test_a_file_of_wide_characters_is_refused_as_a_whole(tmp_path, written, given):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "one"}\n{"text": "two"}\n'.encode(written))
    (found,) = files.find([path], user_fields=GivenFields(encoding=given)).documents
    with pytest.raises(
        Unreadable, match=f"found in {given or 'UTF-16 or UTF-32'}; store it in UTF-8"
    ):
        found.read()


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-8-sig"])
def test_lines_of_another_encoding_are_read_with_it(tmp_path, encoding):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "Tür"}\n{"text": "Straße"}\n'.encode(encoding))
    found = files.find([path], user_fields=GivenFields(encoding=encoding)).documents
    assert [each.read().document.body for each in found] == ["Tür", "Straße"]


def test_a_missing_file_is_told_when_it_is_read(tmp_path):
    (missing,) = find(tmp_path / "none.jsonl")
    with pytest.raises(Unreadable, match="No such file"):
        missing.read()


def test_a_file_that_is_gone_meanwhile_is_told(tmp_path):
    path = _file(tmp_path, '{"text": "a"}')
    (found,) = find(path)
    path.unlink()
    with pytest.raises(Unreadable, match="No such file"):
        found.read()


def test_a_long_line_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr("hrag.cli.ingest.json_lines.MAX_LINE_BYTES", 30)
    path = _file(tmp_path, json.dumps({"text": "a" * 30}), '{"text": "good"}')
    long, good = find(path)
    with pytest.raises(Unreadable, match="43 bytes; at most 30"):
        long.read()
    document = good.read().document
    assert (document.body, document.document_id) == ("good", "notes.jsonl:2")


def test_what_the_user_says_replaces_what_the_line_says_and_lines_have_no_root(tmp_path):
    _file(tmp_path, '{"text": "a", "title": "own", "year": 1, "team": "x"}')
    given = GivenFields({"year": 2026}, "Given")
    (found,) = files.find([tmp_path], user_fields=given, root="mine").documents
    document = found.read().document
    assert (document.title, document.metadata) == ("Given", {"year": 2026, "team": "x"})
