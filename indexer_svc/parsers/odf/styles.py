"""The styles of an OpenDocument file, resolved: what a text gets from the style that it names."""

from dataclasses import dataclass
from enum import StrEnum

from indexer_svc.parsers.odf.names import OFFICE, PRESENTATION, STYLE, TEXT, number
from indexer_svc.parsers.package import Element
from indexer_svc.parsers.placed_text import Placement

_STYLE_LISTS = (f"{OFFICE}styles", f"{OFFICE}automatic-styles")
_TITLE = "Title"


class OdfStyleFamily(StrEnum):
    """The kinds of styles that matter for text."""

    TEXT = "text"
    PARAGRAPH = "paragraph"
    PAGE = "drawing-page"


@dataclass(frozen=True, slots=True)
class OdfStyle:
    """The properties of a style. A property is None if neither the style nor a parent has it.

    `list_style` is the name of the list style of a paragraph, or empty for none.
    """

    is_title: bool = False
    is_hidden: bool | None = None
    placement: Placement | None = None
    list_style: str | None = None
    font: str | None = None


_NO_STYLE = OdfStyle()


class OdfStyles:
    """The styles of a file. A style in a later part replaces an earlier style of the same name."""

    def __init__(self, *roots: Element) -> None:
        """Reads the styles in the parts with the root elements `roots`."""
        self.list_styles: dict[str, Element] = {}
        self.outline: Element | None = None
        self._elements: dict[tuple[str, str], Element] = {}
        self._resolved: dict[tuple[str, str], OdfStyle] = {}
        for root in roots:
            for name in _STYLE_LISTS:
                for styles in root.iterfind(name):
                    self._read(styles)

    def of(self, family: OdfStyleFamily, name: str | None) -> OdfStyle:
        """Returns the style of a name. The properties of an unknown style are None."""
        return _NO_STYLE if name is None else self._style(family, name)

    def _read(self, styles: Element) -> None:
        for element in styles:
            name = element.get(f"{STYLE}name", "")
            if element.tag == f"{STYLE}style":
                self._elements[element.get(f"{STYLE}family", ""), name] = element
            elif element.tag == f"{TEXT}list-style":
                self.list_styles[name] = element
            elif element.tag == f"{TEXT}outline-style":
                self.outline = element

    def _style(self, family: str, style_name: str) -> OdfStyle:
        """Returns a style with the properties of its parents.

        If styles are the parents of each other in a circle, each of them is used once.
        """
        unresolved: list[str] = []
        visited = set()
        name: str | None = style_name
        while (
            name is not None
            and (family, name) in self._elements
            and (family, name) not in self._resolved
            and name not in visited
        ):
            visited.add(name)
            unresolved.append(name)
            name = self._elements[family, name].get(f"{STYLE}parent-style-name")
        style = _NO_STYLE if name is None else self._resolved.get((family, name), _NO_STYLE)
        for name in reversed(unresolved):
            style = _derived(style, self._elements[family, name])
            self._resolved[family, name] = style
        return style


def _derived(parent: OdfStyle, element: Element) -> OdfStyle:
    """Returns the style of `element`, whose parent is the style `parent`."""
    text = element.find(f"{STYLE}text-properties")
    page = element.find(f"{STYLE}drawing-page-properties")
    hidden = None
    if text is not None and (display := text.get(f"{TEXT}display")) is not None:
        hidden = display == "none"
    if page is not None and (visibility := page.get(f"{PRESENTATION}visibility")) is not None:
        hidden = visibility == "hidden"
    placement = None if text is None else _placement(text.get(f"{STYLE}text-position"))
    list_style = element.get(f"{STYLE}list-style-name")
    # A file may declare a font several times, as `Symbol`, `Symbol1` and so on.
    font = None if text is None else (text.get(f"{STYLE}font-name") or "").rstrip("0123456789")
    return OdfStyle(
        parent.is_title or element.get(f"{STYLE}name") == _TITLE,
        parent.is_hidden if hidden is None else hidden,
        placement or parent.placement,
        parent.list_style if list_style is None else list_style,
        font or parent.font,
    )


def _placement(position: str | None) -> Placement | None:
    """Returns the placement for a position: `super`, `sub`, or a share of the font's height."""
    words = (position or "").split()
    if not words:
        return None
    height = {"super": 1, "sub": -1}.get(words[0])
    if height is None:
        height = number(words[0].partition("%")[0].partition(".")[0], 0)
    if height == 0:
        return Placement.NORMAL
    return Placement.SUPERSCRIPT if height > 0 else Placement.SUBSCRIPT
