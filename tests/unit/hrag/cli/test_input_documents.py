"""Each line of a JSON Lines file is a document. Other files are sent as their bytes."""

import json
from io import BytesIO
from pathlib import Path

import pytest

from hrag.cli import ingest_files
from hrag.cli.input_documents import GivenFields, InputDocument, Unreadable, lines_of
from hrag.types import Document
from hrag.values.ids import check_document_id

LINES = (
    '{"_id": "b-1", "title": "Bees", "text": "Bees dance.", "year": 2026, "tags": ["a"]}',
    "",
    '{"content": "Honey ripens.", "source": "https://example.org", "mime_type": "text/markdown"}',
    '\ufeff{"id": 7, "body": "Wax melts."}',
)


def find(path: Path, text_field: str = "") -> list[InputDocument]:
    return ingest_files.find([path], text_field=text_field).documents


def _file(folder: Path, *lines: str) -> Path:
    path = folder / "notes.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_a_line_is_a_document_and_its_other_fields_are_metadata(tmp_path):
    path = _file(tmp_path, *LINES)
    sources = find(path)
    assert [source.label for source in sources] == [f"{path}:1", f"{path}:3", f"{path}:4"]
    assert [source.read() for source in sources] == [
        Document("Bees dance.", "b-1", "Bees", str(path), metadata={"year": 2026, "tags": ["a"]}),
        Document("Honey ripens.", "notes.jsonl:3", "", "https://example.org", "text/markdown"),
        Document("Wax melts.", "7", "", str(path)),
    ]


def test_the_user_may_name_the_field_of_the_text(tmp_path):
    path = _file(tmp_path, '{"text": "no", "answer": "Honey."}')
    (source,) = find(path, "answer")
    document = source.read()
    assert (document.body, document.metadata) == ("Honey.", {"text": "no"})


def test_an_invalid_id_is_replaced_by_a_valid_one(tmp_path):
    path = _file(tmp_path, '{"id": "a/b c", "text": "x"}', '{"id": "a_b_c", "text": "x"}')
    first, second = (check_document_id(source.read().document_id) for source in find(path))
    assert first != second == "a_b_c"
    (source,) = find(_file(tmp_path, '{"id": "a\\ud800", "text": "x"}'))
    check_document_id(source.read().document_id)


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
def test_an_invalid_line_does_not_affect_other_lines(tmp_path, line, says):
    path = _file(tmp_path, line, json.dumps({"text": "good"}))
    bad, good = find(path)
    with pytest.raises(Unreadable, match=says):
        bad.read()
    assert good.read().body == "good"


def test_a_line_of_bytes_that_are_no_text_does_not_affect_other_lines(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_bytes(bytes(range(1, 10)) + b'\xff\0\n{"text": "good"}\n')
    bad, good = find(path)
    with pytest.raises(Unreadable, match="not utf-8: byte 0xFF at offset 9; --encoding says"):
        bad.read()
    assert good.read().document_id == "a.ndjson:2"


@pytest.mark.parametrize(
    ("written", "encoding"),
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
def test_json_lines_in_utf_16_or_utf_32_are_refused_as_a_whole(tmp_path, written, encoding):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "one"}\n{"text": "two"}\n'.encode(written))
    (source,) = ingest_files.find([path], user_fields=GivenFields(encoding=encoding)).documents
    with pytest.raises(
        Unreadable, match=f"found in {encoding or 'UTF-16 or UTF-32'}; store it in UTF-8"
    ):
        source.read()


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-8-sig"])
def test_lines_are_read_in_the_encoding_that_the_user_names(tmp_path, encoding):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "Tür"}\n{"text": "Straße"}\n'.encode(encoding))
    sources = ingest_files.find([path], user_fields=GivenFields(encoding=encoding)).documents
    assert [source.read().body for source in sources] == ["Tür", "Straße"]


def test_a_missing_file_fails_when_it_is_read(tmp_path):
    (missing,) = find(tmp_path / "none.jsonl")
    with pytest.raises(Unreadable, match="No such file"):
        missing.read()


def test_a_file_that_was_deleted_fails_when_it_is_read(tmp_path):
    path = _file(tmp_path, '{"text": "a"}')
    (source,) = find(path)
    path.unlink()
    with pytest.raises(Unreadable, match="No such file"):
        source.read()


def test_a_long_line_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr("hrag.cli.input_documents.MAX_DOCUMENT_BYTES", 30)
    path = _file(tmp_path, json.dumps({"text": "a" * 30}), '{"text": "good"}')
    long, good = find(path)
    with pytest.raises(Unreadable, match="43 bytes; at most 30"):
        long.read()
    document = good.read()
    assert (document.body, document.document_id) == ("good", "notes.jsonl:2")


def test_fields_of_the_user_replace_fields_of_a_line_and_lines_have_no_root(tmp_path):
    _file(tmp_path, '{"text": "a", "title": "own", "year": 1, "team": "x"}')
    fields = GivenFields({"year": 2026}, "Given")
    (source,) = ingest_files.find([tmp_path], user_fields=fields, root="mine").documents
    document = source.read()
    assert (document.title, document.metadata) == ("Given", {"year": 2026, "team": "x"})


def test_a_file_is_sent_as_its_bytes_with_the_options_of_the_user(tmp_path):
    path = tmp_path / "a.html"
    path.write_bytes(b"caf\xe9")
    fields = GivenFields(
        {"year": 2026}, "Title", "id", "cp1252", mime_type="text/plain", keep_boilerplate=True
    )
    (source,) = ingest_files.find([path], user_fields=fields).documents
    assert source.read() == Document(
        b"caf\xe9",
        "id",
        "Title",
        str(path),
        "text/plain",
        {"year": 2026},
        encoding="cp1252",
        keep_boilerplate=True,
    )
    assert find(path)[0].read() == Document(b"caf\xe9", "a.html", source=str(path))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\n\nbc", [(1, 0, 2, b"a\n"), (2, 2, 1, b"\n"), (3, 3, 2, b"bc")]),
        (b"12345678\nab", [(1, 0, 9, b"1234"), (2, 9, 2, b"ab")]),
        (b"1234\na", [(1, 0, 5, b"1234"), (2, 5, 1, b"a")]),
        (b"123\na", [(1, 0, 4, b"123\n"), (2, 4, 1, b"a")]),
        (b"123456789", [(1, 0, 9, b"1234")]),
    ],
)
def test_a_line_longer_than_the_limit_is_cut_and_counts_as_one_line(content, lines):
    assert list(lines_of(BytesIO(content), 3)) == lines
