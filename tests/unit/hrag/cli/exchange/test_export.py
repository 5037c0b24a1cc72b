"""Where an export is written to."""

import os
from pathlib import Path

import pytest

from hrag.cli.exchange.export import _open
from hrag.cli.terminal.console import Failure


def test_a_file_is_replaced_once_the_new_one_is_whole(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(TypeError), _open(target) as file:
        file.writelines([b"ne", None])
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]
    with _open(target) as file:
        file.write(b"new")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["new"]


def test_a_pipe_is_written_to_and_stays():
    reader, writer = os.pipe()
    with _open(Path(f"/dev/fd/{writer}")) as file:
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
    with pytest.raises(Failure, match=says), _open(tmp_path / name):
        pass
