"""What is LMDB's own in its file: headers, pointers, nodes and keys."""

import struct
from pathlib import Path

PAGE_BYTES = 4096
# Of LMDB 0.9's format, see its mdb.c.
_KINDS = {8: "meta", 1: "branch", 2: "leaf", 4: "overflow"}
_PAGE_FLAGS_AT = 10
_PAGE_HEADER_BYTES = 16
_NODE_HEADER_BYTES = 8
_HAS_OWN_PAGES = 1
_META_BYTES = _PAGE_HEADER_BYTES + 136


def structure_of(folder: Path) -> dict[str, list[int]]:
    """Offsets of what is LMDB's own in the file, by the kind of page and part of it."""
    data = (folder / "data.mdb").read_bytes()
    found: dict[str, list[int]] = {}
    for page in range(0, len(data) - PAGE_BYTES + 1, PAGE_BYTES):
        flags, lower = struct.unpack_from("<HH", data, page + _PAGE_FLAGS_AT)
        kind = next((name for bit, name in _KINDS.items() if flags & bit), None)
        (number,) = struct.unpack_from("<Q", data, page)  # Later pages of a value have none.
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
                found.setdefault(f"{kind} nodes", []).extend(range(node, key))
                found.setdefault(f"{kind} keys", []).extend(range(key, key + key_bytes))
        elif kind == "meta":
            parts["fields"] = range(page + _PAGE_HEADER_BYTES, page + _META_BYTES)
        for part, offsets in parts.items():
            found.setdefault(f"{kind} {part}", []).extend(offsets)
    return found


def length_at(folder: Path, value_at: int) -> int:
    """The offset of the most significant byte of the length of the value at `value_at`.

    It has pages of its own.
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
    """The first eight bytes of what a node of a leaf page holds."""
    start = node + _NODE_HEADER_BYTES + struct.unpack_from("<H", data, node + 6)[0]
    return data[start : start + 8]
