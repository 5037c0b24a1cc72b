"""Names of elements and attributes in OpenDocument files, and how their values are read."""

import re
from collections.abc import Iterator

from indexer_svc.parsers.package import Element

_NAMESPACE = "{{urn:oasis:names:tc:opendocument:xmlns:{}:1.0}}"
OFFICE, STYLE, TEXT = (_NAMESPACE.format(name) for name in ("office", "style", "text"))
TABLE, DRAW, FORM = (_NAMESPACE.format(name) for name in ("table", "drawing", "form"))
PRESENTATION = _NAMESPACE.format("presentation")
SVG = _NAMESPACE.format("svg-compatible")
# LibreOffice adds elements and attributes that are not in the standard.
LIBREOFFICE = "{urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0}"
FIELD = "{urn:openoffice:names:experimental:ooo-ms-interop:xmlns:field:1.0}"
LINK = "{http://www.w3.org/1999/xlink}href"
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"

PARAGRAPH, HEADING, LIST = f"{TEXT}p", f"{TEXT}h", f"{TEXT}list"
LIST_ITEM, LIST_HEADER = f"{TEXT}list-item", f"{TEXT}list-header"
NUMBERED_PARAGRAPH = f"{TEXT}numbered-paragraph"
NOTE, NOTE_BODY, NOTE_MARK = f"{TEXT}note", f"{TEXT}note-body", f"{TEXT}note-citation"
GRID, ROW, CELL = f"{TABLE}table", f"{TABLE}table-row", f"{TABLE}table-cell"
COVERED_CELL = f"{TABLE}covered-table-cell"
CONTENTS = frozenset((
    *(f"{TEXT}{kind}-index" for kind in ("illustration", "table", "object", "user")),
    f"{TEXT}alphabetical-index", f"{TEXT}table-of-content",
))  # fmt: skip

_HIDING_FIELDS = (f"{TEXT}hidden-paragraph", f"{TEXT}span/{TEXT}hidden-paragraph")
_IS_HIDDEN = f"{TEXT}is-hidden"
_NUMBER = re.compile(r"-?[0-9]{1,9}")
# Elements without text that is shown. Nothing inside them is read.
_WITHOUT_TEXT = frozenset((
    f"{OFFICE}annotation", f"{OFFICE}annotation-end", f"{OFFICE}forms", f"{OFFICE}event-listeners",
    f"{OFFICE}settings", f"{TEXT}tracked-changes", f"{TEXT}ruby-text", f"{TEXT}page-number",
    f"{TEXT}page-count", f"{TEXT}page-continuation", f"{TEXT}sequence-decls",
    f"{TEXT}variable-decls", f"{TEXT}user-field-decls", f"{TEXT}bibliography-source",
    f"{TEXT}script", f"{TABLE}tracked-changes", f"{TABLE}shapes", f"{SVG}title", f"{SVG}desc",
    f"{PRESENTATION}date-time", f"{PRESENTATION}footer", f"{PRESENTATION}header",
))  # fmt: skip


def number(value: str | None, default: int) -> int:
    """Returns an integer of at most 9 digits; `default` for any other value."""
    return int(value) if value is not None and _NUMBER.fullmatch(value.strip()) else default


def shown_children(element: Element) -> Iterator[Element]:
    """Yields the children of an element that may contain text, in order."""
    for child in element:
        if child.tag not in _WITHOUT_TEXT and not _is_hidden(child):
            yield child


def _is_hidden(element: Element) -> bool:
    """Returns True for sections, paragraphs and rows that are hidden.

    An element that is hidden on a condition says whether it is hidden now.
    """
    return (
        element.get(f"{TEXT}display") == "none"
        or element.get(_IS_HIDDEN) == "true"
        or element.get(f"{TABLE}visibility") in ("collapse", "filter")
        or (element.tag in (PARAGRAPH, HEADING) and _has_hiding_field(element))
    )


def _has_hiding_field(paragraph: Element) -> bool:
    """Returns True if a field in a paragraph hides the whole paragraph."""
    return any(
        field.get(_IS_HIDDEN) == "true"
        for path in _HIDING_FIELDS
        for field in paragraph.iterfind(path)
    )
