"""The markers of list items in HTML pages: bullets, and numbers as a browser shows them."""

import re
from dataclasses import dataclass
from itertools import islice

from selectolax.lexbor import LexborNode

from indexer_svc.parsers.html_nodes import Attributes
from indexer_svc.parsers.numerals import numeral

_NUMBER = re.compile(r"[-+]?[0-9]{1,9}")
_BULLET = "-"
_STYLE = re.compile(
    r"list-style(?:-type)?\s*:\s*(?:[^;]*?\s)?(none|decimal|disc|circle|square|[a-z]+-[a-z]+)",
    re.IGNORECASE,
)
_MAX_STYLE_CHARS = 1_000  # The search takes time in proportion to the square of the characters.
# The values of the attribute `type`, and of the styles that mean the same.
_KINDS = {
    "lower-alpha": "a",
    "lower-latin": "a",
    "upper-alpha": "A",
    "upper-latin": "A",
    "lower-roman": "i",
    "upper-roman": "I",
    **dict.fromkeys(("none", "disc", "circle", "square"), "none"),
}
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
        return f"{numeral(number, kind)}."


def numbers_of(node: LexborNode) -> ListNumbers:
    """Returns the numbers of a list, by its attributes `start`, `type` and `reversed`."""
    attributes = node.attributes
    style = _STYLE.search((attributes.get("style") or "")[:_MAX_STYLE_CHARS])
    if node.tag != "ol":
        return ListNumbers(_KINDS.get(style[1].lower(), "1") if style else "")
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
