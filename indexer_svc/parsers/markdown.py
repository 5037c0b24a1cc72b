"""The outline of a Markdown text: its title and its sections.

Sections are the top-level headings. CommonMark defines what a heading is: a `#` in fenced
code, indented code or HTML is not one, and a heading inside a list or quote is not part of
the outline. Front matter (YAML or TOML) is skipped; CommonMark would read the closing `---`
of YAML as the underline of a heading. Only blocks are parsed; inline markup is parsed for
titles alone.

Parsing takes linear time: 0.2 s per MB of prose, about 5 s per MB of nothing but markers.
Lines, sections, nesting and titles are limited, so that a hostile text of the largest size
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

MAX_LINES = 500_000  # 10,000 printed pages; parsing so many list markers takes seconds.
MAX_NESTING = 20  # Ten nested lists; the parser reads a line once for each level.

_MAX_SOURCE_CHARS = 2 * MAX_SECTION_TITLE_CHARS  # Leaves room for markup, such as a link's URL.
_MAX_TITLE_MARKS = 40  # A title with more markup is kept as it is written.
_BYTE_ORDER_MARK = "\ufeff"
_LINE_END = re.compile(r"\r\n?|\n")
_MARKUP = re.compile(r"[\\`*_&<!\[\n]")
# YAML begins with a key. Blank lines may follow if every other line is a key, a list item or
# indented; otherwise a thematic break and the prose below it would count as front matter.
_YAML_LINE = r"(?:[ \t][^\n]*|-[ \t][^\n]*|[\w\"'][^\n:]*:(?:[ \t][^\n]*)?|)\n"
_FRONT_MATTER = re.compile(
    r"---[ \t]*\n(?=[\w\"'-][^\n:]*:)"
    rf"(?:(?:(?![ \t]*\n)[^\n]*\n)*?|(?:{_YAML_LINE})*?)(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
    r"|\+\+\+[ \t]*\n(?:[^\n]*\n)*?\+\+\+[ \t]*(?:\n|\Z)"  # TOML.
)


@dataclass(frozen=True, slots=True)
class Outline:
    """The title and sections of a Markdown text; `title` is empty if it has none."""

    title: str
    sections: tuple[Heading, ...]


def parse_markdown(content: bytes, _max_text_bytes: int) -> ParsedFile:
    """Returns UTF-8 text as it is, its headings and its title."""
    text = content.decode()
    outline = outline_of(text)
    return ParsedFile(text, (), outline.sections, outline.title)


def outline_of(text: str) -> Outline:
    """Returns the title and the top-level headings of `text`, in order. Raises nothing.

    The title is the front matter's `title`, or else the first heading of level 1.

    A section's `char_start` is the offset, in code points of `text`, at which the heading's
    first line begins. Lines end with `\\n`, `\\r\\n` or `\\r`. Section titles are plain text of
    1 to MAX_SECTION_TITLE_CHARS characters; a heading without text is not a section. Headings
    after the first MAX_LINES lines and after the first MAX_HEADINGS headings are left out.
    """
    starts = _line_starts(text)
    end = starts[MAX_LINES] if len(starts) > MAX_LINES else len(text)
    references: dict[str, Any] = {}
    headings = _Headings()
    front_matter, source = _split(_LINE_END.sub("\n", text[starts[0] : end]))
    _PARSER.block.parse(source, _PARSER, references, headings)
    sections = tuple(islice(_sections(headings, starts, references), MAX_HEADINGS))
    first_heading = next((each.title for each in sections if each.depth == 1), "")
    return Outline(front_matter_title(front_matter) or first_heading, sections)


def _line_starts(text: str) -> list[int]:
    """Code-point offsets at which lines begin, of the first MAX_LINES + 1 lines."""
    first = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
    return [first, *(found.end() for found in islice(_LINE_END.finditer(text), MAX_LINES))]


def _split(source: str) -> tuple[str, str]:
    """The front matter, and `source` with blank lines in its place: line numbers stay."""
    found = _FRONT_MATTER.match(source)
    if found is None:
        return "", source
    return found[0], "\n" * found[0].count("\n") + source[found.end() :]


def _sections(
    headings: Sequence[Token], starts: Sequence[int], references: dict[str, Any]
) -> Iterator[Heading]:
    for heading, content in zip(headings[::2], headings[1::2], strict=True):
        title = _plain_text(content.content[:_MAX_SOURCE_CHARS], references)
        if title and heading.map is not None:
            yield Heading(title, int(heading.tag.removeprefix("h")), starts[heading.map[0]])


def _plain_text(source: str, references: dict[str, Any]) -> str:
    """Inline Markdown without its markup, as a section title."""
    if not 0 < len(_MARKUP.findall(source)) <= _MAX_TITLE_MARKS:
        return section_title(source)
    tokens: list[Token] = []
    _PARSER.inline.parse(source, _PARSER, references, tokens)
    return section_title("".join(_visible(tokens)))


def _visible(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("text", "text_special", "code_inline"):
            yield token.content
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.type == "image":
            yield from _visible(token.children or ())


class _Headings(list[Token]):
    """A token list that keeps only top-level headings: the opening token, then its content.

    The tokens of ten megabytes of list markers would take gigabytes.
    """

    def append(self, token: Token) -> None:
        opens = token.type == "heading_open" and token.level == 0
        if opens or (token.type == "inline" and self and self[-1].type == "heading_open"):
            super().append(token)


def _skip_text(state: StateBlock, start: int, end: int, _silent: bool) -> bool:
    """A block rule that skips lines which cannot hold a heading of the outline.

    No other block begins in a paragraph whose lines all begin with a letter, so skipping it
    saves every other rule on each of its lines. Beyond MAX_NESTING single lines are skipped;
    at its own limit the parser would give up the rest of the document.
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
    """A CommonMark parser that threads can share.

    It compiles its rules at the first parse, without a lock, so one parse is made here.
    """
    # Entering a list adds two levels; the parser's limit must not apply before MAX_NESTING.
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING + 2})
    parser.block.ruler.before("code", "skip_text", _skip_text)
    parser.parse("# warm *up*")
    return parser


# At debug level the parser logs every rule that it tries on every line.
logging.getLogger("markdown_it").setLevel(logging.INFO)

_PARSER = _built_parser()
