"""An export is written to a file or a pipe, and its lines are read back as documents."""

import os
from io import BytesIO
from pathlib import Path

import pytest

from hrag.cli import export
from hrag.cli.export import documents_of_lines, open_output
from hrag.cli.input_documents import Unreadable, lines_of
from hrag.cli.terminal import Failure


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(TypeError), open_output(target) as file:
        file.writelines([b"ne", None])
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    with open_output(target) as file:
        file.write(b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_a_file_is_durable_before_it_replaces_the_old_one(tmp_path, monkeypatch):
    """Otherwise a power loss could leave an empty file in the place of the old one."""
    target = tmp_path / "export"
    target.write_bytes(b"old")
    contents = {}

    def note(path):
        contents[path.name] = target.read_bytes(), path.is_dir()

    monkeypatch.setattr(export.durable_files, "sync", note)
    with open_output(target) as file:
        file.write(b"new")
    assert contents == {"export.partial": (b"old", False), tmp_path.name: (b"new", True)}


def test_a_pipe_is_written_to_and_not_replaced():
    reader, writer = os.pipe()
    with open_output(Path(f"/dev/fd/{writer}")) as file:
        file.write(b"lines")
    assert os.read(reader, 100) == b"lines"
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("name", "says"),
    [("file/out", "Not a directory"), ("none/out", "No such file"), ("x" * 255, "too long")],
)
def test_the_error_says_why_the_output_cannot_be_written(tmp_path, name, says):
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match=says), open_output(tmp_path / name):
        pass


def test_each_line_is_a_document_and_only_a_line_that_is_too_long_fails(monkeypatch):
    monkeypatch.setattr(export, "MAX_LINE_BYTES", 30)
    file = BytesIO(b'{"id": "a", "text": "x"}\n\n{"id": "b", "text": "too long, it is"}\n{}')
    good, long, bad = documents_of_lines(lines_of(file, 30))
    assert (good.label, good.read().document_id) == ("line 1", "a")
    assert (long.label, bad.label) == ("line 3", "line 4")
    with pytest.raises(Unreadable, match="39 bytes; at most 30"):
        long.read()
    with pytest.raises(Unreadable, match="id is missing"):
        bad.read()
