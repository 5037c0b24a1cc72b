"""How chunks, passages and figures read on a terminal. Pure: values in, text out.

Where colour shows, what matched is coloured; elsewhere it stands between « and ».
"""

import re
import textwrap
from collections.abc import Iterable, Sequence

from rich.text import Text

from hrag.answers.citations import sections
from hrag.cli.console import printable
from hrag.types import ChosenSection, Chunk, Passage, SearchResult, Span

MATCH_STYLE = "green"
WORD_STYLE = "bold yellow"

_OPEN, _CLOSE = "«", "»"
_MIN_WORD_CHARS = 3
_COMMON_WORDS = re.compile(
    "and|are|but|can|does|for|from|has|have|how|into|its|many|more|most|not|one|than|that|the|"
    "this|was|were|what|when|where|which|who|why|with|you|your"
)

Range = tuple[int, int]


def citation(chunk: Chunk) -> str:
    """Title, sections, pages, source and chunk id, as far as the chunk has them."""
    source = chunk.source if chunk.source != chunk.title else ""
    parts = (chunk.title, sections(chunk), pages(chunk), source, chunk.chunk_id)
    return printable(" · ".join(filter(None, parts)).replace("\n", " "))


def section_citation(section: ChosenSection) -> str:
    """Title, sections, pages and document id, as far as the section has them."""
    parts = (section.title, sections(section), pages(section), section.document_id)
    return printable(" · ".join(filter(None, parts)).replace("\n", " "))


def beginning(text: str, chars: int) -> str:
    """As many first words as fit, on one line; of text without blanks, characters."""
    line = " ".join(printable(text).split())
    if len(line) <= chars:
        return line
    end = line.rfind(" ", chars // 2, chars)
    return line[: chars - 1 if end < 0 else end] + "…"


def counted(number: int, noun: str) -> str:
    """`1 passage`, `2 passages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def pages(part: Chunk | ChosenSection) -> str:
    """`p. 3` or `p. 3-4`; empty where the document has no pages."""
    return page_range(part.first_page, part.last_page)


def page_range(first: int, last: int) -> str:
    """The same of two page numbers."""
    if not first:
        return ""
    return f"p. {first}" if first == last else f"p. {first}-{last}"


def suffix(chunk_id: str) -> str:
    """`#<level>.<index>`: what tells a document's chunks apart."""
    return "#" + chunk_id.rpartition("#")[2]


def inside(chunk: Chunk, span: Span) -> Range:
    """The characters of the chunk's content that `span` of its document covers."""
    length = len(chunk.content)
    start = min(max(span.char_start - chunk.span.char_start, 0), length)
    end = min(max(span.char_end - chunk.span.char_start, start), length)
    return start, end


def matched_ranges(passage: Passage) -> list[Range]:
    """Where the passage's content matched, spaces at the ends aside: in order and apart."""
    content = passage.chunk.content
    found = merged(inside(passage.chunk, child.span) for child in passage.matched_children)
    return merged(_trimmed(content, start, end) for start, end in found)


def _trimmed(content: str, start: int, end: int) -> Range:
    kept = content[start:end]
    return start + len(kept) - len(kept.lstrip()), end - len(kept) + len(kept.rstrip())


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same characters in as few ranges as possible."""
    result: list[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def highlighted(text: str, ranges: Sequence[Range], *, colour: bool) -> Text:
    """`text` with its ranges, which are in order and apart, coloured or marked."""
    text = printable(text)
    shown = Text()
    position = 0
    for start, end in ranges:
        shown.append(text[position:start])
        inner = text[start:end]
        shown.append(inner if colour else f"{_OPEN}{inner}{_CLOSE}", style=MATCH_STYLE)
        position = end
    return shown.append(text[position:])


def words(text: str) -> set[str]:
    """The words of a text that carry its meaning, in lower case, plurals as singulars."""
    return {
        word.removesuffix("s")
        for word in re.findall(r"\w+", text.lower())
        if len(word) >= _MIN_WORD_CHARS and not _COMMON_WORDS.fullmatch(word)
    }


def excerpt(text: str, query: str, lines: int, width: int) -> list[str]:
    """The `lines` lines of `text` that hold most of the query's words.

    Of equal places, the one with most letters: prose rather than code. Longer lines are
    folded at `width` characters, blank ones left out.
    """
    folded = _folded(printable(text), width)
    wanted = words(query)
    held = [wanted & words(line) for line in folded]

    def worth(start: int) -> tuple[int, int]:
        letters = sum(map(str.isalpha, "".join(folded[start : start + lines])))
        return len(set().union(*held[start : start + lines])), letters

    best = max(range(max(1, len(folded) - lines + 1)), key=worth)
    return folded[best : best + lines]


def _folded(text: str, width: int) -> list[str]:
    kept = (line.expandtabs() for line in text.splitlines() if line.strip())
    return [part for line in kept for part in textwrap.wrap(line, width) or [line[:width]]]


def emphasised(line: str, query: str) -> Text:
    """`line` with the query's words emphasised."""
    shown = Text(line)
    wanted = words(query)
    for found in re.finditer(r"\w+", line):
        if words(found[0]) & wanted:
            shown.stylize(WORD_STYLE, *found.span())
    return shown


def duration(microseconds: float) -> str:
    """In the unit that leaves one to three digits before the point."""
    if abs(microseconds) < 1000:
        return f"{microseconds:.0f} µs"
    if abs(microseconds) < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1_000_000:.2f} s"


def timings(result: SearchResult) -> str:
    """The stages of a search, in order."""
    took = result.timings
    filtering = f"filter {duration(took.filter_us)}, " if took.filter_us else ""
    return (
        f"{duration(took.total_us)} in the service: embed {duration(took.embed_us)}, {filtering}"
        f"search {duration(took.search_us)}, climb {duration(took.climb_us)}, "
        f"fetch {duration(took.fetch_us)}"
    )
