"""Names of elements and attributes in Word documents, and how their values are read.

The names are those of Transitional Open XML; `office_xml` translates those of Strict Open XML.
"""

import re
from collections.abc import Iterator

from indexer_svc.parsers.office import COMPATIBILITY
from indexer_svc.parsers.package import Element

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
WORD_2010 = "{http://schemas.microsoft.com/office/word/2010/wordml}"

PARAGRAPH, RUN, TABLE = f"{WORD}p", f"{WORD}r", f"{WORD}tbl"
ROW, CELL = f"{WORD}tr", f"{WORD}tc"
PARAGRAPH_PROPERTIES, RUN_PROPERTIES = f"{WORD}pPr", f"{WORD}rPr"
TEXT, TEXT_BOX = f"{WORD}t", f"{WORD}txbxContent"
CONTENT_CONTROL = f"{WORD}sdt"
EQUATION, EQUATIONS = f"{MATH}oMath", f"{MATH}oMathPara"
MATH_RUN, MATH_TEXT = f"{MATH}r", f"{MATH}t"
VALUE = f"{WORD}val"
DELETED = (f"{WORD}del", f"{WORD}moveFrom")

ALTERNATIVES = f"{COMPATIBILITY}AlternateContent"
_CHOICE, _FALLBACK = f"{COMPATIBILITY}Choice", f"{COMPATIBILITY}Fallback"
TRUE_VALUES, FALSE_VALUES = ("1", "true", "on"), ("0", "false", "off")
_NUMBER = re.compile(r"-?[0-9]{1,9}")
# Elements without text that Word shows. Nothing inside them is read.
_WITHOUT_TEXT = frozenset((
    *DELETED, PARAGRAPH_PROPERTIES, RUN_PROPERTIES, f"{WORD}sectPr", f"{WORD}sdtPr",
    f"{WORD}sdtEndPr", f"{WORD}tblPr", f"{WORD}tblGrid", f"{WORD}trPr", f"{WORD}tcPr",
    f"{WORD}tblPrEx", f"{WORD}rubyPr", f"{WORD}rt", f"{WORD}smartTagPr", f"{WORD}customXmlPr",
    f"{WORD}altChunk",
))  # fmt: skip


def value_of(parent: Element | None, name: str) -> str | None:
    """Returns the value of the child `name`; None if there is no such child or value."""
    child = None if parent is None else parent.find(name)
    return None if child is None else child.get(VALUE)


def number_of(parent: Element | None, name: str) -> int | None:
    """Returns the value of the child `name` as an integer; None if it is none.

    Integers of more than 9 digits count as none.
    """
    return number(value_of(parent, name))


def number(value: str | None) -> int | None:
    """Returns an integer of at most 9 digits; None for any other value."""
    return int(value) if value is not None and _NUMBER.fullmatch(value.strip()) else None


def switch_of(parent: Element | None, name: str) -> bool | None:
    """Returns True if the child `name` switches a property on, False if off, None without it."""
    child = None if parent is None else parent.find(name)
    return None if child is None else child.get(VALUE) not in FALSE_VALUES


def shown_children(element: Element) -> Iterator[Element]:
    """Yields the children of an element that may contain text, in order.

    An element may have alternatives for programs of different ages. The first one is for the
    newest program, so it is used; the replacement for older programs is used if there is no other.
    """
    if element.tag == ALTERNATIVES:
        chosen = element.find(_CHOICE)
        chosen = element.find(_FALLBACK) if chosen is None else chosen
        if chosen is not None:
            yield chosen
        return
    for child in element:
        if child.tag not in _WITHOUT_TEXT:
            yield child


def outermost(element: Element, name: str) -> Iterator[Element]:
    """Yields the elements `name` below `element` that are in no other element of this name.

    Elements in between, such as content controls, may be nested to any depth.
    """
    pending = list(shown_children(element))[::-1]
    while pending:
        child = pending.pop()
        if child.tag == name:
            yield child
        else:
            pending += list(shown_children(child))[::-1]
