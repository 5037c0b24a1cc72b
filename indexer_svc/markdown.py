"""The outline of a Markdown text: its top-level headings as sections.

CommonMark decides what a heading is, so a `#` in a fence, in indented code or in HTML is
none; one inside a list or quote belongs to that, not to the outline. Front matter in YAML
is skipped: its closing `---` would otherwise make a heading of it. Only blocks are parsed;
the one inline text that is read is a heading's own, for its title.

Time is linear in the text for any input: 0.2 s per MB of prose, some 5 s per MB of nothing
but markers. Lines, sections, nesting and titles have limits, so that the most hostile text
costs about half a minute.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from hrag.tree import Section

MAX_SECTIONS = 65_535
MAX_LINES = 500_000  # 10,000 printed pages; bounds a text of nothing but list markers to seconds.
MAX_TITLE_CHARS = 200
MAX_NESTING = 20  # Ten lists within each other; each level is one more walk over its lines.

_MAX_TITLE_SOURCE_CHARS = 2 * MAX_TITLE_CHARS  # Leaves room for markup, such as a link's URL.
_MAX_TITLE_MARKS = 40  # A title with more markup is shown as it is written.
_BYTE_ORDER_MARK = "\ufeff"
_LINE_END = re.compile(r"\r\n?|\n")
_MARKUP = re.compile(r"[\\`*_&<!\[\n]")
_FRONT_MATTER = re.compile(
    r"---[ \t]*\n(?=[\w\"'-][^\n:]*:)(?:(?![ \t]*\n)[^\n]*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)


def sections_of(text: str) -> tuple[Section, ...]:
    """The top-level headings of `text`, in order.

    `char_start` is the code point of `text` where the heading's first line begins, whatever
    its line ends are (`\\n`, `\\r\\n` or `\\r`). Titles are plain text of 1 to MAX_TITLE_CHARS
    characters; a heading without any text is no section. Headings after the first MAX_LINES
    lines or beyond the first MAX_SECTIONS are left out. Raises nothing.
    """
    starts = _line_starts(text)
    end = starts[MAX_LINES] if len(starts) > MAX_LINES else len(text)
    references: dict[str, Any] = {}
    headings = _Headings()
    source = _without_front_matter(_LINE_END.sub("\n", text[starts[0] : end]))
    _PARSER.block.parse(source, _PARSER, references, headings)
    return tuple(islice(_sections(headings, starts, references), MAX_SECTIONS))


def trim_title(text: str) -> str:
    """`text` on one line without surplus white space, cut at MAX_TITLE_CHARS characters."""
    return " ".join(text.split())[:MAX_TITLE_CHARS].rstrip()


def _line_starts(text: str) -> list[int]:
    """Where the first lines begin, in code points; MAX_LINES + 1 of them at most."""
    first = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
    return [first, *(found.end() for found in islice(_LINE_END.finditer(text), MAX_LINES))]


def _without_front_matter(source: str) -> str:
    """`source` with its front matter blank, so that line numbers stay."""
    found = _FRONT_MATTER.match(source)
    if found is None:
        return source
    return "\n" * found[0].count("\n") + source[found.end() :]


def _sections(
    headings: Sequence[Token], starts: Sequence[int], references: dict[str, Any]
) -> Iterator[Section]:
    for heading, content in zip(headings[::2], headings[1::2], strict=True):
        title = _plain_text(content.content[:_MAX_TITLE_SOURCE_CHARS], references)
        if title and heading.map is not None:
            yield Section(title, int(heading.tag.removeprefix("h")), starts[heading.map[0]])


def _plain_text(source: str, references: dict[str, Any]) -> str:
    """What a reader sees of inline Markdown."""
    if not 0 < len(_MARKUP.findall(source)) <= _MAX_TITLE_MARKS:
        return trim_title(source)
    tokens: list[Token] = []
    _PARSER.inline.parse(source, _PARSER, references, tokens)
    return trim_title("".join(_visible(tokens)))


def _visible(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("text", "text_special", "code_inline"):
            yield token.content
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.type == "image":
            yield from _visible(token.children or ())


class _Headings(list[Token]):
    """Takes every block token and keeps the headings: an opening, then its content.

    Ten megabytes of list markers make gigabytes of tokens; none of those is of interest.
    """

    def append(self, token: Token) -> None:
        opens = token.type == "heading_open" and token.level == 0
        if opens or (token.type == "inline" and self and self[-1].type == "heading_open"):
            super().append(token)


def _skip_text(state: StateBlock, start: int, end: int, _silent: bool) -> bool:
    """A block rule that passes over what can hold no heading of the outline.

    A paragraph whose lines all begin with a letter starts nothing else: skipping it spares
    prose every other rule on each line. Past MAX_NESTING, lines are skipped one by one;
    the parser's own limit would give up the rest of the document.
    """
    if state.level >= MAX_NESTING:
        state.line = start + 1
        return True
    line = start
    while state.level == 0 and line < end and state.src[state.bMarks[line]].isalpha():
        line += 1
    if line == start or (line < end and not state.isEmpty(line)):
        return False
    state.line = line
    return True


def _built_parser() -> MarkdownIt:
    """A CommonMark parser that is ready to be shared by threads.

    It compiles its rules when it first parses, and not under a lock: so that is done here.
    """
    # Entering a list adds two levels, and the parser's limit must not come before ours.
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING + 2})
    parser.block.ruler.before("code", "skip_text", _skip_text)
    parser.parse("# warm *up*")
    return parser


# At debug level it would log each rule it tries on each line.
logging.getLogger("markdown_it").setLevel(logging.INFO)

_PARSER = _built_parser()
