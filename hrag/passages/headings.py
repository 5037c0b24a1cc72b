"""Finds the end of a section's heading, in Markdown or at the target of a PDF bookmark."""

import re

_LINE_END = r"(?:\r\n?|\n|\Z)"
# CommonMark has two kinds of headings: with number signs, and underlined. Possessive quantifiers
# make both patterns match in linear time.
_NUMBER_SIGNS = re.compile(rf" {{0,3}}#{{1,6}}(?:[ \t][^\r\n]*+)?{_LINE_END}")
_UNDERLINED = re.compile(
    rf"(?:[ \t]*+\S[^\r\n]*+(?:\r\n?|\n)){{1,3}}? {{0,3}}(?:=++|-++)[ \t]*+{_LINE_END}"
)
_LINE = re.compile(rf"[^\r\n]*+{_LINE_END}")
_MAX_TITLE_LINES = 3
_WORD = re.compile(r"\w+")


def heading_end(text: str, start: int, title: str) -> int:
    """Returns the offset after the heading of a section that begins at `start`.

    The heading includes its underline and its line end. Returns `start` if the text at `start`
    begins neither with number signs (`##`) nor with the title. This happens, for example, if a PDF
    bookmark leads to a page, and not to the heading on this page.
    """
    if match := _NUMBER_SIGNS.match(text, start):
        return match.end()
    title_words = _words(title)
    if not title_words:
        return start
    if (match := _UNDERLINED.match(text, start)) and _words(match[0]) == title_words:
        return match.end()
    end = start
    for _ in range(_MAX_TITLE_LINES):
        if match := _LINE.match(text, end):
            end = match.end()
        if _words(text[start:end]).endswith(title_words):
            return end
    return start


def _words(text: str) -> str:
    """Returns the words of a text, case-folded and separated by single blanks."""
    return " ".join(_WORD.findall(text.casefold()))
