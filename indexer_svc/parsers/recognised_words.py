"""Words with their places, as a parser process finds them on the picture of a page.

The indexer keeps these words, because recognising a page takes seconds. So they are sent from a
parser process and to a parser process, as JSON. This module imports no library.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

MAX_RECOGNISED_WORDS = 20_000
"""A page has at most so many recognised words. A dense page of a newspaper has a third."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in the frame of the page's text."""


class PrintedWord(NamedTuple):
    """A word on the page. Words of one printed line have the same number `line`."""

    text: str
    box: Box
    line: int


@dataclass(frozen=True, slots=True)
class RecognisedWords:
    """The words of a page in reading order, in pixels of the upright page.

    `turn` and `skew` have the meaning of those of `RecognisedPage`. `width` and `height` are the
    size of the picture on which the words were recognised.
    """

    words: tuple[PrintedWord, ...]
    turn: int
    skew: float
    width: float
    height: float

    def as_json(self) -> list[Any]:
        """Returns a value that can be encoded as JSON."""
        return [self.words, self.turn, self.skew, self.width, self.height]

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Returns the words of which `as_json` returned `value`, which is not checked."""
        words, turn, skew, width, height = value
        placed = (PrintedWord(text, (*box,), line) for text, box, line in words)
        return cls(tuple(placed), turn, skew, width, height)
