"""Chunks, passages and durations as text for a terminal. Pure.

Matches are coloured, or enclosed in « and » where the console has no colours.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.text import Text

from hrag.text.citations import sections
from hrag.text.plain_text import printable
from hrag.values.chunks import Chunk, Span
from hrag.values.search import ChosenSection, Passage, SearchResult, TermSpan

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
    """Returns title, sections, pages, source and chunk id, those that the chunk has."""
    source = chunk.source if chunk.source != chunk.title else ""
    parts = (chunk.title, sections(chunk), pages(chunk), source, chunk.chunk_id)
    return printable(" · ".join(filter(None, parts)).replace("\n", " "))


def cited_place(passage: Passage) -> Chunk:
    """Returns the passage's chunk with section path and pages of the sentence to cite."""
    sentence = passage.matched_sentence
    if sentence is None:
        return passage.chunk
    return replace(
        passage.chunk,
        section_path=sentence.section_path,
        first_page=sentence.first_page,
        last_page=sentence.last_page,
    )


def scores(passage: Passage) -> str:
    """Returns `0.612 (lexical 0.301, dense 0.846)`: the score and what each source says.

    A source that alone gave the score is left out; a reranker's score comes last.
    """
    shown = f"{passage.score:.3f}"
    parts = [
        f"{source} {score:.3f}"
        for source, score in (("lexical", passage.lexical_score), ("dense", passage.dense_score))
        if score is not None
    ]
    if len(parts) == 1 and parts[0].endswith(f" {shown}"):
        parts = []
    if passage.rerank_score is not None:
        parts.append(f"reranker {passage.rerank_score:.3f}")
    return f"{shown} ({', '.join(parts)})" if parts else shown


def section_citation(section: ChosenSection) -> str:
    """Returns title, sections, pages and document id, those that the section has."""
    parts = (section.title, sections(section), pages(section), section.document_id)
    return printable(" · ".join(filter(None, parts)).replace("\n", " "))


def first_words(text: str, chars: int) -> str:
    """Returns the first words of `text` on one line, at most `chars` characters."""
    line = " ".join(printable(text).split())
    if len(line) <= chars:
        return line
    end = line.rfind(" ", chars // 2, chars)
    return line[: chars - 1 if end < 0 else end] + "…"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 passage`, `2 passages`; `2 leaves` with the plural given."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def pages(part: Chunk | ChosenSection) -> str:
    """Returns `p. 3` or `p. 3-4`; empty if the document has no pages."""
    return page_range(part.first_page, part.last_page)


def page_range(first: int, last: int) -> str:
    """The same for two page numbers, which are 0 if the document has no pages."""
    if not first:
        return ""
    return f"p. {first}" if first == last else f"p. {first}-{last}"


def chunk_suffix(chunk_id: str) -> str:
    """Returns the end of a chunk id, `#<level>.<index>`, which is unique within a document."""
    return "#" + chunk_id.rpartition("#")[2]


def range_in_chunk(chunk: Chunk, span: Span | TermSpan) -> Range:
    """Returns the part of `span`, a span of the document, as a range of the chunk's content."""
    length = len(chunk.content)
    start = min(max(span.char_start - chunk.span.char_start, 0), length)
    end = min(max(span.char_end - chunk.span.char_start, start), length)
    return start, end


def matched_ranges(passage: Passage) -> list[Range]:
    """Returns what matched as ranges of the passage's content, sorted, disjoint and trimmed.

    These are the query's terms or, if there are none in the passage, the matched leaves.
    """
    parts = passage.term_spans or [child.span for child in passage.matched_children]
    found = merged(range_in_chunk(passage.chunk, part) for part in parts)
    return merged(_trimmed(passage.chunk.content, start, end) for start, end in found)


def _trimmed(content: str, start: int, end: int) -> Range:
    kept = content[start:end]
    return start + len(kept) - len(kept.lstrip()), end - len(kept) + len(kept.rstrip())


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Returns the union of `ranges` as sorted, disjoint ranges; empty ones are dropped."""
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
    """Returns `text` with `ranges`, which are sorted and disjoint, coloured or marked."""
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
    """Returns the words of a text without common ones, in lower case and without a final s."""
    return {
        word.removesuffix("s")
        for word in re.findall(r"\w+", text.lower())
        if len(word) >= _MIN_WORD_CHARS and not _COMMON_WORDS.fullmatch(word)
    }


def excerpt(text: str, query: str, lines: int, width: int) -> list[str]:
    """Returns the `lines` consecutive lines of `text` that contain most of the query's words.

    Ties go to the lines with more letters, which prefers prose to code. Lines are wrapped at
    `width` characters; blank lines are dropped.
    """
    folded = _folded(printable(text), width)
    query_words = words(query)
    found = [query_words & words(line) for line in folded]

    def rank(start: int) -> tuple[int, int]:
        letters = sum(map(str.isalpha, "".join(folded[start : start + lines])))
        return len(set().union(*found[start : start + lines])), letters

    best = max(range(max(1, len(folded) - lines + 1)), key=rank)
    return folded[best : best + lines]


def _folded(text: str, width: int) -> list[str]:
    kept = (line.expandtabs() for line in text.splitlines() if line.strip())
    return [part for line in kept for part in textwrap.wrap(line, width) or [line[:width]]]


def emphasised(line: str, query: str) -> Text:
    """Returns `line` with the query's words emphasised."""
    shown = Text(line)
    query_words = words(query)
    for found in re.finditer(r"\w+", line):
        if words(found[0]) & query_words:
            shown.stylize(WORD_STYLE, *found.span())
    return shown


def duration(microseconds: float) -> str:
    """Returns a duration in µs, ms or s."""
    if abs(microseconds) < 1000:
        return f"{microseconds:.0f} µs"
    if abs(microseconds) < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1_000_000:.2f} s"


def timings(result: SearchResult) -> str:
    """Returns the durations of a search and its stages, in order."""
    took = result.timings
    filtering = f"filter {duration(took.filter_us)}, " if took.filter_us else ""
    reranking = f", rerank {duration(took.rerank_us)}" if took.rerank_us else ""
    return (
        f"{duration(took.total_us)} in the service: embed {duration(took.embed_us)}, {filtering}"
        f"search {duration(took.search_us)}, climb {duration(took.climb_us)}, "
        f"fetch {duration(took.fetch_us)}{reranking}"
    )
