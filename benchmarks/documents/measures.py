"""Compares what was read of a print with the document that was printed.

* Sections: F1 of headings. A heading is right if it has the same title and the same depth, and if
  it is in order; the pairs of equal headings are a longest common subsequence. The depth is that in
  the tree of sections: a document that begins with a heading of level 2 has depth 1 there.
* Cells: F1 of the filled cells of tables. A cell is right if it is in its row and under the name of
  its column. The pairs of rows are those in order with the most right cells.
* Heads left in: how often a running head or page number of a page is in the text of this page.
* Words lost: the share of the words of the document that the text does not have.
* Order: the share of neighbours that are neighbours in the text. Neighbours are two words of the
  same paragraph, item, heading or footnote; the words of tables and footnotes between them do not
  count, because a reader puts these where the page ends. The last word of a block and the first
  word of the next are in order if one comes after the other.

Each measure is a count of right things and of all things, so that documents can be added up.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from benchmarks.documents.printer import PrintedDocument
from benchmarks.documents.read_tables import Row, comparable, rows_in, table_ranges
from benchmarks.documents.source_document import (
    SourceDocument,
    Table,
    block_text,
    readable,
)
from benchmarks.documents.word_alignment import UNPAIRED, aligned, keys_of, words_of
from indexer_svc.parsers.parsed_file import ParsedFile

# At most this many examples of what was missed are kept for each document and measure.
MAX_EXAMPLES = 4


@dataclass(frozen=True, slots=True)
class Matches:
    """Counts of things: in the document, in the text that was read, and equal in both."""

    in_document: int = 0
    in_text: int = 0
    right: int = 0

    def __add__(self, other: "Matches") -> "Matches":
        return Matches(
            self.in_document + other.in_document,
            self.in_text + other.in_text,
            self.right + other.right,
        )

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 1 if there is nothing to find."""
        total = self.in_document + self.in_text
        return 2 * self.right / total if total else 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The measures of one print of one document.

    `examples` has, for each measure with a miss, some of the things that were missed.
    """

    sections: Matches
    cells: Matches
    head_count: int
    contents_line_count: int
    word_count: int
    lost_word_count: int
    added_word_count: int
    neighbour_count: int
    ordered_count: int
    examples: dict[str, tuple[str, ...]] = field(default_factory=dict)


def compare(printed: PrintedDocument, parsed: ParsedFile) -> Comparison:
    """Returns how the text that was read of a print differs from the document."""
    alignment = _TextAlignment(printed, parsed)
    sections, missed_sections = _sections(printed.document, parsed)
    cells, missed_cells = _cells(printed.document, parsed)
    heads = list(alignment.heads_left())
    contents_lines = list(alignment.contents_lines_left())
    lost = list(alignment.lost_words())
    pairs = list(alignment.neighbours())
    examples = {
        "sections": missed_sections,
        "cells": missed_cells,
        "heads": heads,
        "contents lines": contents_lines,
        "words": lost,
        "order": [pair for pair, is_ordered in pairs if not is_ordered],
    }
    return Comparison(
        sections,
        cells,
        len(heads),
        len(contents_lines),
        word_count=len(alignment.words),
        lost_word_count=len(lost),
        added_word_count=alignment.added_word_count,
        neighbour_count=len(pairs),
        ordered_count=sum(is_ordered for _, is_ordered in pairs),
        examples={
            name: tuple(missed[:MAX_EXAMPLES]) for name, missed in examples.items() if missed
        },
    )


# Sections.


def _sections(document: SourceDocument, parsed: ParsedFile) -> tuple[Matches, list[str]]:
    expected = _outline([(heading.depth, readable(heading.text)) for heading in document.headings])
    read = _outline([(heading.depth, heading.title) for heading in parsed.headings])
    pairs = _common(expected, read)
    not_read = _others(expected, {index for index, _ in pairs})
    wrong = _others(read, {index for _, index in pairs})
    missed = [f"not read: {_shown(expected[at])}" for at in not_read]
    missed += [f"wrong: {_shown(read[at])}" for at in wrong]
    return Matches(len(expected), len(read), len(pairs)), missed


def _outline(headings: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Returns the headings with their depths in the tree of sections, and the keys of titles."""
    levels: list[int] = []
    outline = []
    for level, title in headings:
        while levels and levels[-1] >= level:
            levels.pop()
        levels.append(level)
        outline.append((len(levels), " ".join(keys_of(title))))
    return outline


def _common(
    first: Sequence[tuple[int, str]], second: Sequence[tuple[int, str]]
) -> list[tuple[int, int]]:
    """Returns the indexes of the pairs of a longest common subsequence."""
    return _best_pairs([[int(a == b) for b in second] for a in first])


def _best_pairs(weights: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Returns the pairs of rows and columns, both ascending, whose weights have the greatest sum.

    Pairs of weight 0 are left out.
    """
    columns = len(weights[0]) if weights else 0
    best = [[0] * (columns + 1) for _ in range(len(weights) + 1)]
    for row in range(len(weights) - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            best[row][column] = max(
                best[row + 1][column],
                best[row][column + 1],
                best[row + 1][column + 1] + weights[row][column],
            )
    pairs = []
    row = column = 0
    while row < len(weights) and column < columns:
        if best[row][column] == best[row + 1][column]:
            row += 1
        elif best[row][column] == best[row][column + 1]:
            column += 1
        else:
            pairs.append((row, column))
            row += 1
            column += 1
    return pairs


def _others(values: Sequence[object], indexes: set[int]) -> list[int]:
    return [at for at in range(len(values)) if at not in indexes]


def _shown(heading: tuple[int, str]) -> str:
    depth, title = heading
    return f"{title!r} of depth {depth}"


# Cells.


def _cells(document: SourceDocument, parsed: ParsedFile) -> tuple[Matches, list[str]]:
    expected = [row for table in document.tables for row in _rows(table)]
    read_rows = rows_in(parsed.text)
    if not expected and not read_rows:
        return Matches(), []
    counts = [Counter(row) for row in read_rows]
    weights = [[(Counter(row) & count).total() for count in counts] for row in expected]
    pairs = _best_pairs(weights)
    missed = list(_missed_cells(expected, read_rows, dict(pairs)))
    return (
        Matches(
            sum(map(len, expected)),
            sum(map(len, read_rows)),
            sum(weights[row][column] for row, column in pairs),
        ),
        missed,
    )


def _rows(table: Table) -> Iterator[Row]:
    """Yields the rows of a table as pairs of the column's name and the cell's text."""
    names = [comparable(name) for name in table.names]
    for row in table.cells:
        cells = zip(names, map(comparable, row), strict=True)
        yield tuple((name, cell) for name, cell in cells if cell)


def _missed_cells(
    expected: Sequence[Row], read_rows: Sequence[Row], pairs: dict[int, int]
) -> Iterator[str]:
    for at, row in enumerate(expected):
        for name, cell in row:
            if at not in pairs or (name, cell) not in read_rows[pairs[at]]:
                yield f"{cell!r} under {name!r}"
    for at in _others(read_rows, set(pairs.values())):
        yield f"wrong row: {' | '.join(cell for _, cell in read_rows[at])[:80]}"


# Words, heads and order.


@dataclass(frozen=True, slots=True)
class _SourceWord:
    """A word of the document. `group` is the number of its block, after which notes are counted.

    Words of tables have no order among the words around them.
    """

    key: str
    group: int
    is_note: bool = False
    is_table: bool = False


class _TextAlignment:
    """The words of a document, the words of the text that was read, and their pairs."""

    def __init__(self, printed: PrintedDocument, parsed: ParsedFile) -> None:
        self._printed = printed
        self._parsed = parsed
        self.words = list(_source_words(printed.document))
        self._text_words = words_of(parsed.text)
        text_keys = [word.key for word in self._text_words]
        self._pairs = aligned([word.key for word in self.words], text_keys)
        self._added = _others(self._text_words, {pair for pair in self._pairs if pair != UNPAIRED})

    @property
    def added_word_count(self) -> int:
        """The count of words outside of tables that the document does not have.

        In tables, the names of columns may be repeated.
        """
        tables = list(table_ranges(self._parsed.text))
        starts = [start for start, _ in tables]
        count = 0
        for at in self._added:
            table = bisect_right(starts, self._text_words[at].start) - 1
            count += table < 0 or self._text_words[at].start >= tables[table][1]
        return count

    def lost_words(self) -> Iterator[str]:
        """Yields the words of the document that the text does not have."""
        for word, pair in zip(self.words, self._pairs, strict=True):
            if pair == UNPAIRED:
                yield word.key

    def heads_left(self) -> Iterator[str]:
        """Yields the running heads and page numbers that are in the text of their pages."""
        for number, added in enumerate(self._added_by_page()):
            if number < len(self._printed.heads):
                for head in self._printed.heads[number]:
                    for _ in range(_occurrences(keys_of(head), added)):
                        yield f"page {number + 1}: {head}"

    def contents_lines_left(self) -> Iterator[str]:
        """Yields the lines of the contents pages that are in the text."""
        added = self._added_by_page()[: self._printed.contents_page_count]
        for heading in self._printed.document.headings:
            title = readable(heading.text)
            if any(_occurrences(keys_of(title), page) for page in added):
                yield title

    def _added_by_page(self) -> list[list[list[str]]]:
        """Returns, for each page, the runs of successive words that the document does not have."""
        pages: list[list[list[str]]] = []
        for page in self._parsed.pages:
            starts = range(page.char_start, page.char_end)
            words = [at for at in self._added if self._text_words[at].start in starts]
            runs = groupby(enumerate(words), key=lambda entry: entry[1] - entry[0])
            pages.append([[self._text_words[at].key for _, at in run] for _, run in runs])
        return pages

    def neighbours(self) -> Iterator[tuple[str, bool]]:
        """Yields each pair of neighbours of which no word is lost, and True if it is in order."""
        yield from self._neighbours(is_note=False)
        yield from self._neighbours(is_note=True)

    def _neighbours(self, *, is_note: bool) -> Iterator[tuple[str, bool]]:
        others = {
            pair
            for word, pair in zip(self.words, self._pairs, strict=True)
            if pair != UNPAIRED and (word.is_table or word.is_note != is_note)
        }
        ranks = _ranks(len(self._text_words), others)
        chosen = [
            (word, ranks[pair])
            for word, pair in zip(self.words, self._pairs, strict=True)
            if not word.is_table and word.is_note == is_note and pair != UNPAIRED
        ]
        lost = self._lost_before(is_note=is_note)
        for at, ((word, rank), (after, after_rank)) in enumerate(pairwise(chosen), start=1):
            if at in lost:
                continue
            is_next = after_rank == rank + 1
            is_ordered = is_next if word.group == after.group else after_rank > rank
            yield f"{word.key} {after.key}", is_ordered

    def _lost_before(self, *, is_note: bool) -> set[int]:
        """Returns the indexes of the paired words that follow a lost word."""
        indexes, count = set(), 0
        for word, pair in zip(self.words, self._pairs, strict=True):
            if word.is_table or word.is_note != is_note:
                continue
            if pair == UNPAIRED:
                indexes.add(count)
            else:
                count += 1
        return indexes


def _source_words(document: SourceDocument) -> Iterator[_SourceWord]:
    for group, block in enumerate(document.blocks):
        is_table = isinstance(block, Table)
        for key in keys_of(block_text(block)):
            yield _SourceWord(key, group, is_table=is_table)
    for number, note in enumerate(document.notes, start=1):
        for key in keys_of(f"{number}. {readable(note)}"):
            yield _SourceWord(key, len(document.blocks) + number, is_note=True)


def _ranks(count: int, left_out: set[int]) -> list[int]:
    """Returns, for each index, how many indexes before it are not left out."""
    ranks, rank = [], 0
    for index in range(count):
        ranks.append(rank)
        rank += index not in left_out
    return ranks


def _occurrences(keys: Sequence[str], runs: Sequence[Sequence[str]]) -> int:
    """Returns how often the words occur in runs of words, without overlaps."""
    count = 0
    for run in runs:
        at = 0
        while keys and at + len(keys) <= len(run):
            if list(run[at : at + len(keys)]) == list(keys):
                count += 1
                at += len(keys)
            else:
                at += 1
    return count
