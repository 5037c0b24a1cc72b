"""Rewrites parts of a Word document so that mammoth reads only what Word shows.

mammoth supports neither hidden text nor equations. So hidden text is removed, and an equation
becomes text in Word's linear format: `E=mc^2`, `1/2`. Elements have the names of Transitional Open
XML.
"""

from xml.etree import ElementTree

from indexer_svc.parsers.package import Element

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_TABLE, _PARAGRAPH, _RUN, _MATH_RUN = f"{_WORD}tbl", f"{_WORD}p", f"{_WORD}r", f"{_MATH}r"
_VANISH = f"{_WORD}rPr/{_WORD}vanish"
_VALUE = f"{_WORD}val"
_TRUE, _FALSE = ("1", "true", "on"), ("0", "false", "off")
# Elements of these kinds form pairs. They are never removed, because hidden text may contain only
# one element of a pair.
_FIELD_ELEMENTS = (f"{_WORD}fldChar", f"{_WORD}instrText")
# For each element that can have a style: the kind of the style, and the path of the child element
# that names it.
_STYLES = {
    _TABLE: ("table", f"{_WORD}tblPr/{_WORD}tblStyle"),
    _PARAGRAPH: ("paragraph", f"{_WORD}pPr/{_WORD}pStyle"),
    _RUN: ("character", f"{_WORD}rPr/{_WORD}rStyle"),
    _MATH_RUN: ("character", f"{_WORD}rPr/{_WORD}rStyle"),
}
_EQUATION = f"{_MATH}oMath"
_EQUATIONS = (f"{_MATH}oMathPara", _EQUATION)  # An oMathPara contains oMath elements.
_MATH_TEXTS = (f"{_MATH}t", f"{_WORD}t")
_MATH_SIGNS = {_EQUATION: " ", f"{_MATH}sup": "^", f"{_MATH}sub": "_", f"{_MATH}den": "/"}
_DELETED = (f"{_WORD}del", f"{_WORD}moveFrom")


class StyleSheet:
    """The styles of a document that hide text."""

    def __init__(self, styles: Element | None) -> None:
        """Reads `styles`, the root element of the part that contains the document's styles.

        It is None if the document has no such part.
        """
        self.hides_by_default = False
        self._defaults: dict[str, str] = {}
        self._styles: dict[tuple[str, str], Element] = {}
        self._hiding: set[tuple[str, str]] = set()
        if styles is not None:
            self._read(styles)

    def hides(self, element: Element) -> bool:
        """Returns True if the style of a table, paragraph or run hides text.

        Styles of the elements around it, and settings of the element itself, are not considered.
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

        If the style itself does not specify this, the nearest style on which it is based and that
        specifies it decides. If no style specifies it, the text is not hidden.
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
    """Removes hidden text from a part, and turns its equations into runs of text."""
    _remove_hidden(root, styles)
    pending = [root]
    while pending:
        element = pending.pop()
        if element.tag in _EQUATIONS:
            _make_run(element)
        else:
            pending += element


def _remove_hidden(root: Element, styles: StyleSheet) -> None:
    # Each entry has an element, and two values: whether the style of the table around it hides
    # text, and whether the style of the paragraph around it does.
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
                # Each style toggles the setting of the outer styles (ISO/IEC 29500-1, 17.7.3).
                hidden = styles.hides_by_default or by_table ^ by_paragraph ^ styles.hides(element)
            if hidden:
                element[:] = [child for child in element if child.tag in _FIELD_ELEMENTS]
        pending += ((child, by_table, by_paragraph) for child in element)


def _make_run(equation: Element) -> None:
    """Turns an equation into a run with its text in linear format."""
    text = _linear(equation).removeprefix(" ")
    equation.clear()
    equation.tag = _RUN
    ElementTree.SubElement(equation, f"{_WORD}t").text = text


def _linear(equation: Element) -> str:
    """Returns the text of an equation in linear format."""
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
    """Returns True if the properties of a run or a style hide text, False if they show it.

    Returns None if they do not specify this.
    """
    vanish = None if owner is None else owner.find(_VANISH)
    return None if vanish is None else vanish.get(_VALUE) not in _FALSE


def _value(element: Element | None) -> str:
    return "" if element is None else element.get(_VALUE, "")
