"""Where an export is written to, and its lines as documents."""

import os
from io import BytesIO
from pathlib import Path

import pytest

from hrag.cli import export
from hrag.cli.export import _open_output
from hrag.cli.input_documents import Unreadable, lines_of
from hrag.cli.terminal import Failure


def test_a_file_is_replaced_once_the_new_one_is_whole(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(TypeError), _open_output(target) as file:
        file.writelines([b"ne", None])
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]
    with _open_output(target) as file:
        file.write(b"new")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["new"]


def test_a_pipe_is_written_to_and_stays():
    reader, writer = os.pipe()
    with _open_output(Path(f"/dev/fd/{writer}")) as file:
        file.write(b"lines")
    assert os.read(reader, 100) == b"lines"
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("name", "says"),
    [("file/out", "Not a directory"), ("none/out", "No such file"), ("x" * 255, "too long")],
)
def test_where_nothing_can_be_written_the_reason_is_told(tmp_path, name, says):
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match=says), _open_output(tmp_path / name):
        pass


def test_each_line_is_a_document_and_a_long_one_fails_alone(monkeypatch):
    monkeypatch.setattr(export, "MAX_LINE_BYTES", 30)
    file = BytesIO(b'{"id": "a", "text": "x"}\n\n{"id": "b", "text": "too long, it is"}\n{}')
    good, long, bad = export._documents_of_lines(lines_of(file, 30))
    assert (good.label, good.read().document.document_id) == ("line 1", "a")
    assert (long.label, bad.label) == ("line 3", "line 4")
    with pytest.raises(Unreadable, match="39 bytes; at most 30"):
        long.read()
    with pytest.raises(Unreadable, match="id is missing"):
        bad.read()
