"""Small PDFs, written without a library, so that tests need no binary fixtures.

Each PDF has a catalog, a page tree, one font and one content stream per page. Of the format, the
module knows only what tests need: text, bookmarks, a title, encryption.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FILE_ID = bytes(range(16))
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"

_CATALOG, _PAGE_TREE, _FONT, _OUTLINE, _ENCRYPTION = 1, 2, 3, 4, 5
_FIRST_FREE = 6
_BOLD_FONT = 900
# Further objects of `pdf_of_streams` have numbers from here on.
FIRST_OTHER = 1000
_PERMISSIONS = -44
_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


@dataclass(frozen=True)
class Bookmark:
    """An entry of the outline. The lowest `depth` is 1, and the first `page` is 0."""

    title: str
    depth: int
    page: int


def pdf_of(pages: Sequence[str], bookmarks: Sequence[Bookmark] = (), title: str = "") -> bytes:
    """Returns a PDF whose pages show these texts, one line of text per line."""
    objects = _objects(pages, bookmarks)
    if not title:
        return written(objects, b"")
    number = max(objects) + 1
    objects[number] = b"<< /Title %s >>" % _text_string(title)
    return written(objects, b" /Info %d 0 R" % number)


def pdf_without_text(page_count: int = 1) -> bytes:
    """Returns a PDF whose pages show a filled square and no text, like a scan."""
    return written(_objects_of([b"10 10 50 50 re f"] * page_count, ()), b"")


def pdf_of_streams(
    contents: Sequence[bytes],
    page_entries: bytes = b"",
    catalog_entries: bytes = b"",
    others: Mapping[int, bytes] | None = None,
) -> bytes:
    """Returns a PDF whose pages have these content streams.

    The fonts are F1 (Helvetica), F2 (Helvetica-Bold), F3 (Courier) and F4, a font with two bytes
    for each character that does not say which characters these are. `page_entries` and
    `catalog_entries` are further entries of the dictionaries of each page and of the catalog.
    `others` are further objects, with numbers from FIRST_OTHER on.
    """
    objects = _objects_of(contents, ())
    for number in range(_FIRST_FREE, _FIRST_FREE + 2 * len(contents), 2):
        fonts = b"/F1 %d 0 R /F2 %d 0 R /F3 %d 0 R /F4 %d 0 R" % (
            _FONT,
            *range(_BOLD_FONT, _BOLD_FONT + 3),
        )
        page = objects[number].replace(b"/F1 %d 0 R" % _FONT, fonts)
        objects[number] = page.replace(b"/Type /Page ", b"/Type /Page %s " % page_entries)
    objects[_CATALOG] = objects[_CATALOG].replace(b"/Catalog ", b"/Catalog %s " % catalog_entries)
    objects[_BOLD_FONT] = FONT.replace(b"Helvetica", b"Helvetica-Bold")
    objects[_BOLD_FONT + 1] = FONT.replace(b"Helvetica", b"Courier")
    objects[_BOLD_FONT + 2] = (
        b"<< /Type /Font /Subtype /Type0 /BaseFont /Lost /Encoding /Identity-H"
        b" /DescendantFonts [%d 0 R] >>" % (_BOLD_FONT + 3)
    )
    objects[_BOLD_FONT + 3] = (
        b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Lost /DW 600 /CIDSystemInfo"
        b" << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>"
    )
    return written(objects | dict(others or {}))


def shown_at(x: float, y: float, text: str, *, font: str = "F1", size: float = 10) -> bytes:
    """Returns the part of a content stream that shows a line of text at a place.

    `y` grows upwards, as in the file.
    """
    return b"BT /%s %g Tf %g %g Td (%s) Tj ET\n" % (
        font.encode(),
        size,
        x,
        y,
        _escaped(text.encode("cp1252")),
    )


def encrypted_pdf(pages: Sequence[str], password: str) -> bytes:
    """Returns a PDF under the standard security handler, revision 2: 40-bit RC4.

    If the password is empty, every reader opens the file. The encryption then restricts only uses
    like printing.
    """
    owner = _rc4(hashlib.md5(_padded("owner")).digest()[:5], _padded(password))
    key = hashlib.md5(
        _padded(password) + owner + _PERMISSIONS.to_bytes(4, "little", signed=True) + FILE_ID
    ).digest()[:5]
    objects = _objects(pages, ())
    objects = {number: _encrypted(body, number, key) for number, body in objects.items()}
    objects[_ENCRYPTION] = b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P %d >>" % (
        owner.hex().encode(),
        _rc4(key, _PADDING).hex().encode(),
        _PERMISSIONS,
    )
    return written(objects, b" /Encrypt %d 0 R" % _ENCRYPTION)


def broken_pdf() -> bytes:
    """Returns bytes that begin like a PDF and contain no object."""
    return b"%PDF-1.7\nthe rest was lost on the way\n%%EOF\n"


def _objects(pages: Sequence[str], bookmarks: Sequence[Bookmark]) -> dict[int, bytes]:
    return _objects_of([_shown(text) for text in pages], bookmarks)


def _objects_of(contents: Sequence[bytes], bookmarks: Sequence[Bookmark]) -> dict[int, bytes]:
    page_numbers = [_FIRST_FREE + 2 * index for index in range(len(contents))]
    first_bookmark = _FIRST_FREE + 2 * len(contents)
    kids = b" ".join(b"%d 0 R" % number for number in page_numbers)
    objects = {
        _CATALOG: b"<< /Type /Catalog /Pages %d 0 R /Outlines %d 0 R >>" % (_PAGE_TREE, _OUTLINE),
        _PAGE_TREE: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(contents)),
        _FONT: FONT,
    }
    for number, content in zip(page_numbers, contents, strict=True):
        objects[number] = (
            b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
            b" /Resources << /Font << /F1 %d 0 R >> >> >>" % (_PAGE_TREE, number + 1, _FONT)
        )
        objects[number + 1] = _stream(zlib.compress(content))
    return objects | _outline(bookmarks, first_bookmark)


def _shown(text: str) -> bytes:
    """Returns a content stream that shows `text` from the top of the page down."""
    lines = b" ".join(b"(%s) Tj T*" % _escaped(line.encode("cp1252")) for line in text.splitlines())
    return b"BT /F1 12 Tf 14 TL 50 780 Td %s ET" % lines


def _escaped(raw: bytes) -> bytes:
    return raw.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _stream(content: bytes) -> bytes:
    """Returns a stream object of `content`, which must be compressed."""
    return b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (
        len(content),
        content,
    )


def _outline(bookmarks: Sequence[Bookmark], first: int) -> dict[int, bytes]:
    """Returns the outline's root and one linked item per bookmark, by object number."""
    links: dict[int, dict[str, int]] = {_OUTLINE: {}}
    open_items = [_OUTLINE]
    for number, bookmark in enumerate(bookmarks, start=first):
        parent = open_items[bookmark.depth - 1]
        previous = links[parent].get("Last")
        links[number] = {"Parent": parent}
        if previous is None:
            links[parent]["First"] = number
        else:
            links[previous]["Next"] = number
            links[number]["Prev"] = previous
        links[parent]["Last"] = number
        open_items[bookmark.depth :] = [number]
    objects = {_OUTLINE: b"<< /Type /Outlines%s >>" % _linked(links[_OUTLINE])}
    for number, bookmark in enumerate(bookmarks, start=first):
        objects[number] = b"<< /Title %s /Dest [%d 0 R /Fit]%s >>" % (
            _text_string(bookmark.title),
            _FIRST_FREE + 2 * bookmark.page,
            _linked(links[number]),
        )
    return objects


def _text_string(text: str) -> bytes:
    """Returns a text string object: a byte order mark and UTF-16BE, in hexadecimal."""
    return b"<%s>" % (b"\xfe\xff" + text.encode("utf-16-be")).hex().encode()


def _linked(links: dict[str, int]) -> bytes:
    return b"".join(b" /%s %d 0 R" % (name.encode(), to) for name, to in links.items())


def written(objects: Mapping[int, bytes], trailer: bytes = b"") -> bytes:
    """Returns the file: header, objects, cross-reference table, trailer.

    Object 1 is the catalog. `trailer` contains further entries of the trailer's dictionary.
    """
    file = bytearray(b"%PDF-1.7\n")
    table = bytearray(b"xref\n0 1\n0000000000 65535 f \n")
    for number, body in sorted(objects.items()):
        table += b"%d 1\n%010d 00000 n \n" % (number, len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(file)
    file += table
    file += b"trailer\n<< /Size %d /Root %d 0 R /ID [<%s> <%s>]%s >>\nstartxref\n%d\n%%%%EOF\n" % (
        max(objects) + 1,
        _CATALOG,
        FILE_ID.hex().encode(),
        FILE_ID.hex().encode(),
        trailer,
        start,
    )
    return bytes(file)


def _encrypted(body: bytes, number: int, key: bytes) -> bytes:
    """Returns an object with its stream encrypted. Objects without a stream contain no strings."""
    if b"stream\n" not in body:
        return body
    content = body.partition(b"stream\n")[2].removesuffix(b"\nendstream")
    object_key = hashlib.md5(key + number.to_bytes(3, "little") + bytes(2)).digest()[:10]
    return _stream(_rc4(object_key, content))


def _padded(password: str) -> bytes:
    return (password.encode("latin-1") + _PADDING)[:32]


def _rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out = bytearray()
    i = j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)
