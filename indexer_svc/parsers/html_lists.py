"""The markers of list items in HTML pages: bullets, and numbers as a browser shows them."""

import re
from dataclasses import dataclass
from itertools import islice

from selectolax.lexbor import LexborNode

from indexer_svc.parsers.html_nodes import Attributes

_NUMBER = re.compile(r"[-+]?[0-9]{1,9}")
_BULLET = "-"
_STYLE = re.compile(r"list-style(?:-type)?\s*:\s*(?:[^;]*?\s)?(none|[a-z]+-[a-z]+)", re.IGNORECASE)
# The values of the attribute `type`, and of the styles that mean the same.
_KINDS = {
    "lower-alpha": "a",
    "lower-latin": "a",
    "upper-alpha": "A",
    "upper-latin": "A",
    "lower-roman": "i",
    "upper-roman": "I",
    "none": "none",
}
_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l")),
    *((40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_MAX_ROMAN = 3999
_MAX_LETTERS = 1_000_000
# A list that counts down and has more items than this counts down from this number.
_MAX_COUNTED_ITEMS = 100_000


@dataclass(slots=True)
class ListNumbers:
    """The numbers of one list. `kind` is `1`, `a`, `A`, `i`, `I`, `none`, or empty for bullets."""

    kind: str = ""
    following: int = 1
    step: int = 1

    def next_marker(self, item: Attributes) -> str:
        """Returns the marker of the next item, for example `-`, `3.` or `iv.`."""
        value = _integer(item.get("value"))
        number = self.following if value is None else value
        self.following = number + self.step
        kind = item.get("type") or self.kind
        if not self.kind or kind == "none":
            return _BULLET
        return f"{_numeral(number, kind)}."


def numbers_of(node: LexborNode) -> ListNumbers:
    """Returns the numbers of a list, by its attributes `start`, `type` and `reversed`."""
    if node.tag != "ol":
        return ListNumbers()
    attributes = node.attributes
    style = _STYLE.search(attributes.get("style") or "")
    kind = _KINDS.get(style[1].lower(), "1") if style else attributes.get("type") or "1"
    start = _integer(attributes.get("start"))
    if "reversed" not in attributes:
        return ListNumbers(kind, 1 if start is None else start)
    return ListNumbers(kind, _count_items(node) if start is None else start, -1)


def _integer(value: str | None) -> int | None:
    return int(value) if value and _NUMBER.fullmatch(value.strip()) else None


def _count_items(node: LexborNode) -> int:
    items = (child for child in node.iter() if child.tag == "li")
    return sum(1 for _ in islice(items, _MAX_COUNTED_ITEMS))


def _numeral(number: int, kind: str) -> str:
    if kind in ("a", "A") and 1 <= number <= _MAX_LETTERS:
        letters = _letters(number)
        return letters.upper() if kind == "A" else letters
    if kind in ("i", "I") and 1 <= number <= _MAX_ROMAN:
        roman = _roman(number)
        return roman.upper() if kind == "I" else roman
    return str(number)


def _letters(number: int) -> str:
    """Returns `a` for 1, `z` for 26, `aa` for 27 and so on."""
    letters = ""
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return letters


def _roman(number: int) -> str:
    numeral = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        numeral += letters * count
    return numeral
