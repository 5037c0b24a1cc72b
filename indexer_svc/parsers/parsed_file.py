"""What a parser reads from a file, as plain values that a process can send to another.

Light on purpose: a parser process imports it at its start. Offsets are code points of the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PAGE_BREAK = "\n\n"
MAX_HEADINGS = 65_535


class PageRange(NamedTuple):
    """Where the text of a page lies; half-open."""

    char_start: int
    char_end: int


class Heading(NamedTuple):
    """A section's title, its depth, counted from 1, and where the section begins."""

    title: str
    depth: int
    char_start: int


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The text of a file, its pages and headings in order of position, and its own title."""

    text: str
    pages: tuple[PageRange, ...] = ()
    headings: tuple[Heading, ...] = ()
    title: str = ""


def joined(texts: Sequence[str]) -> tuple[str, tuple[PageRange, ...]]:
    """Returns the texts joined by one blank line, and where each of them lies."""
    pages = []
    start = 0
    for text in texts:
        pages.append(PageRange(start, start + len(text)))
        start += len(text) + len(PAGE_BREAK)
    return PAGE_BREAK.join(texts), tuple(pages)
