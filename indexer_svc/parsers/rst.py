"""Finds the sections of reStructuredText by their titles. The text itself stays unchanged.

An adornment is a line that repeats one punctuation character. The title of a section is the line
above an adornment; the same adornment may also be above the title. The style of a title consists of
two facts: the character of its adornment, and whether there is an adornment above the title. The
first style that appears in the text has depth 1, the second style depth 2, and so on, as in
docutils. Indented lines, and therefore literal blocks, contain no titles. Parsing takes linear
time.
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
# An adornment is the line of punctuation below or above a title. An adornment with fewer characters
# than this must be at least as long as the title.
_MIN_ADORNMENT = 4
_EXPLICIT = ".. "  # A directive, a comment or other explicit markup begins with these characters.
# At most this many characters of a title's line are read. This is more than a title may have,
# because the line may contain markup, for example the URL of a link.
_MAX_TITLE_CHARS = 4 * MAX_SECTION_TITLE_CHARS
_INTERPRETED = re.compile(r"(?:(?<!:):[\w:+.-]{2,}+(?<=:))?``?([^`<]+?)(?:\s*+<[^`>]++>)?``?_{0,2}")
_EMPHASIS = re.compile(r"\*\*|\*|\\")


Style = tuple[str, bool]


def parse_rst(content: bytes, _max_text_bytes: int) -> ParsedFile:
    """Returns the text of a reStructuredText file unchanged, with its sections.

    The title of the first section is also the title of the document.
    """
    text = content.decode()
    headings = tuple(_headings(text))
    title = document_title(headings[0].title) if headings else ""
    return ParsedFile(text, (), headings, title)


def _headings(text: str) -> Iterator[Heading]:
    starts = [0, *(line_end.end() for line_end in _LINE_END.finditer(text))]
    lines = _LINE_END.split(text.removeprefix(_BYTE_ORDER_MARK))
    depths: dict[tuple[str, bool], int] = {}
    for at, line, style in islice(_titles(lines), MAX_HEADINGS):
        depth = depths.setdefault(style, len(depths) + 1)
        if title := _plain_title(line):
            yield Heading(title, depth, starts[at])


def _titles(lines: Sequence[str]) -> Iterator[tuple[int, str, Style]]:
    """Yields, for each title, the index of its first line, the text of its line, and its style.

    An adornment is a line of punctuation. The first line is the adornment above the title. If there
    is no adornment above the title, the first line is the title itself. The style consists of the
    character of the adornment and a bool, which is True if there is an adornment above the title.
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
    """Returns True if a paragraph, a title or another block may begin at the line with index `at`.

    Returns False for the second and later lines of a paragraph.
    """
    before = lines[at - 1] if at else ""
    return not before.strip() or before.startswith(_EXPLICIT) or bool(_adornment(before))


def _adornment(line: str) -> str:
    """Returns `line` without trailing white space if it is an adornment, else an empty string.

    An adornment is a line that repeats one punctuation character.
    """
    match = _ADORNMENT.fullmatch(line.rstrip())
    return match[0] if match else ""


def _is_overlined(lines: Sequence[str], at: int) -> bool:
    """Returns True if the line with index `at` is the line of punctuation above a title."""
    title = lines[at + 1].strip()
    has_both = at + 2 < len(lines) and _adornment(lines[at + 2]) == _adornment(lines[at])
    return has_both and _is_title(title, _adornment(lines[at]))


def _is_title(line: str, adornment: str) -> bool:
    """Returns True if `line` is a title, according to the line of punctuation below or above it.

    A title is not indented, and its `adornment` is long enough.
    """
    if not adornment or not line.strip() or line[0].isspace():
        return False
    return len(adornment) >= min(_MIN_ADORNMENT, _width(line.rstrip()))


def _width(line: str) -> int:
    """Returns how many columns the first _MIN_ADORNMENT characters of a line occupy on a terminal.

    The characters after them are ignored, because the caller only needs to know whether the line
    has fewer than _MIN_ADORNMENT columns.
    """
    shown = (char for char in line[:_MIN_ADORNMENT] if not combining(char))
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in shown)


def _plain_title(line: str) -> str:
    """Returns a title without its inline markup."""
    # White space in a row becomes one space, because matching _INTERPRETED takes a time that is
    # quadratic in the length of the white space.
    text = _INTERPRETED.sub(r"\1", " ".join(line[:_MAX_TITLE_CHARS].split()))
    return section_title(_EMPHASIS.sub("", text))
