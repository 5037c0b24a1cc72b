"""The structure tree of a tagged PDF says which contents are headings."""

from contextlib import closing

import pypdfium2 as pdfium

from indexer_svc.parsers.pdf import parse_pdf
from indexer_svc.parsers.pdf.tags import TagReader
from tests.support.documents.pdfs import FIRST_OTHER, pdf_of_streams

_PAGE_NUMBER = 6


def marked(mark: int, kind: bytes, y: int, text: bytes) -> bytes:
    return b"/%s << /MCID %d >> BDC BT /F1 10 Tf 50 %d Td (%s) Tj ET EMC\n" % (kind, mark, y, text)


def tagged_pdf(kinds: list[bytes]) -> bytes:
    """Returns a page with one element of each kind, which contains one line of text."""
    stream = b"".join(
        marked(index, kind, 700 - 14 * index, b"Line %d of text" % index)
        for index, kind in enumerate(kinds)
    )
    root, tree, first = FIRST_OTHER, FIRST_OTHER + 1, FIRST_OTHER + 2
    numbers = [first + index for index in range(len(kinds))]
    kids = b" ".join(b"%d 0 R" % number for number in numbers)
    others = {
        root: b"<< /Type /StructTreeRoot /K [%s] /ParentTree %d 0 R >>" % (kids, tree),
        tree: b"<< /Nums [0 [%s]] >>" % kids,
    }
    for index, (number, kind) in enumerate(zip(numbers, kinds, strict=True)):
        others[number] = b"<< /Type /StructElem /S /%s /P %d 0 R /Pg %d 0 R /K %d >>" % (
            kind,
            root,
            _PAGE_NUMBER,
            index,
        )
    return pdf_of_streams(
        [stream],
        b"/StructParents 0",
        b"/MarkInfo << /Marked true >> /StructTreeRoot %d 0 R" % root,
        others,
    )


def test_the_contents_of_headings_are_tagged():
    with closing(pdfium.PdfDocument(tagged_pdf([b"H1", b"P", b"H3"]))) as document:
        tags = TagReader().tags(document[0])
    assert {mark: tag.heading_depth for mark, tag in tags.items()} == {0: 1, 2: 3}


def test_tagged_headings_are_sections():
    read = parse_pdf(tagged_pdf([b"H1", b"P", b"H2", b"H2", b"P"]), 1 << 20)
    assert [(item.title, item.depth) for item in read.headings] == [
        ("Line 0 of text", 1),
        ("Line 2 of text", 2),
        ("Line 3 of text", 2),
    ]


def test_a_file_without_tags_has_none():
    with closing(pdfium.PdfDocument(pdf_of_streams([b""]))) as document:
        assert TagReader().tags(document[0]) == {}
