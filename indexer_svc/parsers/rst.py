"""The outline of a reStructuredText document: its text is kept as it is written.

A section's title is a line with a line of one punctuation character below it, and if you like
the same above it. The styles nest in the order in which they first appear, as docutils has it.
Indented lines, and so literal blocks, hold no titles. Takes linear time.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from unicodedata import combining, east_asian_width

from indexer_svc.parsers.parsed_file import MAX_HEADINGS, Heading, ParsedFile
from indexer_svc.titles import MAX_SECTION_TITLE_CHARS, document_title, section_title

_BYTE_ORDER_MARK = "\ufeff"
_LINE_END = re.compile(r"\r\n?|\n")
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*")
_LEAST_ADORNMENT = 4  # A shorter one must be as long as its title.
_EXPLICIT = ".. "
_MAX_TITLE_CHARS = 4 * MAX_SECTION_TITLE_CHARS  # Leaves room for markup, such as a link's URL.
_INTERPRETED = re.compile(r"(?:(?<!:):[\w:+.-]{2,}+(?<=:))?``?([^`<]+?)(?:\s*+<[^`>]++>)?``?_{0,2}")
_EMPHASIS = re.compile(r"\*\*|\*|\\")


Style = tuple[str, bool]


def parse_rst(content: bytes, _max_text_bytes: int) -> ParsedFile:
    """Returns UTF-8 text as it is, its sections, and the first of them as the title."""
    text = content.decode()
    headings = tuple(_headings(text))
    title = document_title(headings[0].title) if headings else ""
    return ParsedFile(text, (), headings, title)


def _headings(text: str) -> Iterator[Heading]:
    starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
    lines = _LINE_END.split(text.removeprefix(_BYTE_ORDER_MARK))
    depths: dict[tuple[str, bool], int] = {}
    for at, line, style in islice(_titles(lines), MAX_HEADINGS):
        depth = depths.setdefault(style, len(depths) + 1)
        if title := _plain(line):
            yield Heading(title, depth, starts[at])


def _titles(lines: Sequence[str]) -> Iterator[tuple[int, str, Style]]:
    """Where each title begins, its line, and its style: a character, and whether above too."""
    at = 0
    while at + 1 < len(lines):
        above, below = _adornment(lines[at]), _adornment(lines[at + 1])
        if not _begins_block(lines, at):
            at += 1
        elif above and _is_overlined(lines, at):
            yield at, lines[at + 1], (above[0], True)
            at += 3
        elif not above and _is_title(lines[at], below):
            yield at, lines[at], (below[0], False)
            at += 2
        else:
            at += 1


def _begins_block(lines: Sequence[str], at: int) -> bool:
    """Whether the line is not a later one of a paragraph."""
    before = lines[at - 1] if at else ""
    return not before.strip() or before.startswith(_EXPLICIT) or bool(_adornment(before))


def _adornment(line: str) -> str:
    found = _ADORNMENT.fullmatch(line.rstrip())
    return found[0] if found else ""


def _is_overlined(lines: Sequence[str], at: int) -> bool:
    title = lines[at + 1].strip()
    has_both = at + 2 < len(lines) and _adornment(lines[at + 2]) == _adornment(lines[at])
    return has_both and _is_title(title, _adornment(lines[at]))


def _is_title(line: str, adornment: str) -> bool:
    """Whether `adornment` makes a title of a line that begins at the margin."""
    if not adornment or not line.strip() or line[0].isspace():
        return False
    return len(adornment) >= min(_LEAST_ADORNMENT, _width(line.rstrip()))


def _width(line: str) -> int:
    """Columns of a line on a terminal, up to what matters here."""
    shown = (each for each in line[:_LEAST_ADORNMENT] if not combining(each))
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in shown)


def _plain(line: str) -> str:
    """A title without its inline markup."""
    # Each white space alone: the pattern takes quadratic time for a run of it.
    text = _INTERPRETED.sub(r"\1", " ".join(line[:_MAX_TITLE_CHARS].split()))
    return section_title(_EMPHASIS.sub("", text))
