"""Hostile PDFs, Markdown and tables: small files that cost their parser memory, time or stack.

`tests.support.documents.pdfs` writes the PDFs, without a library. Each function is named for the
feature of the format that it abuses.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping

from tests.support.documents import word_files as word
from tests.support.documents.format_files import docx_file, with_part
from tests.support.documents.pdfs import FILE_ID, FONT, Bookmark, pdf_of, written

_CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
_PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
    b" /Resources << /Font << /F1 5 0 R >> >> >>"
)
_PAGE_WITH_FORM = _PAGE.replace(b"/Font <<", b"/XObject << /X 6 0 R >> /Font <<")
_ONE_KID = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
_TEXT = b"BT /F1 12 Tf 50 700 Td (bomb) Tj ET"


def _stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def _deflated(content: bytes, times: int = 1) -> bytes:
    for _ in range(times):
        content = zlib.compress(content, 9)
    return _stream(content, b"/Filter [%s]" % (b" /FlateDecode" * times))


def _page(content: bytes = b"", **others: bytes) -> dict[int, bytes]:
    """Returns the objects of a PDF of one page: catalog, page tree, page, its content, its font.

    `others` replaces or adds objects: `o6` is object 6.
    """
    objects = {1: _CATALOG, 2: _ONE_KID, 3: _PAGE, 4: content or _deflated(_TEXT), 5: FONT}
    return objects | {int(name.removeprefix("o")): body for name, body in others.items()}


def _form(content: bytes, resources: bytes) -> bytes:
    entries = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << %s >>"
    return _stream(content, entries % resources)


def inflating_page(inflated_bytes: int = 16 << 20) -> bytes:
    """Returns a PDF of one page whose content is all text and inflates about a thousandfold."""
    shown = b"(a)Tj "
    content = b"BT /F1 1 Tf %sET" % (shown * (inflated_bytes // len(shown)))
    return written(_page(_deflated(content)))


def repeated_page(kids: int = 150) -> bytes:
    """Returns a page tree that names one heavy page `kids` times."""
    content = b"BT /F1 1 Tf %sET" % (b"(aaaaaaaaaaaaaaaa)Tj " * 20_000)
    tree = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b"3 0 R " * kids, kids)
    return written(_page(_deflated(content), o2=tree))


def nested_filters() -> bytes:
    """Returns a PDF of a few kilobytes whose content, deflated three times, has a hundred MB."""
    chunk = b"BT /F1 1 Tf (aaaaaaaaaaaaaaaa)Tj ET "
    layer = zlib.compressobj(9)
    once = b"".join([layer.compress(chunk * 100_000) for _ in range(30)]) + layer.flush()
    twice = zlib.compress(zlib.compress(once, 9), 9)
    return written(_page(_stream(twice, b"/Filter [/FlateDecode /FlateDecode /FlateDecode]")))


def run_length_bomb() -> bytes:
    """Returns a PDF whose content has run lengths inside Flate: some kilobytes become 256 MB."""
    runs = (bytes([129]) + b" ") * 2_000_000 + b"\x80"
    return written(
        _page(_stream(zlib.compress(runs, 9), b"/Filter [/FlateDecode /RunLengthDecode]"))
    )


def deep_page_tree(depth: int = 50_000) -> bytes:
    """Returns a page tree that is one path, too deep for a recursive parser's stack."""
    objects = _page(o2=b"<< /Type /Pages /Kids [6 0 R] /Count 1 >>")
    for number in range(6, 6 + depth):
        objects[number] = b"<< /Type /Pages /Kids [%d 0 R] /Count 1 >>" % (number + 1)
    objects[6 + depth] = _PAGE
    return written(objects)


def page_tree_cycle() -> bytes:
    """Returns a page tree with a cycle: each of two nodes is a kid of the other node."""
    return written(
        _page(
            o2=b"<< /Type /Pages /Kids [6 0 R 6 0 R] /Count 1000 >>",
            o6=b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 500 /Parent 2 0 R >>",
        )
    )


def million_pages() -> bytes:
    """Returns a file of one page. Its page tree claims to have a million pages."""
    return written(_page(o2=b"<< /Type /Pages /Kids [3 0 R] /Count 1000000 >>"))


def claimed_pages() -> bytes:
    """Returns a file of one page. Its page tree claims as many pages as hrag allows at most."""
    return written(_page(o2=b"<< /Type /Pages /Kids [3 0 R] /Count 100000 >>"))


def doubling_forms(depth: int = 30) -> bytes:
    """Returns a chain of forms. Each shows the next one twice, so the last is shown 2**30 times."""
    objects = _page(_deflated(b"/X Do /X Do"), o3=_PAGE_WITH_FORM)
    for number in range(6, 6 + depth):
        objects[number] = _form(b"/X Do /X Do", b"/XObject << /X %d 0 R >>" % (number + 1))
    objects[6 + depth] = _form(_TEXT, b"/Font << /F1 5 0 R >>")
    return written(objects)


def recursive_form() -> bytes:
    """Returns a form that shows itself twice."""
    form = _form(b"/X Do /X Do", b"/XObject << /X 6 0 R >>")
    return written(_page(_deflated(b"/X Do"), o3=_PAGE_WITH_FORM, o6=form))


def huge_character_map() -> bytes:
    """Returns a font whose ToUnicode map has millions of entries."""
    ranges = b"<0000> <ffff> <0041>\n" * 1_000_000
    font = FONT.replace(b">>", b"/ToUnicode 6 0 R >>")
    maps = b"begincmap 1000000 beginbfrange\n%sendbfrange endcmap" % ranges
    return written(_page(o5=font, o6=_deflated(maps)))


def thousands_of_fonts(count: int = 20_000) -> bytes:
    """Returns a page that sets another font for each letter."""
    fonts = b" ".join(b"/F%d %d 0 R" % (number, number) for number in range(6, 6 + count))
    content = b" ".join(b"/F%d 1 Tf (a) Tj" % number for number in range(6, 6 + count))
    page = _PAGE.replace(b"/F1 5 0 R", fonts)
    objects = _page(_deflated(b"BT %s ET" % content), o3=page)
    return written(objects | dict.fromkeys(range(6, 6 + count), FONT))


def scattered_glyphs(count: int = 2_000_000) -> bytes:
    """Returns a page of the largest size with glyphs all over it, each on a separate line."""
    page = _PAGE.replace(b"[0 0 595 842]", b"[-2e9 -2e9 2e9 2e9]")
    content = b"BT /F1 1 Tf %sET" % (b"9 -99 Td(a)Tj " * count)
    return written(_page(_deflated(content), o3=page))


def nested_arrays(depth: int = 2_000_000) -> bytes:
    """Returns a PDF with millions of nested arrays, in a page and in its content."""
    page = _PAGE.replace(b"/Contents", b"/Deep %s%s /Contents" % (b"[" * depth, b"]" * depth))
    return written(_page(_deflated(b"[" * depth + b"<<" * depth), o3=page))


def object_stream_bomb() -> bytes:
    """Returns an object stream that inflates to 64 MB and claims millions of objects."""
    body = zlib.compressobj(9)
    inflated = b"".join([body.compress(b"6 0 " * 1_000_000) for _ in range(16)]) + body.flush()
    entries = b"/Type /ObjStm /N 4000000 /First 16000000 /Filter /FlateDecode"
    objects = _page(o2=b"<< /Type /Pages /Kids [7 0 R] /Count 1 >>", o6=_stream(inflated, entries))
    file = bytearray(b"%PDF-1.7\n")
    table = bytes(7)
    for number, body in sorted(objects.items()):
        table += b"\1" + len(file).to_bytes(4) + bytes(2)
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    # Object 7 is the first object in the object stream, which is object 6.
    table += b"\2" + (6).to_bytes(4) + bytes(2)
    table += b"\1" + len(file).to_bytes(4) + bytes(2)
    start = len(file)
    entries = b"/Type /XRef /Size 9 /W [1 4 2] /Root 1 0 R /ID [<%s> <%s>]" % (
        (FILE_ID.hex().encode(),) * 2
    )
    file += b"8 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF\n" % (_stream(table, entries), start)
    return bytes(file)


def looped_tables() -> bytes:
    """Returns a cross-reference table that names itself as its predecessor."""
    whole = written(_page())
    start = whole.rindex(b"startxref")
    offset = int(whole[start:].split()[1])
    return whole.replace(b"/Size", b"/Prev %d /Size" % offset)


def bookmark_cycle() -> bytes:
    """Returns two bookmarks. Each has the other one as its child and as its successor."""
    catalog = _CATALOG.replace(b">>", b"/Outlines 6 0 R >>")
    item = b"<< /Title (%s) /Dest [3 0 R /Fit] /First %d 0 R /Next %d 0 R /Parent 6 0 R >>"
    return written(
        _page(
            o1=catalog,
            o6=b"<< /Type /Outlines /First 7 0 R /Last 8 0 R >>",
            o7=item % (b"one", 8, 8),
            o8=item % (b"two", 7, 7),
        )
    )


def many_bookmarks(count: int = 50_000) -> bytes:
    """Returns a file with tens of thousands of bookmarks."""
    return pdf_of(["bomb"], [Bookmark("b", 1, 0)] * count)


def huge_title() -> bytes:
    """Returns a file with a title of a megabyte."""
    return pdf_of(["bomb"], title="bomb " * 200_000)


def ignored_extras() -> bytes:
    """Returns a file with three things that a reader must ignore.

    They are a script that runs on opening, an attachment, and an action that starts a program.
    """
    catalog = (
        b"/OpenAction << /S /JavaScript /JS (while(true){}) >>"
        b" /AA << /WC << /S /Launch /F (sh) >> >>"
        b" /Names << /EmbeddedFiles << /Names [(a) << /Type /Filespec /F (a) /EF << /F 6 0 R >> >>]"
        b" >> >> >>"
    )
    extra = _deflated(b"\0" * (64 << 20))
    return written(_page(o1=_CATALOG.replace(b">>", catalog), o6=extra))


def slow_key() -> bytes:
    """Returns a file with encryption of revision 6, whose key takes 64 or more rounds of hashes."""
    salted = bytes(48)
    digest = hashlib.sha256(salted).hexdigest().encode()
    entries = (
        b"<< /Filter /Standard /V 5 /R 6 /Length 256 /P -44 /O <%s> /U <%s> /OE <%s> /UE <%s>"
        % (
            salted.hex().encode(),
            salted.hex().encode(),
            digest,
            digest,
        )
    )
    crypt = (
        b"/CF << /StdCF << /CFM /AESV3 /Length 32 >> >> /StmF /StdCF /StrF /StdCF /Perms <%s> >>"
    )
    return written(_page(o6=entries + crypt % (b"00" * 16)), b" /Encrypt 6 0 R")


PDF_BOMBS: Mapping[str, Callable[[], bytes]] = {
    "inflating page": inflating_page,
    "repeated page": repeated_page,
    "nested filters": nested_filters,
    "run lengths": run_length_bomb,
    "deep page tree": deep_page_tree,
    "page tree cycle": page_tree_cycle,
    "million pages": million_pages,
    "claimed pages": claimed_pages,
    "doubling forms": doubling_forms,
    "recursive form": recursive_form,
    "character map": huge_character_map,
    "fonts": thousands_of_fonts,
    "scattered glyphs": scattered_glyphs,
    "nested arrays": nested_arrays,
    "object stream": object_stream_bomb,
    "looped tables": looped_tables,
    "bookmark cycle": bookmark_cycle,
    "many bookmarks": many_bookmarks,
    "huge title": huge_title,
    "ignored extras": ignored_extras,
    "slow key": slow_key,
}


def nested_lists(size_bytes: int = 600_000) -> str:
    """Returns Markdown that repeats a list with ten levels of nesting."""
    block = "".join("  " * level + "- a\n" for level in range(10))
    return block * (size_bytes // len(block))


def list_items(size_bytes: int = 600_000) -> str:
    """Returns Markdown that is one list; each item is a single letter."""
    return "- a\n" * (size_bytes // 4)


def lazy_lines(size_bytes: int = 600_000) -> str:
    """Returns Markdown: a paragraph in eighteen nested quotes.

    Each later line begins with a digit, as a list item does, so a parser must test each of them.
    """
    return "> " * 18 + "a\n" + "1 b\n" * (size_bytes // 4)


# Rows of an HTML table that declare many more cells than they have bytes.
WIDE_ROW, TALL_ROW = "<tr><td colspan=1000>x<td>y", "<tr><td rowspan=1000>x"


def wide_tables(tables: int, rows: int) -> bytes:
    """Returns a Word document with tables whose rows have one cell, far to the right."""
    row = word.row("x", properties='<w:gridBefore w:val="499"/>')
    body = word.table(row * rows) * tables
    main = f"<w:document {word.NAMESPACES}><w:body>{body}</w:body></w:document>"
    return with_part(docx_file(), "word/document.xml", main.encode())
