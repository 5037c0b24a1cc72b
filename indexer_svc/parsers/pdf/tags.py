"""Reads the structure tree of a page of a tagged PDF.

The tree says which marked contents of a page belong to which heading. The layout uses only that.
The order and the tables of a page come from where its characters stand: that is what a reader sees.
"""

import ctypes
import re
from collections.abc import Iterator

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from indexer_svc.parsers.pdf.page_content import Tag

# At most this many elements of the tree of a page are read, and at most this deep.
MAX_PAGE_ELEMENTS = 20_000
_MAX_DEPTH = 64
_HEADING = re.compile(r"H([1-6])?|Title")


class TagReader:
    """Reads the tags of pages, and numbers the elements of the whole document."""

    def __init__(self) -> None:
        self._element = 0

    def tags(self, page: pdfium.PdfPage) -> dict[int, Tag]:
        """Returns the tags of the marked contents of a page that belong to headings."""
        tree = pdfium_c.FPDF_StructTree_GetForPage(page)
        if not tree:
            return {}
        try:
            return dict(self._read(tree))
        finally:
            pdfium_c.FPDF_StructTree_Close(tree)

    def _read(self, tree: pdfium_c.FPDF_STRUCTTREE) -> Iterator[tuple[int, Tag]]:
        count = min(pdfium_c.FPDF_StructTree_CountChildren(tree), MAX_PAGE_ELEMENTS)
        waiting = [
            (pdfium_c.FPDF_StructTree_GetChildAtIndex(tree, index), 0, Tag())
            for index in reversed(range(max(0, count)))
        ]
        read = 0
        while waiting and read < MAX_PAGE_ELEMENTS:
            element, depth, tag = waiting.pop()
            read += 1
            if not element:
                continue
            heading_depth = _heading_depth(element)
            if heading_depth:
                self._element += 1
                tag = Tag(heading_depth, self._element)
            children = min(pdfium_c.FPDF_StructElement_CountChildren(element), MAX_PAGE_ELEMENTS)
            for index in reversed(range(max(0, children))):
                if tag.heading_depth:
                    mark = pdfium_c.FPDF_StructElement_GetChildMarkedContentID(element, index)
                    if mark >= 0:
                        yield mark, tag
                        continue
                if depth < _MAX_DEPTH:
                    child = pdfium_c.FPDF_StructElement_GetChildAtIndex(element, index)
                    if child:
                        waiting.append((child, depth + 1, tag))


def _heading_depth(element: pdfium_c.FPDF_STRUCTELEMENT) -> int:
    buffer = ctypes.create_string_buffer(64)
    length = pdfium_c.FPDF_StructElement_GetType(element, buffer, 64)
    if not 2 < length <= 64:
        return 0
    match = _HEADING.fullmatch(buffer.raw[: length - 2].decode("utf-16-le", "replace"))
    return 0 if match is None else int(match[1] or 1)
