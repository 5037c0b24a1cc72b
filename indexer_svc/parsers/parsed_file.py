"""The result of a parser, as plain values that a parser process can send to the indexer.

This module imports little, because each parser process imports it when it starts. Offsets count
code points of the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PAGE_BREAK = "\n\n"
MAX_HEADINGS = 65_535


class PageRange(NamedTuple):
    """The range of a page in the text: from `char_start` to before `char_end`."""

    char_start: int
    char_end: int


class Heading(NamedTuple):
    """The heading of a section: its title, its depth from 1, and the offset where it begins."""

    title: str
    depth: int
    char_start: int


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The text of a file, its pages and headings in order of position, and its title.

    `title` is the title that the file itself contains, or an empty string.
    """

    text: str
    pages: tuple[PageRange, ...] = ()
    headings: tuple[Heading, ...] = ()
    title: str = ""


def joined(texts: Sequence[str]) -> tuple[str, tuple[PageRange, ...]]:
    """Returns the texts joined by one blank line, and the range of each text in the result."""
    pages = []
    start = 0
    for text in texts:
        pages.append(PageRange(start, start + len(text)))
        start += len(text) + len(PAGE_BREAK)
    return PAGE_BREAK.join(texts), tuple(pages)
