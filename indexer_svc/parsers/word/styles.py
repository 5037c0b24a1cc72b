"""The styles of a Word document, resolved: what a paragraph, run or table gets from its style.

A style may be based on another one. A property that it does not have comes from the nearest style
on which it is based and that has it.
"""

import re
from dataclasses import dataclass, replace

from indexer_svc.parsers.package import Element
from indexer_svc.parsers.word.names import (
    MATH_RUN,
    PARAGRAPH,
    PARAGRAPH_PROPERTIES,
    RUN,
    RUN_PROPERTIES,
    TABLE,
    TRUE_VALUES,
    WORD,
    number_of,
    switch_of,
    value_of,
)

# For each element that can have a style: the kind of the style, and the path of its name.
_STYLES = {
    TABLE: ("table", f"{WORD}tblPr", f"{WORD}tblStyle"),
    PARAGRAPH: ("paragraph", PARAGRAPH_PROPERTIES, f"{WORD}pStyle"),
    RUN: ("character", RUN_PROPERTIES, f"{WORD}rStyle"),
    MATH_RUN: ("character", RUN_PROPERTIES, f"{WORD}rStyle"),
}
_HEADING = re.compile(r"heading ?([1-9])", re.IGNORECASE)
_CONTENTS = re.compile(
    r"toc ?[1-9]|toc ?heading|contents ?[1-9]|contents heading|table of figures|index ?[1-9]",
    re.IGNORECASE,
)
_TITLE = "title"
# Outline levels are counted from 0. The last one means body text.
_BODY_LEVEL = 9


@dataclass(frozen=True, slots=True)
class ListReference:
    """The list to which a style or a paragraph belongs.

    `level` counts from 0. If it is None, the list's definition names the level for the style
    `style_id`. `num_id` is "0" if the style belongs to no list although its base does.
    """

    num_id: str
    level: int | None
    style_id: str


@dataclass(frozen=True, slots=True)
class WordStyle:
    """The properties of a style. A property is None if neither the style nor a base has it."""

    name: str = ""
    outline_level: int | None = None
    list: ListReference | None = None
    vanishes: bool | None = None
    vertical: str | None = None
    font: str | None = None

    @property
    def heading_depth(self) -> int | None:
        """The depth of headings in this style, from 1; None if it is not a style of headings."""
        return heading_depth(self.outline_level)

    @property
    def is_title(self) -> bool:
        """True if this is the style of the document's title."""
        return self.name.lower() == _TITLE

    @property
    def is_contents(self) -> bool:
        """True if this is a style of a table of contents or an index."""
        return _CONTENTS.fullmatch(self.name) is not None


_NO_STYLE = WordStyle()


class WordStyles:
    """The styles of a document."""

    def __init__(self, styles: Element | None) -> None:
        """Reads `styles`, the root element of the part that contains the document's styles.

        It is None if the document has no such part.
        """
        self.hides_by_default = False
        self._defaults: dict[str, str] = {}
        self._elements: dict[tuple[str, str], Element] = {}
        self._resolved: dict[tuple[str, str], WordStyle] = {}
        if styles is not None:
            self._read(styles)

    def of(self, element: Element) -> WordStyle:
        """Returns the style of a table, paragraph or run.

        An element without a known style has the default style of its kind. If the document does
        not define a paragraph's style, its id counts as its name: `Heading1` is a heading.
        """
        kind, properties, name = _STYLES[element.tag]
        style_id = value_of(element.find(properties), name)
        if style_id is not None:
            if (kind, style_id) in self._elements:
                return self._style(kind, style_id)
            if kind == "paragraph" and (match := _HEADING.fullmatch(style_id)):
                return WordStyle(style_id, int(match[1]) - 1)
        default = self._defaults.get(kind)
        return _NO_STYLE if default is None else self._style(kind, default)

    def numbering_style(self, style_id: str) -> ListReference | None:
        """Returns the list of a style of the kind `numbering`; None if it has none."""
        if ("numbering", style_id) not in self._elements:
            return None
        return self._style("numbering", style_id).list

    def hides(self, run: Element, paragraph_style: WordStyle, *, table_hides: bool) -> bool:
        """Returns True if Word does not show a run of text.

        `table_hides` is True if the style of the table around it hides text.
        """
        hidden = switch_of(run.find(RUN_PROPERTIES), f"{WORD}vanish")
        if hidden is not None:
            return hidden
        # Each style toggles the setting of the outer styles (ISO/IEC 29500-1, 17.7.3).
        by_paragraph = bool(paragraph_style.vanishes)
        return self.hides_by_default or table_hides ^ by_paragraph ^ bool(self.of(run).vanishes)

    def _read(self, styles: Element) -> None:
        defaults = styles.find(f"{WORD}docDefaults/{WORD}rPrDefault/{RUN_PROPERTIES}")
        self.hides_by_default = bool(switch_of(defaults, f"{WORD}vanish"))
        for style in styles.iterfind(f"{WORD}style"):
            kind = style.get(f"{WORD}type", "paragraph")
            name = style.get(f"{WORD}styleId", "")
            self._elements.setdefault((kind, name), style)
            if style.get(f"{WORD}default") in TRUE_VALUES:
                self._defaults[kind] = name

    def _style(self, kind: str, style_id: str) -> WordStyle:
        """Returns a style with the properties of its bases.

        If styles are based on each other in a circle, each of them is used once.
        """
        if (kind, style_id) in self._resolved:
            return self._resolved[kind, style_id]
        unresolved: list[str] = []
        visited = set()
        name: str | None = style_id
        while (
            name is not None
            and (kind, name) in self._elements
            and (kind, name) not in self._resolved
            and name not in visited
        ):
            visited.add(name)
            unresolved.append(name)
            name = value_of(self._elements[kind, name], f"{WORD}basedOn")
        style = _NO_STYLE
        if name is not None:
            style = self._resolved.get((kind, name), _NO_STYLE)
        for name in reversed(unresolved):
            style = _derived(style, self._elements[kind, name], name)
            self._resolved[kind, name] = style
        return self._resolved[kind, style_id]


def heading_depth(outline_level: int | None) -> int | None:
    """Returns the depth of a heading, from 1, for an outline level; None for body text."""
    if outline_level is None or not 0 <= outline_level < _BODY_LEVEL:
        return None
    return outline_level + 1


def list_reference(properties: Element | None, style_id: str) -> ListReference | None:
    """Returns the list that the properties of a paragraph or a style name.

    Returns None if they name no list. If they name only a level, `num_id` is empty.
    """
    numbers = None if properties is None else properties.find(f"{WORD}numPr")
    if numbers is None:
        return None
    num_id = value_of(numbers, f"{WORD}numId") or ""
    level = number_of(numbers, f"{WORD}ilvl")
    return ListReference(num_id, level, style_id) if num_id or level is not None else None


def _derived(base: WordStyle, element: Element, style_id: str) -> WordStyle:
    """Returns the style of `element`, which is based on the style `base`."""
    paragraph = element.find(PARAGRAPH_PROPERTIES)
    run = element.find(RUN_PROPERTIES)
    name = value_of(element, f"{WORD}name") or ""
    outline_level = number_of(paragraph, f"{WORD}outlineLvl")
    if outline_level is None and (match := _HEADING.fullmatch(name.strip())):
        outline_level = int(match[1]) - 1
    list_ = list_reference(paragraph, style_id)
    if list_ is not None and not list_.num_id and base.list is not None:
        list_ = replace(list_, num_id=base.list.num_id)
    vanishes = switch_of(run, f"{WORD}vanish")
    return WordStyle(
        name.strip(),
        base.outline_level if outline_level is None else outline_level,
        base.list if list_ is None else list_,
        base.vanishes if vanishes is None else vanishes,
        value_of(run, f"{WORD}vertAlign") or base.vertical,
        font_of(run) or base.font,
    )


def font_of(run_properties: Element | None) -> str | None:
    """Returns the font of a run's private code points; None if no font is named."""
    fonts = None if run_properties is None else run_properties.find(f"{WORD}rFonts")
    if fonts is None:
        return None
    return fonts.get(f"{WORD}hAnsi") or fonts.get(f"{WORD}ascii")
