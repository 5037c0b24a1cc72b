"""Finds the titles of reStructuredText that is too long or too odd for docutils.

The text itself stays unchanged.

An adornment is a line that repeats one punctuation character. The title of a section is the line
above an adornment; the same adornment may also be above the title. The style of a title is the
character of its adornment, and whether there is an adornment above it. The first style that appears
has depth 1, the second depth 2, and so on, as in docutils. Indented lines, and therefore literal
blocks, contain no titles. Parsing takes linear time.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from unicodedata import combining, east_asian_width

from indexer_svc.parsers.parsed_file import MAX_HEADINGS, Heading, ParsedFile
from indexer_svc.parsers.text_lines import BYTE_ORDER_MARK, LINE_END
from indexer_svc.titles import MAX_SECTION_TITLE_CHARS, document_title, section_title

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*")
_MIN_ADORNMENT = 4  # A shorter adornment must be at least as long as its title.
_EXPLICIT = ".. "  # A directive, a comment or other explicit markup begins with it.
# The source of a title may be longer than the title, because of markup, for example a link's URL.
_MAX_TITLE_CHARS = 4 * MAX_SECTION_TITLE_CHARS
_INTERPRETED = re.compile(r"(?:(?<!:):[\w:+.-]{2,}+(?<=:))?``?([^`<]+?)(?:\s*+<[^`>]++>)?``?_{0,2}")
_EMPHASIS = re.compile(r"\*\*|\*|\\")

_Style = tuple[str, bool]
"""The character of a title's adornment, and True if there is an adornment above the title."""


def rst_outline(content: bytes) -> ParsedFile:
    """Returns UTF-8 text unchanged, with its sections.

    The title of the first section is also the title of the document.
    """
    text = content.decode()
    headings = tuple(_headings(text))
    title = document_title(headings[0].title) if headings else ""
    return ParsedFile(text, (), headings, title)


def _headings(text: str) -> Iterator[Heading]:
    starts = [0, *(line_end.end() for line_end in LINE_END.finditer(text))]
    lines = LINE_END.split(text.removeprefix(BYTE_ORDER_MARK))
    depths: dict[_Style, int] = {}
    for at, line, style in islice(_titles(lines), MAX_HEADINGS):
        depth = depths.setdefault(style, len(depths) + 1)
        if title := _plain_title(line):
            yield Heading(title, depth, starts[at])


def _titles(lines: Sequence[str]) -> Iterator[tuple[int, str, _Style]]:
    """Yields, for each title, the index of its first line, the line of the title, and its style.

    The first line is the adornment above the title, or the title itself if there is none.
    """
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
    """Returns True if the line `at` is not the second or a later line of a paragraph."""
    before = lines[at - 1] if at else ""
    return not before.strip() or before.startswith(_EXPLICIT) or bool(_adornment(before))


def _adornment(line: str) -> str:
    """Returns `line` without trailing white space if it is an adornment, or an empty string."""
    match = _ADORNMENT.fullmatch(line.rstrip())
    return match[0] if match else ""


def _is_overlined(lines: Sequence[str], at: int) -> bool:
    """Returns True if the line `at` is the adornment above a title."""
    title = lines[at + 1].strip()
    has_both = at + 2 < len(lines) and _adornment(lines[at + 2]) == _adornment(lines[at])
    return has_both and _is_title(title, _adornment(lines[at]))


def _is_title(line: str, adornment: str) -> bool:
    """Returns True if `line` is not indented and `adornment` is long enough to make it a title."""
    if not adornment or not line.strip() or line[0].isspace():
        return False
    return len(adornment) >= min(_MIN_ADORNMENT, _width(line.rstrip()))


def _width(line: str) -> int:
    """Returns how many columns the first characters of a line occupy on a terminal.

    Only the first _MIN_ADORNMENT characters are counted, because the caller only needs to know
    whether the line is shorter than that.
    """
    shown = (char for char in line[:_MIN_ADORNMENT] if not combining(char))
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in shown)


def _plain_title(line: str) -> str:
    """Returns a title without its inline markup."""
    # Each run of white space becomes one space, because _INTERPRETED would take quadratic time on a
    # long run.
    text = _INTERPRETED.sub(r"\1", " ".join(line[:_MAX_TITLE_CHARS].split()))
    return section_title(_EMPHASIS.sub("", text))
