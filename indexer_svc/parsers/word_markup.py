"""Rewrites parts of a Word document so that mammoth reads only what Word shows.

mammoth, the library that converts Word documents, supports neither hidden text nor equations. So
hidden text is removed, and an equation becomes text in Word's linear format: `E=mc^2`, `1/2`. A
part is an XML file in the document's archive. The elements in a part must have the names of
Transitional Open XML.
"""

from xml.etree import ElementTree

from indexer_svc.parsers.package import Element

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_TABLE, _PARAGRAPH, _RUN, _MATH_RUN = f"{_WORD}tbl", f"{_WORD}p", f"{_WORD}r", f"{_MATH}r"
_VANISH = f"{_WORD}rPr/{_WORD}vanish"
_VALUE = f"{_WORD}val"
_TRUE, _FALSE = ("1", "true", "on"), ("0", "false", "off")
# The elements of fields, for example of cross-references. These elements are not removed together
# with hidden text, because hidden text may contain only the beginning or only the end of a field.
_FIELD_ELEMENTS = (f"{_WORD}fldChar", f"{_WORD}instrText")
# For each element that can have a style: the kind of the style, and the path from the element to
# the child element that names the style.
_STYLES = {
    _TABLE: ("table", f"{_WORD}tblPr/{_WORD}tblStyle"),
    _PARAGRAPH: ("paragraph", f"{_WORD}pPr/{_WORD}pStyle"),
    _RUN: ("character", f"{_WORD}rPr/{_WORD}rStyle"),
    _MATH_RUN: ("character", f"{_WORD}rPr/{_WORD}rStyle"),
}
_EQUATION = f"{_MATH}oMath"
# The elements with equations, which are replaced by text. An oMathPara is a paragraph of one or
# more oMath elements.
_EQUATIONS = (f"{_MATH}oMathPara", _EQUATION)
_MATH_TEXTS = (f"{_MATH}t", f"{_WORD}t")
_MATH_SIGNS = {_EQUATION: " ", f"{_MATH}sup": "^", f"{_MATH}sub": "_", f"{_MATH}den": "/"}
_DELETED = (f"{_WORD}del", f"{_WORD}moveFrom")


class StyleSheet:
    """Finds out which styles of a Word document hide text."""

    def __init__(self, styles: Element | None) -> None:
        """Reads `styles`, the root element of the file that contains the document's styles.

        `styles` is None if the document has no styles.
        """
        self.hides_by_default = False
        self._defaults: dict[str, str] = {}
        self._styles: dict[tuple[str, str], Element] = {}
        self._hiding: set[tuple[str, str]] = set()
        if styles is not None:
            self._read(styles)

    def hides(self, element: Element) -> bool:
        """Returns True if the style of a table, a paragraph or a run hides text.

        A run is a piece of text with one format. Only the style that the element names is
        considered, not the styles of the elements around it and not the element's own properties.
        """
        kind, path = _STYLES[element.tag]
        name = _value(element.find(path))
        if (kind, name) not in self._styles:
            name = self._defaults.get(kind, "")
        return (kind, name) in self._hiding

    def _read(self, styles: Element) -> None:
        defaults = styles.find(f"{_WORD}docDefaults/{_WORD}rPrDefault")
        self.hides_by_default = bool(_vanishes(defaults))
        for style in styles.iterfind(f"{_WORD}style"):
            kind = style.get(f"{_WORD}type", "paragraph")
            name = style.get(f"{_WORD}styleId", "")
            self._styles.setdefault((kind, name), style)
            if style.get(f"{_WORD}default") in _TRUE:
                self._defaults[kind] = name
        self._hiding = {key for key in self._styles if self._vanishes(*key)}

    def _vanishes(self, kind: str, name: str) -> bool:
        """Returns True if a style hides text.

        If a style does not specify whether text is hidden, the style on which it is based decides,
        and so on. If none of these styles specifies it, the text is not hidden.
        """
        visited_names = set()
        while (kind, name) in self._styles and name not in visited_names:
            visited_names.add(name)
            style = self._styles[kind, name]
            vanishes = _vanishes(style)
            if vanishes is not None:
                return vanishes
            name = _value(style.find(f"{_WORD}basedOn"))
        return False


def keep_shown(root: Element, styles: StyleSheet) -> None:
    """Removes hidden text from a part of a Word document, and replaces equations by their text."""
    _remove_hidden(root, styles)
    pending = [root]
    while pending:
        element = pending.pop()
        if element.tag in _EQUATIONS:
            _make_run(element)
        else:
            pending += element


def _remove_hidden(root: Element, styles: StyleSheet) -> None:
    # Each entry has an element and two values. The first value is True if the style of the table
    # around the element hides text. The second value is True if the style of the paragraph around
    # the element hides text.
    pending = [(root, False, False)]
    while pending:
        element, by_table, by_paragraph = pending.pop()
        if element.tag == _TABLE:
            by_table = styles.hides(element)
        elif element.tag == _PARAGRAPH:
            by_paragraph = styles.hides(element)
        elif element.tag in (_RUN, _MATH_RUN):
            hidden = _vanishes(element)
            if hidden is None:
                # "Hidden" is a toggle property: each style that sets this property inverts the
                # value of the outer styles (ISO/IEC 29500-1, 17.7.3).
                hidden = styles.hides_by_default or by_table ^ by_paragraph ^ styles.hides(element)
            if hidden:
                element[:] = [child for child in element if child.tag in _FIELD_ELEMENTS]
        pending += ((child, by_table, by_paragraph) for child in element)


def _make_run(equation: Element) -> None:
    """Turns the element of an equation into a run with the equation in Word's linear format.

    A run is a piece of text with one format.
    """
    text = _linear(equation).removeprefix(" ")
    equation.clear()
    equation.tag = _RUN
    ElementTree.SubElement(equation, f"{_WORD}t").text = text


def _linear(equation: Element) -> str:
    """Returns the text of an equation in Word's linear format, for example `E=mc^2`."""
    parts = []
    pending = [equation]
    while pending:
        element = pending.pop()
        if element.tag not in _DELETED:
            parts.append(_MATH_SIGNS.get(element.tag, ""))
            if element.tag in _MATH_TEXTS:
                parts.append(element.text or "")
            pending += reversed(element)
    return "".join(parts)


def _vanishes(owner: Element | None) -> bool | None:
    """Returns True if the properties of a run or a style hide text, False if they show text.

    Returns None if the properties do not specify this. A run is a piece of text with one format.
    """
    vanish = None if owner is None else owner.find(_VANISH)
    return None if vanish is None else vanish.get(_VALUE) not in _FALSE


def _value(element: Element | None) -> str:
    return "" if element is None else element.get(_VALUE, "")
