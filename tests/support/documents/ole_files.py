"""Small OLE files, which have the names of the formats that consist of them."""

import struct

_SECTOR_BYTES = 512
_FREE, _END, _IS_INDEX = 0xFFFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFD


def ole_file(*names: str, nested: tuple[str, ...] = ()) -> bytes:
    """Returns an OLE file with empty streams of these names in its root.

    The streams of `nested` are in a folder `Attached` of the root. The names of the root are linked
    as a chain, which is a valid tree. The directory has as many sectors as it needs.
    """
    in_root = (*names, *(("Attached",) if nested else ()))
    entries = [_entry("Root Entry", 5, child=1 if in_root else _FREE)]
    for number, name in enumerate(in_root, start=1):
        right = number + 1 if number < len(in_root) else _FREE
        is_folder = bool(nested) and number == len(in_root)
        child = len(in_root) + 1 if is_folder else _FREE
        entries.append(_entry(name, 1 if is_folder else 2, right=right, child=child))
    for number, name in enumerate(nested, start=len(entries)):
        right = number + 1 if number < len(in_root) + len(nested) else _FREE
        entries.append(_entry(name, 2, right=right))
    directory = b"".join(entries)
    sectors = -(-len(directory) // _SECTOR_BYTES)
    # The index sector is the last one, so it also follows a directory of several sectors.
    chain = [*range(1, sectors), _END, _IS_INDEX]
    index = struct.pack(f"<{len(chain)}I", *chain).ljust(_SECTOR_BYTES, b"\xff")
    return _header(sectors) + directory.ljust(sectors * _SECTOR_BYTES, b"\0") + index


def _header(index_sector: int) -> bytes:
    header = bytearray(_SECTOR_BYTES)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    struct.pack_into("<HHHHH", header, 24, 0x3E, 3, 0xFFFE, 9, 6)
    struct.pack_into("<II", header, 44, 1, 0)  # One index sector; the directory is at sector 0.
    struct.pack_into("<IIIII", header, 56, 4096, _END, 0, _END, 0)
    struct.pack_into("<I108I", header, 76, index_sector, *[_FREE] * 108)
    return bytes(header)


def _entry(name: str, kind: int, right: int = _FREE, child: int = _FREE) -> bytes:
    encoded = name.encode("utf-16-le")
    entry = bytearray(128)
    entry[: len(encoded)] = encoded
    struct.pack_into("<HBBIII", entry, 64, len(encoded) + 2, kind, 1, _FREE, right, child)
    return bytes(entry)
