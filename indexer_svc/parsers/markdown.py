"""Parses Markdown texts: the title, the sections and the front matter.

Front matter is no text of the document: its title becomes the document's title, and its other
fields become metadata. Long tables become records. All other text stays as it is written.

Sections begin at the top-level headings. CommonMark defines what a heading is: a `#` in fenced
code, indented code or HTML is not a heading. A heading inside a list or quote is not part of the
outline. Only blocks are parsed. Inline markup is parsed in titles only.

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

from indexer_svc.parsers.front_matter import FrontMatter, front_matter_of
from indexer_svc.parsers.markdown_tables import TABLES, table_rule, with_records
from indexer_svc.parsers.parsed_file import MAX_HEADINGS, Edit, Heading, ParsedFile, moved
from indexer_svc.parsers.raised_text import subscript, superscript
from indexer_svc.parsers.text_lines import BYTE_ORDER_MARK, LINE_END
from indexer_svc.parsers.text_writer import check_text_bytes
from indexer_svc.titles import MAX_SECTION_TITLE_CHARS, section_title

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
_SCRIPT_TAG = re.compile(r"<(?P<end>/?)(?P<name>sup|sub)>")
# Attributes after the text of a heading, as Pandoc, MkDocs and Hugo write them: `{#id .class}`.
_ATTRIBUTES = re.compile(r"[ \t]\{:?[ \t]*[#.]\w[^{}]*\}[ \t]*\Z")
_MARKUP = re.compile(r"[\\`*_&<!\[\n]")


@dataclass(frozen=True, slots=True)
class MarkdownOutline:
    """The title, the sections and the tables of a Markdown text.

    `title` is empty if the text has no title. `tables` are the ranges of the tables that are not
    inside another block, from the beginning of a line to the end of one.
    """

    title: str
    sections: tuple[Heading, ...]
    tables: tuple[tuple[int, int], ...] = ()


def parse_markdown(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns UTF-8 text without its front matter, with its headings, title and metadata.

    Long tables become records, as `markdown_tables` describes; all other text is unchanged. The
    title is that of the front matter, or else the first heading of level 1. Raises TooLarge if the
    text then has more than `max_text_bytes` bytes.
    """
    source = content.decode()
    front_matter = front_matter_of(source)
    body = source[front_matter.end :]
    outline = outline_of(body)
    text, edits = with_records(body, outline.tables, max_text_bytes)
    if edits:
        check_text_bytes(len(text.encode()), max_text_bytes)
    starts = moved([section.char_start for section in outline.sections], edits)
    sections = tuple(
        section._replace(char_start=start)
        for section, start in zip(outline.sections, starts, strict=True)
    )
    title = front_matter.title or outline.title
    edits = _after(front_matter, edits)
    return ParsedFile(text, (), sections, title, metadata=front_matter.fields, edits=edits)


def _after(front_matter: FrontMatter, edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Returns edits of the text after front matter as edits of the whole text."""
    end = front_matter.end
    moved_edits = (Edit(edit.char_start + end, edit.char_end + end, edit.length) for edit in edits)
    return (Edit(0, end, 0), *moved_edits) if end else tuple(edits)


def outline_of(text: str) -> MarkdownOutline:
    """Returns the title, the top-level headings and the tables of `text`, in order.

    Raises no errors.

    The title is the first heading of level 1. The text has no front matter.

    A section's `char_start` is the offset, in code points of `text`, at which the first line of the
    heading begins. Lines end with `\\n`, `\\r\\n` or `\\r`. Section titles are plain text of 1 to
    MAX_SECTION_TITLE_CHARS characters. A heading without text does not begin a section. Headings
    after the first MAX_LINES lines, and after the first MAX_HEADINGS headings, are left out.
    """
    starts = _line_starts(text)
    end = starts[MAX_LINES] if len(starts) > MAX_LINES else len(text)
    environment: dict[str, Any] = {}
    headings = _MarkdownHeadings()
    source = LINE_END.sub("\n", text[starts[0] : end])
    _PARSER.block.parse(source, _PARSER, environment, headings)
    sections = tuple(islice(_sections(headings, starts, environment), MAX_HEADINGS))
    first_heading = next((section.title for section in sections if section.depth == 1), "")
    tables = tuple(
        (starts[first], starts[last] if last < len(starts) else end)
        for first, last in environment.get(TABLES, ())
    )
    return MarkdownOutline(first_heading, sections, tables)


def _line_starts(text: str) -> list[int]:
    """Returns the offsets, in code points, at which the first MAX_LINES + 1 lines begin."""
    first = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
    return [first, *(line_end.end() for line_end in islice(LINE_END.finditer(text), MAX_LINES))]


def _sections(
    headings: Sequence[Token], starts: Sequence[int], references: dict[str, Any]
) -> Iterator[Heading]:
    for heading, content in zip(headings[::2], headings[1::2], strict=True):
        source = _ATTRIBUTES.sub("", content.content[:_MAX_SOURCE_CHARS])
        title = _plain_text(source, references)
        if title and heading.map is not None:
            yield Heading(title, int(heading.tag.removeprefix("h")), starts[heading.map[0]])


def _plain_text(source: str, references: dict[str, Any]) -> str:
    """Returns the text of a heading without inline markup, cut to the limit of section titles."""
    if not 0 < len(_MARKUP.findall(source)) <= _MAX_TITLE_MARKS:
        return section_title(source)
    tokens: list[Token] = []
    _PARSER.inline.parse(source, _PARSER, references, tokens)
    return section_title(_visible_text(tokens))


def _visible_text(tokens: Sequence[Token]) -> str:
    """Returns the text of inline tokens. Superscripts and subscripts in HTML get their sign."""
    text = ""
    # The text before the superscript or subscript that has begun, and its element.
    before, script = "", ""
    for token in tokens:
        if token.type in ("text", "text_special", "code_inline"):
            text += token.content
        elif token.type in ("softbreak", "hardbreak"):
            text += " "
        elif token.type == "image":
            text += _visible_text(token.children or ())
        elif token.type == "html_inline" and (tag := _SCRIPT_TAG.fullmatch(token.content)):
            if not tag["end"]:
                before, script, text = before + text, tag["name"], ""
            elif script:
                write = superscript if script == "sup" else subscript
                before, script, text = "", "", before + write(before, text)
    return before + text


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
    rest of the document. A line that continues a quote without its marker has a negative indent.
    It is skipped with the line before it: otherwise the quotes around it would end there, and the
    next quote would be searched to the end of the text for each of these lines.
    """
    if state.level >= MAX_NESTING:
        start += 1
        while start < end and state.sCount[start] < 0:
            start += 1
        state.line = start
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
    parser.block.ruler.before(
        "code", "outer_table", table_rule, {"alt": ["paragraph", "reference"]}
    )
    parser.parse("# warm *up*")
    return parser


# At the log level DEBUG, the parser would log every rule that it tries on every line.
logging.getLogger("markdown_it").setLevel(logging.INFO)

_PARSER = _build_parser()
