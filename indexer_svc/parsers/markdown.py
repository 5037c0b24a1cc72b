"""Parses the outline of Markdown texts: the title and the sections.

Sections begin at the top-level headings. CommonMark defines what a heading is: a `#` in fenced
code, indented code or HTML is not a heading. A heading inside a list or quote is not part of the
outline. Front matter (YAML or TOML) is skipped, because CommonMark would read the closing `---` of
YAML as the underline of a heading. Only blocks are parsed. Inline markup is parsed in titles only.

Parsing takes linear time: 0.2 s for each MB of prose, about 5 s for each MB that consists only of
markers. Lines, sections, nesting and titles are limited, so that a hostile text of the maximum size
takes about half a minute.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from indexer_svc.parsers.parsed_file import MAX_HEADINGS, Heading, ParsedFile
from indexer_svc.titles import MAX_SECTION_TITLE_CHARS, front_matter_title, section_title

# Headings are searched for only in this many lines from the beginning of a text. The limit is
# needed because a hostile text may consist of list markers: even 500,000 such lines take seconds to
# parse. Ordinary text of 500,000 lines fills 10,000 printed pages.
MAX_LINES = 500_000
# Text that is nested deeper than this in lists and quotes is skipped, because the parser reads a
# line once for each level of nesting. Each list adds two levels, so ten lists may be inside one
# another.
MAX_NESTING = 20

# At most this many characters of a heading are parsed as its title. This is more than a title may
# have, because a heading may contain markup, for example the URL of a link.
_MAX_SOURCE_CHARS = 2 * MAX_SECTION_TITLE_CHARS
# If a title has more characters of markup than this, its markup is not removed.
_MAX_TITLE_MARKS = 40
_BYTE_ORDER_MARK = "\ufeff"
_LINE_END = re.compile(r"\r\n?|\n")
_MARKUP = re.compile(r"[\\`*_&<!\[\n]")
# Matches front matter. Front matter in YAML begins with a key. If the front matter contains blank
# lines, all lines that are not blank must be keys, list items or indented. Without this rule, a
# thematic break (`---`) and the prose below it would be matched as front matter.
_YAML_LINE = r"(?:[ \t][^\n]*|-[ \t][^\n]*|[\w\"'][^\n:]*:(?:[ \t][^\n]*)?|)\n"
_FRONT_MATTER = re.compile(
    r"---[ \t]*\n(?=[\w\"'-][^\n:]*:)"
    rf"(?:(?:(?![ \t]*\n)[^\n]*\n)*?|(?:{_YAML_LINE})*?)(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
    r"|\+\+\+[ \t]*\n(?:[^\n]*\n)*?\+\+\+[ \t]*(?:\n|\Z)"  # Matches TOML.
)


@dataclass(frozen=True, slots=True)
class MarkdownOutline:
    """The title and the sections of a Markdown text. `title` is empty if the text has no title."""

    title: str
    sections: tuple[Heading, ...]


def parse_markdown(content: bytes, _max_text_bytes: int) -> ParsedFile:
    """Returns the text of a Markdown file unchanged, with its headings and its title."""
    text = content.decode()
    outline = outline_of(text)
    return ParsedFile(text, (), outline.sections, outline.title)


def outline_of(text: str) -> MarkdownOutline:
    """Returns the title and the top-level headings of `text`, in order. Raises no errors.

    The title is the front matter's `title`, or else the first heading of level 1.

    A section's `char_start` is the offset, in code points of `text`, at which the first line of the
    heading begins. Lines end with `\\n`, `\\r\\n` or `\\r`. Section titles are plain text of 1 to
    MAX_SECTION_TITLE_CHARS characters. A heading without text does not begin a section. Headings
    after the first MAX_LINES lines, and after the first MAX_HEADINGS headings, are left out.
    """
    starts = _line_starts(text)
    end = starts[MAX_LINES] if len(starts) > MAX_LINES else len(text)
    references: dict[str, Any] = {}
    headings = _MarkdownHeadings()
    front_matter, source = _split_front_matter(_LINE_END.sub("\n", text[starts[0] : end]))
    _PARSER.block.parse(source, _PARSER, references, headings)
    sections = tuple(islice(_sections(headings, starts, references), MAX_HEADINGS))
    first_heading = next((section.title for section in sections if section.depth == 1), "")
    return MarkdownOutline(front_matter_title(front_matter) or first_heading, sections)


def _line_starts(text: str) -> list[int]:
    """Returns the offsets, in code points, at which the first MAX_LINES + 1 lines begin."""
    first = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
    return [first, *(line_end.end() for line_end in islice(_LINE_END.finditer(text), MAX_LINES))]


def _split_front_matter(source: str) -> tuple[str, str]:
    """Returns the front matter of a Markdown text, and the text without the front matter.

    In the returned text, blank lines replace the front matter, so that line numbers do not change.
    If `source` has no front matter, returns an empty string and `source`.
    """
    match = _FRONT_MATTER.match(source)
    if match is None:
        return "", source
    return match[0], "\n" * match[0].count("\n") + source[match.end() :]


def _sections(
    headings: Sequence[Token], starts: Sequence[int], references: dict[str, Any]
) -> Iterator[Heading]:
    for heading, content in zip(headings[::2], headings[1::2], strict=True):
        title = _plain_text(content.content[:_MAX_SOURCE_CHARS], references)
        if title and heading.map is not None:
            yield Heading(title, int(heading.tag.removeprefix("h")), starts[heading.map[0]])


def _plain_text(source: str, references: dict[str, Any]) -> str:
    """Returns the text of a heading without inline markup, cut to the limit of section titles."""
    if not 0 < len(_MARKUP.findall(source)) <= _MAX_TITLE_MARKS:
        return section_title(source)
    tokens: list[Token] = []
    _PARSER.inline.parse(source, _PARSER, references, tokens)
    return section_title("".join(_visible_text(tokens)))


def _visible_text(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("text", "text_special", "code_inline"):
            yield token.content
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.type == "image":
            yield from _visible_text(token.children or ())


class _MarkdownHeadings(list[Token]):
    """The list to which the parser appends its tokens. Stores only tokens of top-level headings.

    For each heading, the list contains the opening token, then the token of the heading's content.
    All other tokens are discarded, because the tokens of 10 MB of list markers would take
    gigabytes.
    """

    def append(self, token: Token) -> None:
        opens = token.type == "heading_open" and token.level == 0
        if opens or (token.type == "inline" and self and self[-1].type == "heading_open"):
            super().append(token)


def _skip_text(state: StateBlock, start: int, end: int, _silent: bool) -> bool:
    """A rule for the parser: skips lines that cannot contain a heading of the outline.

    Returns True if the rule has skipped lines. The rule skips a paragraph at the top level if all
    its lines begin with a letter. No other kind of block begins with a letter, so the parser need
    not try its other rules on these lines. In text that is nested at least MAX_NESTING levels deep,
    the rule skips every line. Otherwise the parser would reach its own nesting limit and ignore the
    rest of the document.
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


def _build_parser() -> MarkdownIt:
    """Returns a CommonMark parser that several threads may use at the same time.

    The parser compiles its rules when it parses its first text, without a lock. So this function
    parses a short text before threads use the parser.
    """
    # The nesting limit of the parser must be higher than MAX_NESTING, so that `_skip_text` skips
    # deeper text before the parser reaches its limit. A list adds two levels at once.
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING + 2})
    parser.block.ruler.before("code", "skip_text", _skip_text)
    parser.parse("# warm *up*")
    return parser


# At the log level DEBUG, the parser would log every rule that it tries on every line.
logging.getLogger("markdown_it").setLevel(logging.INFO)

_PARSER = _build_parser()
