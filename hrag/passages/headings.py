"""Where the heading of a section ends: one of Markdown, or the line that a bookmark leads to."""

import re

_LINE_END = r"(?:\r\n?|\n|\Z)"
# CommonMark's two kinds. Possessive quantifiers keep both linear.
_NUMBER_SIGNS = re.compile(rf" {{0,3}}#{{1,6}}(?:[ \t][^\r\n]*+)?{_LINE_END}")
_UNDERLINED = re.compile(
    rf"(?:[ \t]*+\S[^\r\n]*+(?:\r\n?|\n)){{1,3}}? {{0,3}}(?:=++|-++)[ \t]*+{_LINE_END}"
)
_LINE = re.compile(rf"[^\r\n]*+{_LINE_END}")
_MAX_TITLE_LINES = 3
_WORD = re.compile(r"\w+")


def heading_end(text: str, start: int, title: str) -> int:
    """Returns the offset behind the heading of a section that begins at `start`.

    Its underline and its line end belong to it. It is `start` if the text there has neither
    number signs nor the title, as where a bookmark leads to a page only.
    """
    if found := _NUMBER_SIGNS.match(text, start):
        return found.end()
    wanted = _words(title)
    if not wanted:
        return start
    if (found := _UNDERLINED.match(text, start)) and _words(found[0]) == wanted:
        return found.end()
    end = start
    for _ in range(_MAX_TITLE_LINES):
        if found := _LINE.match(text, end):
            end = found.end()
        if _words(text[start:end]).endswith(wanted):
            return end
    return start


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
