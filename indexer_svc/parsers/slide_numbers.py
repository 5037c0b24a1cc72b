"""Counts the numbered paragraphs of a text on a slide, as PowerPoint shows their numbers.

A paragraph names its kind of number, for example `arabicPeriod` for `1.`, and may name the first
number. PowerPoint stores no number, so the paragraphs are counted here: on each level, a paragraph
takes the next number if the paragraph before it on this level has the same kind and the same first
number. A paragraph of a level above begins the levels below it again. An empty paragraph has no
number and is not counted.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from indexer_svc.parsers.number_formats import format_number
from indexer_svc.parsers.package import Element

_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_PROPERTIES, _NUMBERED = f"{_DRAWING}pPr", f"{_DRAWING}buAutoNum"
# Each of these says which sign is before a paragraph.
_BULLETS = (_NUMBERED, f"{_DRAWING}buNone", f"{_DRAWING}buChar", f"{_DRAWING}buBlip")
_LEVELS = tuple("012345678")
_START = re.compile(r"[0-9]{1,5}")
# The name of a kind of number begins with one of these and ends with one of the endings below.
_FORMATS: Mapping[str, str] = {
    "alphaLc": "lowerLetter",
    "alphaUc": "upperLetter",
    "romanLc": "lowerRoman",
    "romanUc": "upperRoman",
    "arabicDb": "decimalFullWidth",
    "circleNumDb": "decimalEnclosedCircle",
    "circleNumWdBlack": "decimalEnclosedCircle",
    "circleNumWdWhite": "decimalEnclosedCircle",
    "ea1Chs": "chineseCounting",
    "ea1Cht": "taiwaneseCounting",
    "ea1JpnChsDb": "japaneseCounting",
    "ea1JpnKor": "japaneseCounting",
    "arabic1": "arabicAlpha",
    "arabic2": "arabicAbjad",
    "hebrew2": "hebrew2",
    "hindiNum": "hindiNumbers",
    "thaiNum": "thaiNumbers",
}
_KIND = re.compile(r"(\w+?)(ParenBoth|ParenR|Period|Plain|Minus)")
_ENDINGS: Mapping[str, str] = {
    "ParenBoth": "({})",
    "ParenR": "{})",
    "Period": "{}.",
    "Plain": "{}",
    "Minus": "{}-",
}


@dataclass(slots=True)
class SlideNumbers:
    """The running numbers of a text: for each level, the kind, the first and the last number."""

    styles: Element | None = None
    """The properties that the shape gives the paragraphs of each level, or None."""
    _running: dict[int, tuple[str, int, int]] = field(default_factory=dict)

    def count(self, paragraph: Element) -> str:
        """Counts a paragraph with text; returns its number, or an empty string if it has none."""
        level = paragraph_level(paragraph)
        for below in [other for other in self._running if other > level]:
            del self._running[below]
        numbered = self._bullet(paragraph, level)
        if numbered is None or numbered.tag != _NUMBERED:
            self._running.pop(level, None)
            return ""
        kind = numbered.get("type", "")
        start_text = numbered.get("startAt", "1")
        start = int(start_text) if _START.fullmatch(start_text) else 1
        earlier_kind, earlier_start, last = self._running.get(level, ("", 0, 0))
        number = last + 1 if (earlier_kind, earlier_start) == (kind, start) else start
        self._running[level] = kind, start, number
        return _written(number, kind)

    def _bullet(self, paragraph: Element, level: int) -> Element | None:
        """Returns the element that says which sign is before a paragraph, or None."""
        owners = [paragraph.find(_PROPERTIES)]
        if self.styles is not None:
            owners.append(self.styles.find(f"{_DRAWING}lvl{level + 1}pPr"))
        for properties in owners:
            for element in () if properties is None else properties:
                if element.tag in _BULLETS:
                    return element
        return None


def paragraph_level(paragraph: Element) -> int:
    """Returns the list level of a paragraph, from 0."""
    properties = paragraph.find(_PROPERTIES)
    level = "0" if properties is None else properties.get("lvl", "0")
    return int(level) if level in _LEVELS else 0


def _written(number: int, kind: str) -> str:
    match = _KIND.fullmatch(kind)
    if match is None:
        return f"{number}."
    return _ENDINGS[match[2]].format(format_number(number, _FORMATS.get(match[1], "decimal")))
