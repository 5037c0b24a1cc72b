"""Puts memory that another library allocates into huge pages of Linux.

An algorithm that jumps through much memory waits for the translation of addresses. With pages of
2 MiB instead of 4 KiB, the processor's buffer of translations covers 512 times as much memory.
Linux uses huge pages for memory only if it is asked to, by default.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# The file in which Linux lists the regions of this process's memory.
_MAPS = Path("/proc/self/maps")
# Pages that are written first after this advice are huge.
_MADV_HUGEPAGE = 14
# Copies pages that were written before into huge pages. Linux has it since version 6.1.
_MADV_COLLAPSE = 25
# Smaller memory is not worth the time to find it. The allocator of the C library also puts it into
# memory that it has already.
_MIN_BYTES = 16 << 20

_Region = tuple[int, int]
"""The address where a region of memory begins, and the address where it ends."""


@contextmanager
def huge_pages(size_bytes: int) -> Iterator[None]:
    """Puts memory that is allocated during the `with` block into huge pages.

    Only regions of at least `size_bytes` in one piece are affected, and none if `size_bytes` is
    less than 16 MiB. If Linux has no huge pages, or none are free, nothing changes.
    """
    if size_bytes < _MIN_BYTES:
        yield
        return
    before = _regions()
    yield
    for start, end in _added(_regions(), before):
        if end - start >= size_bytes:
            for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):
                # An error means that the memory has normal pages, which is slower but right.
                _madvise(start, end - start, advice)


def _regions() -> list[_Region]:
    """Returns the regions of this process's memory that belong to no file, by ascending address.

    Returns no regions if Linux does not show them.
    """
    try:
        lines = _MAPS.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return []
    # A region of a file, of a stack or of the heap has a name in the sixth column.
    anonymous = (columns[0] for line in lines if len(columns := line.split()) == 5)
    bounds = (region.split("-") for region in anonymous)
    return [(int(start, 16), int(end, 16)) for start, end in bounds]


def _added(regions: Sequence[_Region], before: Sequence[_Region]) -> Iterator[_Region]:
    """Yields the parts of `regions` that are not in `before`. Some parts may be empty.

    Linux joins neighbouring regions, so a region may have old and new parts.
    """
    known = set(before)
    for start, end in regions:
        if (start, end) in known:
            continue
        begin = start
        for old_start, old_end in before:
            if old_start < end and old_end > start:
                yield begin, old_start
                begin = old_end
        yield begin, end


_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
