"""Tests of the advice to put memory into huge pages."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from hrag.host import huge_pages as module
from hrag.host.huge_pages import huge_pages

SIZE_BYTES = 64 << 20

_libc = ctypes.CDLL(None)
_libc.malloc.argtypes = (ctypes.c_size_t,)
_libc.malloc.restype = ctypes.c_void_p
_libc.free.argtypes = (ctypes.c_void_p,)
_libc.free.restype = None

pytestmark = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="Linux has no huge pages"
)


@pytest.fixture
def allocated() -> Iterator[list[int]]:
    """A list of addresses, which are freed in the end. Memory that is not written is not used."""
    addresses: list[int] = []
    yield addresses
    for address in addresses:
        _libc.free(address)


def is_advised(address: int) -> bool:
    """Returns True if Linux may use huge pages for the memory at this address."""
    found = False
    for line in Path("/proc/self/smaps").read_text("utf-8", errors="replace").splitlines():
        key, *values = line.split()
        if key.endswith(":"):
            if found and key == "VmFlags:":
                return "hg" in values
        else:
            start, end = (int(bound, 16) for bound in key.split("-"))
            found = start <= address < end
    raise AssertionError("no memory has this address")


def test_large_memory_of_the_block_gets_huge_pages(allocated):
    allocated.append(_libc.malloc(SIZE_BYTES))
    with huge_pages(SIZE_BYTES):
        allocated.append(_libc.malloc(SIZE_BYTES))
    allocated.append(_libc.malloc(SIZE_BYTES))
    middles = [address + SIZE_BYTES // 2 for address in allocated]
    assert [is_advised(middle) for middle in middles] == [False, True, False]


def test_smaller_memory_keeps_normal_pages(allocated):
    with huge_pages(SIZE_BYTES):
        allocated.append(_libc.malloc(SIZE_BYTES - (1 << 20)))
    with huge_pages((16 << 20) - 1):
        allocated.append(_libc.malloc(SIZE_BYTES))
    assert [is_advised(address + SIZE_BYTES // 2) for address in allocated] == [False, False]


def test_memory_keeps_normal_pages_if_linux_does_not_show_it(allocated, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAPS", tmp_path / "missing")
    with huge_pages(SIZE_BYTES):
        allocated.append(_libc.malloc(SIZE_BYTES))
    assert not is_advised(allocated[0] + SIZE_BYTES // 2)


@pytest.mark.parametrize(
    ("regions", "before", "added"),
    [
        ([(0, 4)], [(0, 4)], []),
        ([(0, 4), (8, 12)], [(0, 4)], [(8, 12)]),
        ([(0, 12)], [(4, 8)], [(0, 4), (8, 12)]),
        ([(0, 12)], [(0, 4), (8, 12)], [(4, 8)]),
        ([(0, 4)], [(0, 8)], []),
        ([(2, 12)], [(0, 4), (6, 8)], [(4, 6), (8, 12)]),
    ],
)
def test_new_parts_of_regions_are_found(regions, before, added):
    found = module._added(regions, before)
    assert [(start, end) for start, end in found if start < end] == added
