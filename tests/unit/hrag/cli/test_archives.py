"""Files in archives are listed and read. No archive can use up memory or leave its folder."""

import gc
import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.cli import archives
from hrag.cli.archives import ArchiveListing, list_archive
from hrag.cli.input_documents import Unreadable
from tests.support.documents.format_files import archive, docx_file

Pack = Callable[[Mapping[str, bytes]], bytes]


def zip_of(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tar_of(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def tgz_of(members: Mapping[str, bytes]) -> bytes:
    return tar_of(members, "w:gz")


PACKS: Mapping[str, Pack] = {"a.zip": zip_of, "a.tar": tar_of, "a.tar.gz": tgz_of, "a.tgz": tgz_of}


@pytest.fixture
def listed(tmp_path: Path) -> Callable[[str, bytes], ArchiveListing]:
    """A function that lists an archive with a name and content."""

    def list_content(name: str, content: bytes) -> ArchiveListing:
        (tmp_path / name).write_bytes(content)
        listing = list_archive(tmp_path / name)
        assert listing is not None
        return listing

    return list_content


def contents(listing: ArchiveListing) -> dict[str, bytes]:
    return {member.path: member.read() for member in listing.members}


@pytest.mark.parametrize("name", PACKS)
def test_the_files_in_an_archive_are_read(listed, name):
    members = {"a.txt": b"one", "docs/b.md": b"two", "é/中.txt": b"3", "x" * 200 + ".md": b"4"}
    listing = listed(name, PACKS[name](members))
    assert contents(listing) == members
    # Members can be read again, and in any order.
    assert [member.read() for member in reversed(listing.members)] == [b"4", b"3", b"two", b"one"]
    assert [member.size_bytes for member in listing.members] == [3, 3, 1, 1]


def test_a_gzip_file_contains_one_file(listed):
    assert contents(listed("notes.md.gz", gzip.compress(b"# A"))) == {"notes.md": b"# A"}
    assert contents(listed("UPPER.TXT.GZ", gzip.compress(b"A"))) == {"UPPER.TXT": b"A"}


@pytest.mark.parametrize("pack", [zip_of, tar_of, tgz_of])
def test_archives_in_archives_are_opened_up_to_a_depth(listed, pack):
    inner = zip_of({"c.txt": b"deep"})
    middle = tgz_of({"inner.zip": inner, "b.txt": b"middle"})
    listing = listed("a.zip", pack({"m.tgz": middle, "a.txt": b"outer"}))
    assert contents(listing) == {
        "m.tgz/inner.zip/c.txt": b"deep",
        "m.tgz/b.txt": b"middle",
        "a.txt": b"outer",
    }
    listing = listed("a.zip", zip_of({"x.zip": zip_of({"m.tgz": middle}), "a.txt": b"outer"}))
    assert contents(listing) == {"x.zip/m.tgz/b.txt": b"middle", "a.txt": b"outer"}
    ((path, reason),) = listing.problems
    assert (path, reason) == ("x.zip/m.tgz/inner.zip", "it is an archive inside 3 archives")


def test_a_broken_archive_in_an_archive_does_not_affect_other_files(listed):
    listing = listed("a.zip", zip_of({"bad.zip": b"PK\3\4no", "no.tar": b"text", "a.txt": b"a"}))
    assert contents(listing) == {"a.txt": b"a"}
    assert [path for path, _ in listing.problems] == ["bad.zip", "no.tar"]


@pytest.mark.parametrize("pack", [zip_of, tar_of])
@pytest.mark.parametrize(
    ("name", "path", "escapes"),
    [
        ("./a.txt", "a.txt", False),
        ("a//b.txt", "a/b.txt", False),
        ("e\u0301.txt", "é.txt", False),
        ("../a.txt", None, True),
        ("a/../../b.txt", None, True),
        ("/etc/passwd", None, True),
        ("C:/a.txt", None, True),
        (".git/config", None, False),
        ("a/.hidden", None, False),
        ("__MACOSX/a.txt", None, False),
    ],
)
def test_names_stay_in_the_archive_and_hidden_files_are_left_out(listed, pack, name, path, escapes):
    listing = listed("a.zip", pack({name: b"x", "z.txt": b"z"}))
    expected = {"z.txt": b"z"} if path is None else {path: b"x", "z.txt": b"z"}
    assert contents(listing) == expected
    assert bool(listing.escaping) == escapes


def test_only_regular_files_of_a_tar_are_listed(listed):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            member = tarfile.TarInfo(f"special{kind!r}.txt")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert listed("a.tar", file.getvalue()).members == []


def test_the_last_of_several_files_with_one_name_counts(listed):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "old")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.txt", "new")
    assert contents(listed("a.zip", file.getvalue())) == {"a.txt": b"new"}


def test_names_in_utf_8_that_are_not_marked_and_backslashes_are_read(listed):
    content = zip_of({"docs\\Grö.txt": b"x"})
    member = zipfile.ZipFile(io.BytesIO(content)).infolist()[0]
    assert member.flag_bits & 0x800
    for position in (6, content.index(b"PK\1\2") + 8):  # The flags, in both headers.
        content = content[:position] + b"\0\0" + content[position + 2 :]
    assert contents(listed("a.zip", content)) == {"docs/Grö.txt": b"x"}


@pytest.mark.parametrize("content", [docx_file(), archive({"Index/Document.iwa": b"\0"})])
def test_a_document_that_consists_of_files_is_no_archive(tmp_path, content):
    (tmp_path / "a.zip").write_bytes(content)
    assert list_archive(tmp_path / "a.zip") is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.zip", zip_of({"a.txt": b"a"})[:40], "damaged or cut off"),
        ("a.tgz", tgz_of({"a.txt": b"a" * 100_000})[:60], "damaged or cut off"),
        ("a.gz", b"\x1f\x8bdamaged", "damaged or cut off"),
        ("a.zip", b"text", "it is not an archive"),
        ("a.tar", b"", "it is not an archive"),
    ],
)
def test_damaged_archives_are_refused(listed, name, content, message):
    with pytest.raises(Unreadable, match=message):
        listed(name, content)


def test_a_damaged_member_does_not_affect_other_members(listed):
    content = zip_of({"a.txt": b"one" * 50, "b.txt": b"two"})
    position = content.index(b"a.txt") + 6
    damaged = content[:position] + b"\xff" * 4 + content[position + 4 :]
    bad, good = listed("a.zip", damaged).members
    with pytest.raises(Unreadable, match="it cannot be unpacked"):
        bad.read()
    assert good.read() == b"two"


def test_encrypted_members_are_refused(listed):
    content = bytearray(zip_of({"a.txt": b"a"}))
    for position in (6, content.index(b"PK\1\2") + 8):
        content[position] |= 1
    (member,) = listed("a.zip", bytes(content)).members
    with pytest.raises(Unreadable, match="encrypted"):
        member.read()


@pytest.mark.parametrize("name", PACKS)
@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_MEMBERS", 2, "more than 2 files"),
        ("MAX_UNPACKED_BYTES", 5000, "more than 5,000 bytes"),
        ("RATIO_APPLIES_BYTES", 5000, "more than 200 times"),
    ],
)
def test_the_limits_of_an_archive_are_checked_when_it_is_listed(
    listed, monkeypatch, name, limit, value, message
):
    monkeypatch.setattr(archives, limit, value)
    monkeypatch.setattr(archives, "MAX_RATIO", 200 if name != "a.tar" else 0.9)
    members = {f"{number}.txt": b"x" * 300_000 for number in range(3)}
    with pytest.raises(Unreadable, match=message if name != "a.tar" else "more than"):
        listed(name, PACKS[name](members))


def test_limits_hold_over_archives_in_archives(listed, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 4)
    inner = zip_of({"1.txt": b"1", "2.txt": b"2"})
    listing = listed("a.zip", zip_of({"a.zip": inner}))
    assert len(listing.members) == 2
    with pytest.raises(Unreadable, match="more than 4 files"):
        listed("a.zip", zip_of({"a.zip": inner, "b.zip": inner, "c.txt": b"3"}))


def test_a_gzip_bomb_is_refused_when_it_is_read(listed, monkeypatch):
    monkeypatch.setattr(archives, "RATIO_APPLIES_BYTES", 5000)
    (member,) = listed("a.txt.gz", gzip.compress(bytes(1_000_000))).members
    with pytest.raises(Unreadable, match="more than 200 times"):
        member.read()


def test_what_gzip_files_in_an_archive_contain_counts_together(listed, monkeypatch):
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 2_500)
    inner = gzip.compress(bytes(1_000))
    listing = listed("a.zip", zip_of({f"{number}.txt.gz": inner for number in range(3)}))
    first, second, third = listing.members
    for member in (first, second, first, second):
        assert len(member.read()) == 1_000
    with pytest.raises(Unreadable, match="more than 2,500 bytes"):
        third.read()


@pytest.mark.parametrize("comment", [b"", b"about"])
@pytest.mark.parametrize("declared", [3, 6])
def test_the_entries_of_a_zip_are_counted_first(listed, monkeypatch, comment, declared):
    content = zip_of({f"{number}.txt": b"" for number in range(6)})
    end = content.rindex(b"PK\x05\x06")
    count = struct.pack("<HH", declared, declared)
    content = content[: end + 8] + count + content[end + 12 : end + 20]
    content += struct.pack("<H", len(comment)) + comment
    assert len(listed("a.zip", content).members) == 6
    monkeypatch.setattr(archives, "MAX_MEMBERS", 5)
    monkeypatch.setattr(archives, "ZipFile", None)
    with pytest.raises(Unreadable, match="more than 5 files"):
        listed("a.zip", content)


def test_the_entries_of_a_large_zip_are_counted_first(listed, monkeypatch):
    content = zip_of({f"{number}.txt": b"" for number in range(6)})
    end = content.rindex(b"PK\x05\x06")
    size, start = struct.unpack_from("<II", content, end + 12)
    content = (
        content[:end]
        + b"PK\x06\x06"
        + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 6, 6, size, start)
        + b"PK\x06\x07"
        + struct.pack("<IQI", 0, end, 1)
        + b"PK\x05\x06"
        + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 0)
    )
    assert len(listed("a.zip", content).members) == 6
    monkeypatch.setattr(archives, "MAX_MEMBERS", 5)
    monkeypatch.setattr(archives, "ZipFile", None)
    with pytest.raises(Unreadable, match="more than 5 files"):
        listed("a.zip", content)


def test_a_tar_with_a_size_below_zero_is_damaged(listed):
    header = tarfile.TarInfo("a.txt")
    header.pax_headers = {"size": "-512"}
    content = header.tobuf(tarfile.PAX_FORMAT) + bytes(1024)
    with pytest.raises(Unreadable, match=r"damaged|cut off"):
        listed("a.tar", content)


def test_the_headers_of_one_file_have_a_limit_together(listed):
    header = bytearray(tarfile.TarInfo("sparse").tobuf(tarfile.GNU_FORMAT))
    header[156:157], header[482:483] = tarfile.GNUTYPE_SPARSE, b"\1"
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    extension = (b"00000000000\0" + b"00000000001\0") * 21 + b"\1" + bytes(7)
    with pytest.raises(Unreadable, match="a header of more than"):
        listed("a.tgz", gzip.compress(bytes(header) + extension * 3_000))


def test_a_name_that_is_not_valid_utf_8_can_be_sent(listed):
    content = tar_of({"caf\udce9.txt": b"x"})
    assert [member.path for member in listed("a.tar", content).members] == ["caf\ufffd.txt"]


def test_a_huge_header_of_a_tar_is_not_read(listed):
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    content = header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    with pytest.raises(Unreadable, match="a header of"):
        listed("a.tar", content)


@given(st.binary(max_size=60), st.integers(0, 400), st.sampled_from(list(PACKS)))
def test_no_damage_raises_another_error(tmp_path_factory, damage, position, name):
    content = bytearray(PACKS[name]({"a.txt": b"text", "b/c.md": b"more"}))
    content[position : position + len(damage)] = damage
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(bytes(content))
    try:
        listing = list_archive(path)
    except Unreadable:
        return
    for member in listing.members if listing else ():
        try:
            member.read()
        except Unreadable:
            continue


@pytest.mark.parametrize("name", ["a.zip", "a.tgz"])
def test_the_archive_is_closed_with_its_last_member(tmp_path, name):
    pack = zip_of if name == "a.zip" else tgz_of
    (tmp_path / name).write_bytes(pack({"b.zip": zip_of({"c.txt": b"c"}), "d.txt": b"d"}))
    gc.collect()
    gc.disable()  # Without the collector, only an object in no reference cycle is finalized.
    try:
        listing = list_archive(tmp_path / name)
        assert contents(listing) == {"b.zip/c.txt": b"c", "d.txt": b"d"}
        assert tmp_path / name in _open_files()
        del listing
        assert tmp_path / name not in _open_files()
    finally:
        gc.enable()


def _open_files() -> set[Path]:
    """Returns the paths of the files that this process has open."""
    paths = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            paths.add(descriptor.readlink())
    return paths
