"""`hrag ingest` finds the files of folders, derives document ids from paths and reads the files."""

import errno
import gzip
import os
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hrag.cli import input_documents
from hrag.cli.archives import ESCAPES
from hrag.cli.ingest_files import EMPTY, OLD_FORMAT, UNKNOWN_FORMAT, document_id, find
from hrag.cli.input_documents import GivenFields, Unreadable
from hrag.values.documents import ROOT_KEY
from hrag.values.ids import check_document_id
from tests.support.documents.format_files import archive, docx_file
from tests.support.documents.ole_files import ole_file

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


def test_an_id_that_differs_from_its_path_has_a_hash_suffix():
    assert document_id("sub/a b.md").startswith("sub:a_b.md-")
    assert document_id("a b.md") != document_id("a_b.md") == "a_b.md"
    assert document_id("a:b") != document_id("a/b") == "a:b"
    assert len(document_id("x" * 129)) == 128


@given(PATHS)
def test_every_path_gives_a_valid_id(relative):
    check_document_id(document_id(relative))


@given(PATHS, PATHS)
def test_different_paths_give_different_ids(path, other):
    assume(path != other)
    assert document_id(path) != document_id(other)


def test_folder_is_searched_in_order_without_hidden_and_unknown_files(tmp_path):
    _write(tmp_path, "b.md", "a.txt", "sub/c.RST", ".hidden.md", ".git/d.md", "code.py", "e.xyz")
    names = [
        Path(source.label).relative_to(tmp_path).as_posix() for source in find([tmp_path]).documents
    ]
    assert names == ["a.txt", "b.md", "code.py", "sub/c.RST"]


def test_file_given_by_name_may_have_any_extension(tmp_path):
    _write(tmp_path, "notes.org")
    (source,) = find([tmp_path / "notes.org"]).documents
    document = source.read()
    assert (document.document_id, document.mime_type) == ("notes.org", "")
    assert document.body == b"text of notes.org"


def test_file_found_twice_is_returned_once(tmp_path):
    _write(tmp_path, "sub/a.md")
    assert len(find([tmp_path, tmp_path / "sub" / "a.md"]).documents) == 1


def test_second_file_with_the_same_id_is_refused(tmp_path):
    _write(tmp_path, "one/a.md", "two/a.md")
    first, second = find([tmp_path / "one", tmp_path / "two"]).documents
    assert first.read().document_id == "a.md"
    with pytest.raises(Unreadable, match=r"a\.md belongs to .*one"):
        second.read()


def test_missing_file_fails_when_it_is_read(tmp_path):
    (source,) = find([tmp_path / "none.md"]).documents
    with pytest.raises(Unreadable, match="No such file"):
        source.read()


def test_a_name_that_no_file_can_have_fails_when_it_is_read(tmp_path):
    (source,) = find([tmp_path / ("x" * 300)]).documents
    with pytest.raises(Unreadable, match="File name too long"):
        source.read()


def test_a_pipe_given_by_name_is_read_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(input_documents, "MAX_DOCUMENT_BYTES", 30)
    reader, writer = os.pipe()
    os.write(writer, b"x" * 31)
    os.close(writer)
    (source,) = find([Path(f"/dev/fd/{reader}")]).documents
    with pytest.raises(Unreadable, match="31 bytes; at most 30"):
        source.read()
    os.close(reader)


def test_the_indexer_finds_type_and_title(tmp_path):
    (tmp_path / "a.md").write_text("# The guide\n")
    document = find([tmp_path]).documents[0].read()
    assert (document.mime_type, document.title) == ("", "")
    assert document.source == str(tmp_path / "a.md")


def _archive(path: Path, *names: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive({name: f"text of {name}" for name in names}))


def test_files_in_archives_are_documents_below_the_archive(tmp_path):
    _archive(
        tmp_path / "sub" / "b.zip", "docs/c.md", "d.txt", "e.bin", "f.txt", ".g.txt", "../h.txt"
    )
    _write(tmp_path, "a.md", "z.md")
    found = find([tmp_path], root="")
    documents = [source.read() for source in found.documents]
    assert [document.document_id for document in documents] == [
        *("a.md", "sub:b.zip:docs:c.md", "sub:b.zip:d.txt", "sub:b.zip:f.txt", "z.md")
    ]
    assert documents[1].body == b"text of docs/c.md"
    assert documents[1].source == f"{tmp_path}/sub/b.zip/docs/c.md"
    assert found.documents[1].label == documents[1].source
    skipped = [(file.path.relative_to(tmp_path).as_posix(), file.reason) for file in found.skipped]
    assert sorted(skipped) == [
        ("sub/b.zip/../h.txt", ESCAPES),
        ("sub/b.zip/e.bin", UNKNOWN_FORMAT),
    ]
    assert found.present[str(tmp_path)] == {
        *("a.md", "z.md", "sub:b.zip", "sub:b.zip:docs:c.md", "sub:b.zip:d.txt"),
        *("sub:b.zip:e.bin", "sub:b.zip:f.txt"),
    }


def test_patterns_select_files_in_archives(tmp_path):
    _archive(tmp_path / "b.zip", "docs/c.md", "d.log", "e.bin")
    _write(tmp_path, "a.md")
    assert _names(tmp_path, "*.md") == ["a.md", "b.zip/docs/c.md"]
    assert _names(tmp_path, "*.log") == ["b.zip/d.log"]
    assert _names(tmp_path, "b.zip/**/*.md") == ["b.zip/docs/c.md"]
    # A pattern for the archive selects its files of known formats.
    assert _names(tmp_path, "*.zip") == ["b.zip/docs/c.md"]


def test_a_named_archive_is_opened_with_any_extension(tmp_path):
    _archive(tmp_path / "bundle.dat", "a.md")
    (source,) = find([tmp_path / "bundle.dat"]).documents
    assert source.read().document_id == "bundle.dat:a.md"
    # An Office document is a document, even with the name of an archive.
    (tmp_path / "b.zip").write_bytes(docx_file())
    (source,) = find([tmp_path / "b.zip"]).documents
    assert source.read().document_id == "b.zip"


def test_the_only_file_in_a_named_archive_may_have_any_extension(tmp_path):
    (tmp_path / "app.log.gz").write_bytes(gzip.compress(b"started"))
    (source,) = find([tmp_path / "app.log.gz"]).documents
    assert source.read().document_id == "app.log.gz:app.log"
    # In a folder it is not named, and several files are not named either.
    assert [file.reason for file in find([tmp_path]).skipped] == [UNKNOWN_FORMAT]
    _archive(tmp_path / "logs.zip", "a.log", "b.log")
    assert len(find([tmp_path / "logs.zip"]).skipped) == 2


def test_a_file_that_only_has_the_name_of_an_archive_is_read_if_its_format_is_given(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(b"no archive")
    (source,) = find([path]).documents
    with pytest.raises(Unreadable, match="; --as text reads it as text"):
        source.read()
    (source,) = find([path], user_fields=GivenFields(mime_type="text/plain")).documents
    assert source.read().body == b"no archive"
    # A real archive is opened, and the format is that of its files.
    _archive(path, "b.md")
    (source,) = find([path], user_fields=GivenFields(mime_type="text/plain")).documents
    assert source.read().document_id == "a.zip:b.md"


def test_nothing_is_pruned_after_an_archive_that_cannot_be_listed(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK\3\4damaged")
    (tmp_path / "b.md").write_text("x")
    found = find([tmp_path], root="")
    assert not found.is_complete
    bad, good = found.documents
    with pytest.raises(Unreadable, match="the archive is damaged or cut off"):
        bad.read()
    assert good.read().document_id == "b.md"
    _archive(tmp_path / "a.zip", "c.zip", "d.md")
    assert not find([tmp_path], root="").is_complete


def test_old_office_documents_are_skipped_with_what_converts_them(tmp_path):
    for name in ("a.DOC", "b.ppt"):
        (tmp_path / name).write_bytes(ole_file("WordDocument"))
    _write(tmp_path, "c.md", "d.doc")
    found = find([tmp_path])
    # A file with the name of an old document that is none is sent.
    assert [Path(source.label).name for source in found.documents] == ["c.md", "d.doc"]
    assert [file.path.name for file in found.skipped] == ["a.DOC", "b.ppt"]
    assert {file.reason for file in found.skipped} == {OLD_FORMAT}
    # A file that is named is sent, and the indexer decides by its content.
    assert find([tmp_path / "a.DOC"]).documents[0].read().document_id == "a.DOC"


def test_empty_files_in_archives_are_skipped(tmp_path):
    (tmp_path / "a.zip").write_bytes(archive({"a.md": "", "b.md": "b"}))
    found = find([tmp_path])
    assert [file.reason for file in found.skipped] == [EMPTY]
    assert len(found.documents) == 1


@pytest.mark.parametrize(
    ("content", "is_blank"),
    [
        (b"", True), (b"\n", True), (b" \t\r\n" * 99, True), (b"\xef\xbb\xbf", True),
        (b"\xef\xbb\xbf \n", True), (b" a", False), (b"\0", False), (b" " * 2_000, False),
    ],
)  # fmt: skip
def test_blank_files_in_folders_and_archives_are_skipped_like_empty_ones(
    tmp_path, content, is_blank
):
    (tmp_path / "a.md").write_bytes(content)
    (tmp_path / "b.zip").write_bytes(archive({"a.md": content, "b.md": "b"}))
    found = find([tmp_path])
    assert [file.reason for file in found.skipped] == [EMPTY] * 2 * is_blank
    assert len(found.documents) == (1 if is_blank else 3)


def test_name_that_is_not_utf8_can_be_sent(tmp_path):
    path = tmp_path / "caf\udce9.txt"
    path.write_text("x")
    (source,) = find([tmp_path]).documents
    document = source.read()
    check_document_id(document.document_id)
    assert document.source.encode().endswith("caf\N{REPLACEMENT CHARACTER}.txt".encode())
    assert source.label == document.source


def _names(tmp_path: Path, *globs: str) -> list[str]:
    """Returns the paths of the files that are found, relative to the folder."""
    sources = find([tmp_path], globs).documents
    return [Path(source.label).relative_to(tmp_path).as_posix() for source in sources]


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        (["*.log"], ["a.log", "sub/b.log"]),
        (["sub/*"], ["sub/b.log", "sub/c.md", "sub/deep/d.md"]),
        (["*.md", "a.*"], ["a.log", "sub/c.md", "sub/deep/d.md"]),
        (["说明*"], ["说明书.txt"]),
        (["*.pdf"], []),
        (["**/*.log"], ["a.log", "sub/b.log"]),
        (["sub/**/*.md"], ["sub/c.md", "sub/deep/d.md"]),
        (["**/sub/**/d*"], ["sub/deep/d.md"]),
        (["**/deep/*", "**"], ["a.log", "sub/b.log", "sub/c.md", "sub/deep/d.md", "说明书.txt"]),
        (["su**/*.md", "**/eep/*", "ub/**"], ["sub/c.md", "sub/deep/d.md"]),
    ],
)
def test_globs_find_files_of_folders_with_any_extension(tmp_path, globs, expected):
    _write(tmp_path, "a.log", "sub/b.log", "sub/c.md", "sub/deep/d.md", "说明书.txt")
    assert _names(tmp_path, *globs) == expected


def test_a_folder_may_be_deeper_than_the_stack(tmp_path):
    folders = [tmp_path]
    for _ in range(sys.getrecursionlimit()):
        folders.append(folders[-1] / "d")
        folders[-1].mkdir()
    file = folders[-1] / "a.md"
    file.write_text("deep")
    try:
        (source,) = find([tmp_path]).documents
    finally:  # Otherwise pytest would exceed the stack when it removes the folder.
        file.unlink()
        for folder in reversed(folders[1:]):
            folder.rmdir()
    assert source.label == str(file)


def test_every_skipped_file_has_a_reason(tmp_path):
    _write(tmp_path, "a.md", "b.bin", "c.dat")
    (tmp_path / "empty.md").touch()
    (tmp_path / "gone.md").symlink_to("nowhere")
    (tmp_path / "again.md").symlink_to("a.md")
    os.mkfifo(tmp_path / "pipe.md")
    inputs = find([tmp_path])
    assert [source.label for source in inputs.documents] == [str(tmp_path / "a.md")]
    assert sorted((skipped.path.name, skipped.reason) for skipped in inputs.skipped) == [
        ("again.md", "found under another name"),
        ("b.bin", "of unknown format"),
        ("c.dat", "of unknown format"),
        ("empty.md", "empty"),
        ("gone.md", "links that lead nowhere"),
        ("pipe.md", "no regular files"),
    ]


def test_links_are_followed_once_and_real_paths_take_precedence(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    _write(inside, "z/real.md")
    _write(outside, "far.md")
    (inside / "a").symlink_to(inside / "z")  # The linked folder is searched later.
    (inside / "loop").symlink_to(inside)
    (inside / "far").symlink_to(outside)
    assert _names(inside) == ["far/far.md", "z/real.md"]


def test_a_hard_link_is_the_same_file(tmp_path):
    _write(tmp_path, "a.md")
    os.link(tmp_path / "a.md", tmp_path / "b.md")
    assert _names(tmp_path) == ["a.md"]


def test_names_are_cited_in_nfc_and_have_one_id_on_every_system(tmp_path):
    for form in ("NFC", "NFD"):
        _write(tmp_path / form, unicodedata.normalize(form, "Überblick 概要.md"))
    ids = set()
    for form in ("NFC", "NFD"):
        document = find([tmp_path / form]).documents[0].read()
        assert document.source == f"{tmp_path}/{form}/Überblick 概要.md"
        ids.add(document.document_id)
    assert len(ids) == 1


def test_fields_of_the_user_replace_fields_of_the_file(tmp_path):
    _write(tmp_path, "a.md")
    fields = GivenFields({"year": 2026}, "标题", "my-id")
    document = find([tmp_path / "a.md"], user_fields=fields).documents[0].read()
    assert (document.metadata, document.title, document.document_id) == (
        {"year": 2026},
        "标题",
        "my-id",
    )


def test_a_root_is_part_of_the_metadata_and_lists_every_file(tmp_path):
    _write(tmp_path, "a.md", "b.bin", "sub/c.md")
    inputs = find([tmp_path], ["*.md"], GivenFields({"x": 1}), root="")
    assert inputs.documents[0].read().metadata == {"x": 1, ROOT_KEY: str(tmp_path)}
    assert inputs.present == {str(tmp_path): {"a.md", "b.bin", "sub:c.md"}}
    assert find([tmp_path / "sub"], root="mine").present == {"mine": {"c.md"}}
    assert find([tmp_path]).present == {}


def test_sources_are_paths_inside_the_folder_if_the_root_has_a_name(tmp_path):
    """Otherwise each run in another folder would store another version of every document."""
    documents = []
    for checkout in (tmp_path / "one", tmp_path / "two"):
        _write(checkout, "sub/Überblick.md")
        (checkout / "sub" / "lines.jsonl").write_text('{"text": "x"}')
        sources = find([checkout], root="mine").documents
        documents.append([source.read() for source in sources])
        names = ["sub/lines.jsonl:1", "sub/Überblick.md"]
        assert [source.label for source in sources] == [f"{checkout}/{name}" for name in names]
    assert documents[0] == documents[1]
    assert [document.source for document in documents[0]] == ["sub/lines.jsonl", "sub/Überblick.md"]


@pytest.mark.parametrize(
    "folders",
    [
        ["docs", "docs/sub"],
        ["docs/sub", "docs"],
        ["docs", "link"],
        ["docs", "far"],
        ["far", "docs"],
    ],
)
def test_of_overlapping_folders_each_lists_all_its_files(tmp_path, folders):
    """Otherwise --prune would delete documents whose files exist."""
    _write(tmp_path, "docs/a.md", "docs/sub/x.md", "far/y.md")
    (tmp_path / "link").symlink_to("docs")
    (tmp_path / "docs" / "inner").symlink_to("../far")
    paths = [tmp_path / folder for folder in folders]
    alone = {str(path): find([path], root="").present[str(path)] for path in paths}
    assert alone.get(str(tmp_path / "docs")) in (None, {"a.md", "sub:x.md", "inner:y.md"})
    inputs = find(paths, root="")
    assert inputs.present == alone
    stored = [Path(source.label).resolve() for source in inputs.documents]
    assert len(stored) == len(set(stored)) == 3
    together = find(paths, root="mine").present
    assert together == {"mine": set().union(*alone.values())}


def test_a_file_of_two_folders_belongs_to_the_first(tmp_path):
    _write(tmp_path, "docs/sub/x.md")
    inputs = find([tmp_path / "docs", tmp_path / "docs" / "sub"], root="")
    (stored,) = [source.read() for source in inputs.documents]
    assert (stored.document_id, stored.metadata) == ("sub:x.md", {ROOT_KEY: f"{tmp_path}/docs"})
    assert [skipped.reason for skipped in inputs.skipped] == ["found under another name"]


def test_a_folder_that_cannot_be_listed_is_reported(tmp_path, monkeypatch):
    _write(tmp_path, "a.md", "locked/b.md")
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if path.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        inputs = find([tmp_path])
    assert not inputs.is_complete
    refused = next(source for source in inputs.documents if source.label.endswith("locked"))
    with pytest.raises(Unreadable, match="Permission denied"):
        refused.read()


def test_files_of_a_folder_that_can_be_listed_but_not_opened_are_reported(tmp_path, monkeypatch):
    _write(tmp_path, "a.md", "locked/b.md")
    status = os.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if Path(path).parent.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied")
        return status(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    inputs = find([tmp_path])
    assert not inputs.is_complete
    refused = next(source for source in inputs.documents if source.label.endswith("b.md"))
    with pytest.raises(Unreadable, match="Permission denied"):
        refused.read()
