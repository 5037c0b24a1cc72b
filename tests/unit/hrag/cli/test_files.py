"""Finding, naming and reading the files of an ingest."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hrag.cli.files import Unreadable, document_id, find
from hrag.ids import check_document_id
from hrag.types import MARKDOWN, PDF, PLAIN_TEXT

PATHS = st.text(min_size=1, max_size=200)


def _write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")


@pytest.mark.parametrize(
    ("relative", "expected"),
    [
        ("guide.md", "guide.md"),
        ("a/b-c/d_e.txt", "a:b-c:d_e.txt"),
        ("x" * 128, "x" * 128),
    ],
)
def test_valid_path_is_the_document_id(relative, expected):
    assert document_id(relative) == expected


def test_changed_path_gets_a_hash_suffix():
    assert document_id("sub/a b.md").startswith("sub:a_b.md-")
    assert document_id("a b.md") != document_id("a_b.md") == "a_b.md"
    assert document_id("a:b") != document_id("a/b") == "a:b"
    assert len(document_id("x" * 129)) == 128


@given(PATHS)
def test_every_path_gives_a_valid_id(relative):
    check_document_id(document_id(relative))


@given(PATHS, PATHS)
def test_different_paths_give_different_ids(one, other):
    assume(one != other)
    assert document_id(one) != document_id(other)


def test_folder_is_searched_in_order_without_hidden_and_unknown_files(tmp_path):
    _write(tmp_path, "b.md", "a.txt", "sub/c.RST", ".hidden.md", ".git/d.md", "code.py")
    found = [Path(source.label).relative_to(tmp_path).as_posix() for source in find([tmp_path])]
    assert found == ["a.txt", "b.md", "sub/c.RST"]


def test_file_given_by_name_may_have_any_extension(tmp_path):
    _write(tmp_path, "code.py")
    (source,) = find([tmp_path / "code.py"])
    document = source.read()
    assert (document.document_id, document.mime_type) == ("code.py", PLAIN_TEXT)
    assert document.body == b"text of code.py"


def test_file_found_twice_is_returned_once(tmp_path):
    _write(tmp_path, "sub/a.md")
    assert len(find([tmp_path, tmp_path / "sub" / "a.md"])) == 1


def test_second_file_with_the_same_id_is_refused(tmp_path):
    _write(tmp_path, "one/a.md", "two/a.md")
    first, second = find([tmp_path / "one", tmp_path / "two"])
    assert first.read().document_id == "a.md"
    with pytest.raises(Unreadable, match=r"a\.md is that of .*one"):
        second.read()


def test_missing_file_fails_when_it_is_read(tmp_path):
    (source,) = find([tmp_path / "none.md"])
    with pytest.raises(Unreadable, match="No such file"):
        source.read()


@pytest.mark.parametrize(
    ("name", "mime_type"), [("a.md", MARKDOWN), ("b.PDF", PDF), ("c.rst", PLAIN_TEXT)]
)
def test_type_comes_from_the_extension_and_the_title_from_the_indexer(tmp_path, name, mime_type):
    (tmp_path / name).write_text("# The guide\n")
    document = find([tmp_path])[0].read()
    assert (document.mime_type, document.title) == (mime_type, "")
    assert document.source == str(tmp_path / name)


def test_name_that_is_not_utf8_can_be_sent(tmp_path):
    path = tmp_path / "caf\udce9.txt"
    path.write_text("x")
    document = find([tmp_path])[0].read()
    check_document_id(document.document_id)
    assert document.source.encode().endswith("caf\N{REPLACEMENT CHARACTER}.txt".encode())
