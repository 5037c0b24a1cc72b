"""Counts the items of lists and the headings of an OpenDocument file, and writes their numbers.

Theory of operation. A list is an element, and the level of an item is the number of lists around
it. Each outermost list has separate counters, one for each level, unless it continues an earlier
list. An item takes the next number of its level, starts the levels above that have no
number, and stops the levels below. Headings have one set of counters, and their level is a property
of the heading. A style gives each level its format and says how many levels a number shows.
LibreOffice adds a pattern such as `Section %1%-%2%`, which says what is between the numbers too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from indexer_svc.parsers.number_formats import format_number
from indexer_svc.parsers.odf.names import LIBREOFFICE, STYLE, TEXT, number
from indexer_svc.parsers.odf.styles import OdfStyles
from indexer_svc.parsers.package import Element

BULLET = "-"

_LEVELS = 10
_LEVEL = f"{TEXT}level"
_BULLETS = (f"{TEXT}list-level-style-bullet", f"{TEXT}list-level-style-image")
_NUMBERED = (f"{TEXT}list-level-style-number", f"{TEXT}outline-level-style")
_FORMATS: Mapping[str, str] = {
    "1": "decimal",
    "a": "lowerLetter",
    "A": "upperLetter",
    "i": "lowerRoman",
    "I": "upperRoman",
    "一, 二, 三, ...": "chineseCounting",
    "壹, 贰, 叁, ...": "chineseLegalSimplified",
    "壹, 貳, 參, ...": "ideographLegalTraditional",
    "甲, 乙, 丙, ...": "ideographTraditional",
    "子, 丑, 寅, ...": "ideographZodiac",
    "①, ②, ③, ...": "decimalEnclosedCircle",
    "１, ２, ３, ...": "decimalFullWidth",
    "ア, イ, ウ, ...": "aiueo",
    "イ, ロ, ハ, ...": "iroha",
    "가, 나, 다, ...": "ganada",
    "ㄱ, ㄴ, ㄷ, ...": "chosung",
    "А, Б, .., Аа, Аб, ... (ru)": "russianUpper",
    "а, б, .., аа, аб, ... (ru)": "russianLower",
    "Α, Β, Γ, ... (gr)": "greekUpper",
    "α, β, γ, ... (gr)": "greekLower",
    "1st": "ordinal",
    "One": "cardinalText",
    "First": "ordinalText",
    "01, 02, 03, ...": "decimalZero",
}
# A longer prefix or suffix is cut. It is no number, but an attack.
_MAX_AFFIX_CHARS = 100
_PLACE = re.compile(r"%([0-9]{1,2})%")


@dataclass(slots=True)
class OdfCounters:
    """The running numbers of a list, by level. A level without a number is None."""

    numbers: list[int | None] = field(default_factory=lambda: [None] * _LEVELS)


@dataclass(frozen=True, slots=True)
class _OdfLevel:
    """The definition of a level. `pattern` is empty if the number has no pattern."""

    format: str
    prefix: str
    suffix: str
    shown_levels: int
    start: int
    is_bullet: bool
    pattern: str = ""


_PLAIN = _OdfLevel("", "", "", 1, 1, is_bullet=False)


class OdfListNumbers:
    """The numbers of headings, and those of items in lists whose counters the caller keeps."""

    def __init__(self, styles: OdfStyles) -> None:
        """Reads the definitions of lists from the styles of a file."""
        self._levels = {name: _levels(style) for name, style in styles.list_styles.items()}
        self._outline = {} if styles.outline is None else _levels(styles.outline)
        self._headings = OdfCounters()

    def count_item(self, counters: OdfCounters, style: str, level: int, start: int | None) -> str:
        """Counts an item of the list style `style` and returns its number, or BULLET.

        `level` counts from 1. `start` is the number that the item says it has, or None. The result
        is empty if nothing is shown before the item.
        """
        levels = self._levels.get(style)
        if levels is None:
            return BULLET
        return _count(counters, levels, level, start)

    def count_heading(self, level: int, start: int | None, *, restarts: bool) -> str:
        """Counts a heading and returns its number, which may be empty. `level` counts from 1."""
        if not self._outline:
            return ""
        if restarts:
            self._headings.numbers[_index(level)] = None
        label = _count(self._headings, self._outline, level, start)
        return "" if label == BULLET else label


def _levels(style: Element) -> dict[int, _OdfLevel]:
    levels = {}
    for element in style:
        if element.tag not in (*_BULLETS, *_NUMBERED):
            continue
        levels[_index(number(element.get(_LEVEL), 1))] = _OdfLevel(
            element.get(f"{STYLE}num-format", ""),
            element.get(f"{STYLE}num-prefix", "")[:_MAX_AFFIX_CHARS],
            element.get(f"{STYLE}num-suffix", "")[:_MAX_AFFIX_CHARS],
            number(element.get(f"{TEXT}display-levels"), 1),
            number(element.get(f"{TEXT}start-value"), 1),
            element.tag in _BULLETS,
            element.get(f"{LIBREOFFICE}num-list-format", "")[:_MAX_AFFIX_CHARS],
        )
    return levels


def _index(level: int) -> int:
    return max(0, min(level, _LEVELS) - 1)


def _count(
    counters: OdfCounters, levels: Mapping[int, _OdfLevel], level: int, start: int | None
) -> str:
    index = _index(level)
    numbers = counters.numbers
    definition = levels.get(index, _PLAIN)
    running = numbers[index]
    if start is not None:
        numbers[index] = start
    else:
        numbers[index] = definition.start if running is None else running + 1
    for above in range(index):
        if numbers[above] is None:
            numbers[above] = levels.get(above, _PLAIN).start
    numbers[index + 1 :] = [None] * (_LEVELS - index - 1)
    if definition.is_bullet:
        return BULLET
    if not definition.format:
        return " ".join(f"{definition.prefix}{definition.suffix}".split())
    if definition.pattern:

        def shown_number(match: re.Match[str]) -> str:
            place = int(match[1]) - 1
            value = numbers[place] if 0 <= place <= index else None
            return _written(value, levels.get(place, _PLAIN).format)

        return " ".join(_PLACE.sub(shown_number, definition.pattern).split())
    shown = (
        _written(numbers[at], levels.get(at, _PLAIN).format)
        for at in range(max(0, index + 1 - definition.shown_levels), index + 1)
    )
    text = definition.prefix + ".".join(filter(None, shown)) + definition.suffix
    return " ".join(text.split())


def _written(value: int | None, format_: str) -> str:
    if value is None or not format_:
        return ""
    return format_number(value, _FORMATS.get(format_, "decimal"))
