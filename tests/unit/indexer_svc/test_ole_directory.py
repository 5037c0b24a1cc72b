"""The names in the root of an OLE file are read, whatever numbers a hostile file has."""

import random

import olefile
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.ole_directory import root_names
from tests.support.documents.ole_files import ole_file

NAMES = tuple(f"Stream {number}" for number in range(40))


def test_names_of_all_sectors_of_the_directory_are_read() -> None:
    assert root_names(ole_file(*NAMES)) == set(NAMES)
    assert root_names(ole_file()) == set()


def test_names_in_folders_are_not_names_of_the_root() -> None:
    assert root_names(ole_file("a", nested=("b", "c"))) == {"a", "Attached"}


def test_the_names_are_those_that_olefile_reads() -> None:
    """olefile is a parser of the format that many programs use."""
    content = ole_file(*NAMES[:9], nested=NAMES[9:])
    names = {path[0] for path in olefile.OleFileIO(content).listdir(storages=True)}
    assert root_names(content) == names


@given(st.randoms(use_true_random=False), st.integers(0, 2))
def test_a_damaged_file_has_some_names_or_none(rng: random.Random, kind: int) -> None:
    content = bytearray(ole_file(*NAMES[:9], nested=NAMES[9:12]))
    for _ in range(8):
        content[rng.randrange(24, len(content))] = rng.choice((0, 1, 2, 255, rng.randrange(256)))
    root_names(bytes(content[: rng.randrange(len(content))] if kind == 2 else content))


def test_sectors_of_a_wrong_size_are_not_read() -> None:
    for shift in (0, 1, 8, 10, 16, 65_535):
        content = bytearray(ole_file("a", "b"))
        content[30:32] = shift.to_bytes(2, "little")
        assert root_names(bytes(content)) == set()


def test_a_directory_that_refers_to_itself_ends() -> None:
    content = bytearray(ole_file("a", "b"))
    content[512 + 128 + 68 : 512 + 128 + 76] = bytes((1, 0, 0, 0, 1, 0, 0, 0))
    assert root_names(bytes(content)) == {"a"}
