"""Gives superscripts and subscripts in a workbook (XLSX) the signs that they have in other formats.

calamine returns the text of a cell without the placement of its parts, so `10` with a raised `6`
would be `106`. A text with such parts is replaced by a plain text before calamine opens the
workbook. These texts are searched for in the bytes of the parts, so that a workbook without them,
which is nearly every one, costs little. Texts whose tags have a prefix stay as they are.
"""

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from indexer_svc.parsers.package import Element, Package
from indexer_svc.parsers.placed_text import Piece, Placement, joined_pieces

_PLACED = b"<vertAlign"
_PARTS = re.compile(r"xl/(?:sharedStrings|worksheets/[^/]+)\.xml", re.IGNORECASE)
_TAGS = ("si", "is")  # The tags of a text in the table of shared texts, and in a cell.
_PLACEMENTS = {"superscript": Placement.SUPERSCRIPT, "subscript": Placement.SUBSCRIPT}


def with_raised_signs(package: Package) -> bytes:
    """Returns a copy of a workbook without pictures, in which superscripts have their signs.

    Returns no bytes if the workbook has no superscripts and no subscripts. Raises TooLarge.
    """
    changed = {}
    for name in package.markup_names():
        if _PARTS.fullmatch(name):
            part = package.read(name)
            if _PLACED in part:
                for tag in _TAGS:
                    part = _with_plain_texts(part, tag)
                changed[name] = part
    return package.markup_with(changed) if changed else b""


def _with_plain_texts(part: bytes, tag: str) -> bytes:
    begin, end = f"<{tag}>".encode(), f"</{tag}>".encode()
    *blocks, rest = part.split(end)
    for index, block in enumerate(blocks):
        start = block.rfind(begin)
        if start >= 0 and block.find(_PLACED, start) >= 0:
            text = block[start + len(begin) :]
            blocks[index] = block[: start + len(begin)] + _plain(text)
    return end.join((*blocks, rest))


def _plain(content: bytes) -> bytes:
    """Returns the content of a text as one element without placements."""
    try:
        text = joined_pieces(_pieces(ElementTree.fromstring(b"<si>" + content + b"</si>")))
    except ElementTree.ParseError:  # For example a name with a prefix that is declared elsewhere.
        return content
    return f'<t xml:space="preserve">{escape(text)}</t>'.encode()


def _pieces(text: Element) -> Iterator[Piece]:
    """Yields the parts of a text. Phonetic readings of Japanese texts are left out."""
    for child in text:
        if child.tag == "t":
            yield child.text or "", Placement.NORMAL
        elif child.tag == "r":
            vertical = child.find("rPr/vertAlign")
            name = "" if vertical is None else vertical.get("val", "")
            yield child.findtext("t") or "", _PLACEMENTS.get(name, Placement.NORMAL)
