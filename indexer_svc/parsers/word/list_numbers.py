"""Counts the items of lists, and writes their numbers as Word shows them.

Theory of operation. A paragraph belongs to a level of a list (`num`). A list names a definition
(`abstractNum`), and the lists of one definition are counted together. So there is one counter for
each level of a definition. An item of a level

- takes the level's start if the counter is not running, and otherwise the next number;
- takes the number with which its list restarts the level (`startOverride`), if it is the first
  item of this list on this level;
- starts the counters of the levels above that are not running, so that `%1.%2` has two numbers;
- stops the counters of the levels below, which then start again. A level can say that only certain
  levels stop it, or none (`lvlRestart`).

A level's text (`lvlText`) such as `%1.%2)` names the levels whose numbers it contains. A list may
replace a level of its definition, and a definition may refer to a style that names another list.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from indexer_svc.parsers.number_formats import format_number
from indexer_svc.parsers.package import Element
from indexer_svc.parsers.word.names import (
    ALTERNATIVES,
    WORD,
    number,
    number_of,
    shown_children,
    switch_of,
    value_of,
)
from indexer_svc.parsers.word.styles import ListReference, WordStyles

_LEVELS = 9
_BULLET = "bullet"
_PLACE = re.compile(r"%([1-9])")
# Word allows texts of at most 31 characters before and between the numbers of a level.
_MAX_LEVEL_CHARS = 200
# A definition may refer to a style whose list has another definition. At most this many of these
# references are followed.
_MAX_LINKS = 8


class ListLabel(NamedTuple):
    """The sign that Word shows before an item: its number, or a bullet. `level` counts from 0."""

    text: str
    level: int
    is_bullet: bool = False


@dataclass(frozen=True, slots=True)
class _WordLevel:
    """The definition of a level. `restart` is the number of levels that stop it, if it says so."""

    start: int = 1
    format: str = "decimal"
    pattern: str = ""
    text: str = ""
    restart: int | None = None
    is_decimal: bool = False
    is_picture: bool = False
    style_id: str = ""


@dataclass(slots=True)
class _ListDefinition:
    """An `abstractNum`: its levels, and the running counters of the lists that use it."""

    levels: dict[int, _WordLevel]
    linked_style: str
    counters: list[int | None] = field(default_factory=lambda: [None] * _LEVELS)


@dataclass(slots=True)
class _WordList:
    """A `num`: its definition, and the levels and starts that it replaces.

    `started` has the levels that have had an item of this list.
    """

    definition_id: str
    levels: dict[int, _WordLevel]
    starts: dict[int, int]
    started: set[int] = field(default_factory=set)


class WordListNumbers:
    """The lists of a document. Items must be counted in the order of the document."""

    def __init__(self, numbering: Element | None, styles: WordStyles) -> None:
        """Reads `numbering`, the root element of the part with the definitions of lists.

        It is None if the document has no such part.
        """
        self._styles = styles
        self._definitions: dict[str, _ListDefinition] = {}
        self._lists: dict[str, _WordList] = {}
        if numbering is not None:
            self._read(numbering)

    def count(self, reference: ListReference) -> ListLabel | None:
        """Counts an item and returns its label; None if Word shows no number and no bullet."""
        list_ = self._lists.get(reference.num_id)
        definition = None if list_ is None else self._definition(list_)
        if list_ is None or definition is None:
            return None
        level = self._level_index(reference, list_, definition)
        _advance(list_, definition, level)
        return _label(list_, definition, level)

    def _read(self, numbering: Element) -> None:
        for element in numbering.iterfind(f"{WORD}abstractNum"):
            self._definitions[element.get(f"{WORD}abstractNumId", "")] = _ListDefinition(
                _levels(element), value_of(element, f"{WORD}numStyleLink") or ""
            )
        for element in numbering.iterfind(f"{WORD}num"):
            list_ = _WordList(value_of(element, f"{WORD}abstractNumId") or "", {}, {})
            for override in element.iterfind(f"{WORD}lvlOverride"):
                index = number(override.get(f"{WORD}ilvl"))
                if index is None or not 0 <= index < _LEVELS:
                    continue
                start = number_of(override, f"{WORD}startOverride")
                if start is not None:
                    list_.starts[index] = start
                if (element_of_level := override.find(f"{WORD}lvl")) is not None:
                    list_.levels[index] = _level(element_of_level)
            self._lists[element.get(f"{WORD}numId", "")] = list_

    def _definition(self, list_: _WordList) -> _ListDefinition | None:
        definition = self._definitions.get(list_.definition_id)
        for _ in range(_MAX_LINKS):
            if definition is None or definition.levels or not definition.linked_style:
                break
            reference = self._styles.numbering_style(definition.linked_style)
            linked = None if reference is None else self._lists.get(reference.num_id)
            definition = None if linked is None else self._definitions.get(linked.definition_id)
        return definition

    def _level_index(
        self, reference: ListReference, list_: _WordList, definition: _ListDefinition
    ) -> int:
        if reference.level is not None:
            return max(0, min(reference.level, _LEVELS - 1))
        for levels in (list_.levels, definition.levels):
            for index, level in levels.items():
                if reference.style_id and level.style_id == reference.style_id:
                    return index
        return 0


def _levels(parent: Element) -> dict[int, _WordLevel]:
    """Returns the levels that a definition or an override contains, by their index."""
    levels = {}
    for element in parent.iterfind(f"{WORD}lvl"):
        index = number(element.get(f"{WORD}ilvl"))
        if index is not None and 0 <= index < _LEVELS:
            levels[index] = _level(element)
    return levels


def _level(element: Element) -> _WordLevel:
    format_ = element.find(f"{WORD}numFmt")
    alternatives = element.find(ALTERNATIVES)
    if alternatives is not None:
        for chosen in shown_children(alternatives):
            format_ = chosen.find(f"{WORD}numFmt")
    start = number_of(element, f"{WORD}start")
    return _WordLevel(
        0 if start is None else start,
        "decimal" if format_ is None else format_.get(f"{WORD}val", "decimal"),
        "" if format_ is None else format_.get(f"{WORD}format", ""),
        (value_of(element, f"{WORD}lvlText") or "")[:_MAX_LEVEL_CHARS],
        number_of(element, f"{WORD}lvlRestart"),
        bool(switch_of(element, f"{WORD}isLgl")),
        element.find(f"{WORD}lvlPicBulletId") is not None,
        value_of(element, f"{WORD}pStyle") or "",
    )


def _level_of(list_: _WordList, definition: _ListDefinition, index: int) -> _WordLevel:
    return list_.levels.get(index) or definition.levels.get(index) or _WordLevel()


def _start(list_: _WordList, definition: _ListDefinition, index: int) -> int:
    start = list_.starts.get(index)
    return _level_of(list_, definition, index).start if start is None else start


def _advance(list_: _WordList, definition: _ListDefinition, index: int) -> None:
    """Counts an item of the level `index`."""
    counters = definition.counters
    is_first = index not in list_.started
    list_.started.add(index)
    running = counters[index]
    if running is None or (is_first and index in list_.starts):
        counters[index] = _start(list_, definition, index)
    else:
        counters[index] = running + 1
    for above in range(index):
        if counters[above] is None:
            counters[above] = _start(list_, definition, above)
    for below in range(index + 1, _LEVELS):
        restart = _level_of(list_, definition, below).restart
        if restart is None or index < restart:
            counters[below] = None


def _label(list_: _WordList, definition: _ListDefinition, index: int) -> ListLabel | None:
    level = _level_of(list_, definition, index)
    if level.is_picture or (level.format == _BULLET and level.text.strip()):
        return ListLabel("-", index, is_bullet=True)

    def shown_number(match: re.Match[str]) -> str:
        place = int(match[1]) - 1
        value = definition.counters[place] if place <= index else None
        if value is None:
            return ""
        named = _level_of(list_, definition, place)
        is_decimal = level.is_decimal and named.format not in ("none", "decimalZero")
        return format_number(value, "decimal" if is_decimal else named.format, named.pattern)

    text = " ".join(_PLACE.sub(shown_number, level.text).split())
    return ListLabel(text, index) if text else None
