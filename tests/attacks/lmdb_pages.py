"""Finds the parts of LMDB's file that are not values: headers, pointers, nodes and keys."""

import struct
from pathlib import Path

PAGE_BYTES = 4096
# These constants describe the format of LMDB 0.9; its mdb.c defines it.
_KINDS = {8: "meta", 1: "branch", 2: "leaf", 4: "overflow"}
_PAGE_FLAGS_AT = 10
_PAGE_HEADER_BYTES = 16
_NODE_HEADER_BYTES = 8
_HAS_OWN_PAGES = 1
_META_BYTES = _PAGE_HEADER_BYTES + 136


def structure_of(folder: Path) -> dict[str, list[int]]:
    """Returns the offsets of all bytes that are not values.

    The key names the kind of page and the part of the page, for example `leaf keys`.
    """
    data = (folder / "data.mdb").read_bytes()
    offsets_by_part: dict[str, list[int]] = {}
    for page in range(0, len(data) - PAGE_BYTES + 1, PAGE_BYTES):
        flags, lower = struct.unpack_from("<HH", data, page + _PAGE_FLAGS_AT)
        kind = next((name for bit, name in _KINDS.items() if flags & bit), None)
        # The second and later pages of a large value have no page number.
        (number,) = struct.unpack_from("<Q", data, page)
        if kind is None or page != number * PAGE_BYTES:
            continue
        parts = {"header": range(page, page + _PAGE_HEADER_BYTES)}
        if kind in ("branch", "leaf"):
            starts = range(page + _PAGE_HEADER_BYTES, page + lower, 2)
            nodes = [page + struct.unpack_from("<H", data, at)[0] for at in starts]
            parts["pointers"] = range(starts.start, starts.stop)
            for node in nodes:
                key_bytes = struct.unpack_from("<H", data, node + _NODE_HEADER_BYTES - 2)[0]
                key = node + _NODE_HEADER_BYTES
                offsets_by_part.setdefault(f"{kind} nodes", []).extend(range(node, key))
                offsets_by_part.setdefault(f"{kind} keys", []).extend(range(key, key + key_bytes))
        elif kind == "meta":
            parts["fields"] = range(page + _PAGE_HEADER_BYTES, page + _META_BYTES)
        for part, offsets in parts.items():
            offsets_by_part.setdefault(f"{kind} {part}", []).extend(offsets)
    return offsets_by_part


def length_at(folder: Path, value_at: int) -> int:
    """Returns the offset of the most significant byte of the length of the value at `value_at`.

    `value_at` is the offset of the value itself. LMDB must store the value in overflow pages.
    """
    data = (folder / "data.mdb").read_bytes()
    page = struct.pack("<Q", value_at // PAGE_BYTES)
    (node,) = (
        offset
        for offset in structure_of(folder)["leaf nodes"][::_NODE_HEADER_BYTES]
        if data[offset + 4] & _HAS_OWN_PAGES and _data_of(data, offset) == page
    )
    return node + 3


def _data_of(data: bytes, node: int) -> bytes:
    """Returns the first eight bytes of the value of a node in a leaf page."""
    start = node + _NODE_HEADER_BYTES + struct.unpack_from("<H", data, node + 6)[0]
    return data[start : start + 8]
