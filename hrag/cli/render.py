"""Formats chunks, passages and durations as text for a terminal. The functions print nothing.

Matches are coloured, or enclosed in « and » if the console has no colours.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.text import Text

from hrag.text.citations import sections, short_pages
from hrag.text.plain_text import printable
from hrag.values.chunks import Chunk, Span
from hrag.values.search import ChosenSection, Passage, SearchResult, TermSpan

MATCH_STYLE = "green"
WORD_STYLE = "bold yellow"
_OPEN, _CLOSE = "«", "»"
_SENTENCE_STYLE = "bold"
_MIN_WORD_CHARS = 3
# A command without the server has no kernel that cuts sentences. This rule only chooses what is
# shown around a sentence that the retriever has cut.
_SENTENCE_GAP = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n\s*\n")
# The longest parts that are shown of a sentence and of each of its neighbours.
_SENTENCE_CHARS = 400
_NEIGHBOUR_CHARS = 160
_COMMON_WORDS = re.compile(
    "and|are|but|can|does|for|from|has|have|how|into|its|many|more|most|not|one|than|that|the|"
    "this|was|were|what|when|where|which|who|why|with|you|your"
)
Range = tuple[int, int]


def citation(chunk: Chunk) -> str:
    """Returns a line with the chunk's title, sections, pages, source and id.

    Empty values are left out, and so is a source that equals the title.
    """
    source = chunk.source if chunk.source != chunk.title else ""
    parts = (chunk.title, sections(chunk), short_pages(chunk), source, chunk.chunk_id)
    return printable(" · ".join(filter(None, parts)).replace("\n", " "))


def place(chunk: Chunk) -> str:
    """Returns a line with the chunk's title, sections, pages and source, except empty values.

    A document without a title and a source is named by its id.
    """
    source = chunk.source if chunk.source != chunk.title else ""
    parts = [*filter(None, (chunk.title, sections(chunk), short_pages(chunk), source))]
    return printable(" · ".join(parts or [chunk.document_id])).replace("\n", " ")


def cited_place(passage: Passage) -> Chunk:
    """Returns the passage's chunk, but with the section path and pages of the matched sentence.

    If the passage has no matched sentence, returns the chunk unchanged.
    """
    sentence = passage.matched_sentence
    if sentence is None:
        return passage.chunk
    return replace(
        passage.chunk,
        section_path=sentence.section_path,
        first_page=sentence.first_page,
        last_page=sentence.last_page,
        recognised_pages=sentence.recognised_pages,
    )


def scores(passage: Passage) -> str:
    """Returns the passage's score, followed by the scores of the search sources in brackets.

    An example is `0.612 (lexical 0.301, dense 0.846)`. If there is only one source, and its score
    equals the passage's score, its score is left out. The score of a reranker comes last in the
    brackets.
    """
    total = f"{passage.score:.3f}"
    parts = [
        f"{source} {score:.3f}"
        for source, score in (("lexical", passage.lexical_score), ("dense", passage.dense_score))
        if score is not None
    ]
    if len(parts) == 1 and parts[0].endswith(f" {total}"):
        parts = []
    if passage.rerank_score is not None:
        parts.append(f"reranker {passage.rerank_score:.3f}")
    return f"{total} ({', '.join(parts)})" if parts else total


def section_citation(section: ChosenSection) -> str:
    """Returns a line with the section's title, path, pages and document id, except empty values."""
    parts = (section.title, sections(section), short_pages(section), section.document_id)
    return printable(" · ".join(filter(None, parts)).replace("\n", " "))


def first_words(text: str, chars: int) -> str:
    """Returns the first words of `text` on one line, at most `chars` characters."""
    line = " ".join(printable(text).split())
    if len(line) <= chars:
        return line
    end = line.rfind(" ", chars // 2, chars)
    return line[: chars - 1 if end < 0 else end] + "…"


def chunk_suffix(chunk_id: str) -> str:
    """Returns the end of a chunk id, `#<level>.<index>`, which is unique within a document."""
    return "#" + chunk_id.rpartition("#")[2]


def range_in_chunk(chunk: Chunk, span: Span | TermSpan) -> Range:
    """Converts a span of the document to a range of characters in the chunk's content.

    If the span extends beyond the chunk, the range ends at the start or end of the chunk.
    """
    length = len(chunk.content)
    start = min(max(span.char_start - chunk.span.char_start, 0), length)
    end = min(max(span.char_end - chunk.span.char_start, start), length)
    return start, end


def matched_ranges(passage: Passage) -> list[Range]:
    """Returns the ranges of the passage's content that matched the query, sorted and disjoint.

    The ranges cover the query's terms. If the passage contains none of the terms, the ranges cover
    the matched leaves. No range begins or ends with white space.
    """
    parts = passage.term_spans or [child.span for child in passage.matched_children]
    ranges = merged(range_in_chunk(passage.chunk, part) for part in parts)
    return merged(_trim(passage.chunk.content, start, end) for start, end in ranges)


def _trim(content: str, start: int, end: int) -> Range:
    text = content[start:end]
    return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Returns the union of `ranges` as sorted, disjoint ranges. Empty ranges are left out."""
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
    """Returns `text` with `ranges` coloured, or enclosed in « and » without `colour`.

    `ranges` must be sorted and disjoint.
    """
    text = printable(text)
    shown = Text()
    position = 0
    for start, end in ranges:
        shown.append(text[position:start])
        inner = text[start:end]
        shown.append(inner if colour else f"{_OPEN}{inner}{_CLOSE}", style=MATCH_STYLE)
        position = end
    return shown.append(text[position:])


def sentence_with_neighbours(
    chunk: Chunk, span: Span | None, ranges: Sequence[Range], *, colour: bool
) -> Text:
    """Returns the sentence at `span` on one line, between the sentences before and after it.

    If `span` is None, the first sentence of the chunk takes its place. `ranges` are marked as
    by `highlighted`; they must be sorted and disjoint. A long sentence is cut off at its end, the
    sentence before it at its start.
    """
    content = chunk.content
    start, end = range_in_chunk(chunk, span) if span is not None else _first_sentence(content)
    shown_end = min(end, start + _SENTENCE_CHARS)
    before = _last_sentence_start(content, start)
    after = _next_sentence_end(content, end) if shown_end == end else shown_end
    parts = ((before, start, ""), (start, shown_end, _SENTENCE_STYLE), (shown_end, after, ""))
    line = Text()
    for first, last, style in parts:
        part_ranges = [(max(a, first) - first, min(b, last) - first) for a, b in ranges]
        part = highlighted(content[first:last], merged(part_ranges), colour=colour)
        part.stylize_before(style)
        line.append_text(part)
    cut = (_is_cut(content, before), shown_end < end or _is_cut(content, after, at_end=True))
    return _on_one_line(line, *cut)


def _first_sentence(content: str) -> Range:
    start = len(content) - len(content.lstrip())
    gap = _SENTENCE_GAP.search(content, start)
    return start, gap.start() if gap else len(content.rstrip())


def _last_sentence_start(content: str, end: int) -> int:
    """Returns where the sentence before `end` starts, at most `_NEIGHBOUR_CHARS` before `end`."""
    first = max(0, end - _NEIGHBOUR_CHARS)
    text = content[first:end].rstrip()
    gaps = [gap.end() for gap in _SENTENCE_GAP.finditer(text) if gap.end() < len(text)]
    return first + gaps[-1] if gaps else first


def _next_sentence_end(content: str, start: int) -> int:
    """Returns where the sentence after `start` ends, at most `_NEIGHBOUR_CHARS` after `start`."""
    last = min(len(content), start + _NEIGHBOUR_CHARS)
    text_start = last - len(content[start:last].lstrip())
    gap = _SENTENCE_GAP.search(content, text_start + 1, last)
    return gap.start() if gap else last


def _is_cut(content: str, position: int, *, at_end: bool = False) -> bool:
    """Returns True if `position` is within a word of the chunk."""
    if at_end:
        return position < len(content) and content[position - 1 : position + 1].isalnum()
    return position > 0 and content[position - 1 : position + 1].isalnum()


def _on_one_line(line: Text, is_cut_before: bool, is_cut_after: bool) -> Text:
    """Returns `line` with blanks for line ends, and … where it was cut within a word."""
    shown = Text("…" if is_cut_before else "")
    parts = [part for part in line.split("\n") if part.plain.strip()]
    for number, part in enumerate(parts):
        inner = part[len(part.plain) - len(part.plain.lstrip()) :]
        inner.rstrip()
        shown.append(" " if number else "").append_text(inner)
    return shown.append("…") if is_cut_after else shown


def words(text: str) -> set[str]:
    """Returns the words of a text in lower case, each without a final s.

    Common words and words of fewer than 3 characters are omitted.
    """
    return {
        word.removesuffix("s")
        for word in re.findall(r"\w+", text.lower())
        if len(word) >= _MIN_WORD_CHARS and not _COMMON_WORDS.fullmatch(word)
    }


def excerpt(text: str, query: str, lines: int, width: int) -> list[str]:
    """Returns the `lines` consecutive lines of `text` that contain the most words of the query.

    If several excerpts contain equally many words of the query, returns the excerpt with the most
    letters, so that prose is preferred to code. Before the choice, lines are wrapped at `width`
    characters and blank lines are removed.
    """
    wrapped = _wrap_lines(printable(text), width)
    query_words = words(query)
    matches = [query_words & words(line) for line in wrapped]

    def rank(start: int) -> tuple[int, int]:
        letters = sum(map(str.isalpha, "".join(wrapped[start : start + lines])))
        return len(set().union(*matches[start : start + lines])), letters

    best = max(range(max(1, len(wrapped) - lines + 1)), key=rank)
    return wrapped[best : best + lines]


def _wrap_lines(text: str, width: int) -> list[str]:
    lines = (line.expandtabs() for line in text.splitlines() if line.strip())
    return [part for line in lines for part in textwrap.wrap(line, width) or [line[:width]]]


def emphasised(line: str, query: str) -> Text:
    """Returns `line` with the words of the query coloured."""
    shown = Text(line)
    query_words = words(query)
    for word in re.finditer(r"\w+", line):
        if words(word[0]) & query_words:
            shown.stylize(WORD_STYLE, *word.span())
    return shown


def duration(microseconds: float) -> str:
    """Returns a duration as text, in µs, ms or s."""
    if abs(microseconds) < 1000:
        return f"{microseconds:.0f} µs"
    if abs(microseconds) < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1_000_000:.2f} s"


def timings(result: SearchResult) -> str:
    """Returns the durations of a search and its stages as text, in the order of the stages."""
    times = result.timings
    filtering = f"filter {duration(times.filter_us)}, " if times.filter_us else ""
    reranking = f", rerank {duration(times.rerank_us)}" if times.rerank_us else ""
    return (
        f"{duration(times.total_us)} in the service: embed {duration(times.embed_us)}, {filtering}"
        f"search {duration(times.search_us)}, climb {duration(times.climb_us)}, "
        f"fetch {duration(times.fetch_us)}{reranking}"
    )
