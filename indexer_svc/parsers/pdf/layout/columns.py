"""Finds the columns of a page and brings its rows into reading order.

This is a recursive cut of the page along white space, as in the XY-cut algorithm (Nagy and Seth,
1984), with one difference: a table must not be cut. A table has white space between its columns
too, but it is read row by row.

A gutter is a vertical strip that no word of consecutive rows crosses. Each row is a bit mask of the
strips that its words cover, so the union of rows is an "or", and the gutters of a group of rows are
the zeros inside it. The parts beside a gutter are columns of text if both are prose: their rows
have several words and fill the column. They are also columns if their lines are not on the same
baselines, or if they are an alphabetical list that continues in the next column. Everything else
is left as it is, and may be a table.

A table may also stand in one column of a page, and continue in the next one. Then the rows of the
page are tabular on both sides of the gutter, as those of a wide table are. But a wide table begins
and ends on both sides together. So rows with cells beside lines of prose show that a table stands
in its column, and that all rows up to the next row that crosses the gutter are in two columns.
Without prose, two parts of one table have cells at the same places, and the names of the columns
are repeated, or stand above the first part only, or the rows are on different baselines.

The rows of a page become regions: groups of rows that are read one after the other. In a region no
row contains words of two columns.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from indexer_svc.parsers.pdf.layout.justified_lines import even_space
from indexer_svc.parsers.pdf.layout.lines import TextRow, rows_of
from indexer_svc.parsers.pdf.layout.words import Word

# The width of a strip in points. A gutter is never narrower than three strips.
STRIP = 2.0
# A column of text has at least this many rows.
_MIN_COLUMN_ROWS = 3
_MIN_GUTTER_SIZE = 0.75
# At most so many rows of titles end or begin inside a gutter.
_MAX_TITLE_ROWS = 2
_MAX_CUTS = 4
_MIN_PROSE_WORDS = 3.5
_MIN_TEXT_WORDS = 2.5
_MIN_LIST_WORDS = 2.0
_MIN_RUNS = 4
_NUMERAL = re.compile(r"[0-9]{1,5}")
_SENTENCE_ENDS = frozenset(".:;!?)\u3002\uff01\uff1f")
# A row fills a column if it is at least so wide, relative to the column.
_FULL_ROW = 0.7
_MIN_FULL_ROWS = 0.5
_MAX_ALIGNED_ROWS = 0.4
# This many consecutive rows that are prose on neither side of a gutter belong to a wide table.
_WIDE_TABLE_ROWS = 3
_CELL_GAP = 1.2
_MAX_PAGE_STRIPS = 8_192
_SAME_SIZE = 0.5
# So many lines of prose with at least so many rows with cells beside them are two columns.
_MIN_PROSE_LINES = 4
_MIN_ROWS_BESIDE = 3
# Two tables beside each other begin or end at heights that differ by more font sizes than these.
_MAX_APART = 4.0
# The parts of a table have several cells in at least this share of their lines.
_MIN_CELL_ROWS = 0.4
# The lines of a ruled table are about so high, in points. More lines are not counted.
_TABLE_LINE = 14.0
_MAX_LINE_COUNT = 100
# The rows of a table are at most this many font sizes apart.
_MAX_ROW_PITCH = 3.2
# The columns of a page have nearly the same width: the narrower one is at least so wide.
_MIN_SAME_WIDTH = 0.7
# The lines of a title or paragraph are at most this many font sizes apart.
_MAX_LEADING = 1.45
_BULLETS = frozenset("\u2022\u25cf\u25aa\u25e6\u2023\u2013-*\u25a0\u25ba\u27a2\u2713\u00b7")


class _ColumnSpan(NamedTuple):
    """Rows `start` to `end` in which the strip around `x` is a gutter between columns."""

    start: int
    end: int
    x: float


_AreColumns = Callable[["_Side", "_Side"], bool]


def regions_of(rows: Sequence[TextRow]) -> list[list[TextRow]]:
    """Returns the rows of a page, from the top down, as regions in reading order.

    Rows are divided at gutters. Each word is in exactly one row of exactly one region.
    """
    return _cut(rows, 0)


def _cut(rows: Sequence[TextRow], depth: int) -> list[list[TextRow]]:
    spans = [] if depth == _MAX_CUTS else _column_spans(rows)
    regions: list[list[TextRow]] = []
    position = 0
    for span in spans:
        if span.start > position:
            regions.append(list(rows[position : span.start]))
        inside = [word for row in rows[span.start : span.end] for word in row.words]
        for column in (
            [word for word in inside if word.left < span.x],
            [word for word in inside if word.left >= span.x],
        ):
            # The rows of a column are made again, since its baselines differ from those of others.
            regions += _cut(rows_of(column), depth + 1)
        position = span.end
    if position < len(rows):
        regions.append(list(rows[position:]))
    return regions


def mask_of(words: Sequence[Word]) -> int:
    """Returns the strips that words cover, as the bits of a number."""
    mask = 0
    for word in words:
        first, last = int(word.left / STRIP), int(word.right / STRIP)
        if first < 0 or last > _MAX_PAGE_STRIPS:
            first, last = _inside(first), _inside(last)
        mask |= ((1 << (last - first + 1)) - 1) << first
    return mask


def _row_mask(row: TextRow) -> int:
    """Returns the strips that a row covers. A row with equal spaces is one line and covers them."""
    mask = mask_of(row.words)
    if not even_space(row.words):
        return mask
    first = (mask & -mask).bit_length() - 1
    return (1 << mask.bit_length()) - (1 << first)


def _left(word: Word) -> float:
    return word.left


def _inside(strip: int) -> int:
    return min(max(strip, 0), _MAX_PAGE_STRIPS)


def zeros_inside(mask: int) -> list[tuple[int, int]]:
    """Returns the runs of zeros between ones: the first strip and the strip after the last."""
    bits = bin(mask)[2:][::-1]
    runs: list[tuple[int, int]] = []
    at = bits.find("1")
    while True:
        start = bits.find("0", at)
        end = bits.find("1", start) if start >= 0 else -1
        if end < 0:
            return runs
        runs.append((start, end))
        at = end


def _column_spans(rows: Sequence[TextRow]) -> list[_ColumnSpan]:
    """Returns the spans of rows that are divided into columns, from the top down."""
    if len(rows) < _MIN_COLUMN_ROWS:
        return []
    masks = [_row_mask(row) for row in rows]
    strips = _candidate_strips(rows)
    gutters: _Gutters = {}
    # The page numbers of a table of contents look like a column. So it must be recognised first.
    for are_columns in (_are_contents, _are_columns):
        best: list[_ColumnSpan] = []
        best_rows = 0
        for strip in strips:
            spans = _spans_at(rows, masks, strip, are_columns, gutters)
            count = sum(span.end - span.start for span in spans)
            if count > best_rows:
                best, best_rows = spans, count
        if best:
            return best
    return []


def _candidate_strips(rows: Sequence[TextRow]) -> list[int]:
    """Returns the strips that are covered by fewer rows than the strips on both sides.

    Beside the middle of the strips that fewest rows cover, it returns the middle of those that few
    more rows cover. If the end of a title covers a part of a gutter, only the second one is in the
    middle of the gutter. A ruled table counts as one row, because it may stand over both columns,
    and then as all its lines, because it may fill a column.
    """
    candidates = _strips_between(rows, counts_lines=False)
    if any(_line_count(word) > 1 for row in rows for word in row.words):
        candidates += _strips_between(rows, counts_lines=True)
    return list(dict.fromkeys(candidates))


def _strips_between(rows: Sequence[TextRow], *, counts_lines: bool) -> list[int]:
    """Returns the candidates of `_candidate_strips`, with one row or all lines for a table."""
    last = _inside(int(max(row.right for row in rows) / STRIP))
    changes = [0] * (last + 2)
    for row in rows:
        for word in row.words:
            first, end = int(word.left / STRIP), int(word.right / STRIP) + 1
            count = _line_count(word) if counts_lines else 1
            changes[first if 0 <= first <= last else _inside(min(first, last))] += count
            changes[end if 0 <= end <= last else _inside(min(end, last + 1))] -= count
    cover = list(accumulate(changes))
    highest_before = list(accumulate(cover, max))
    highest_after = list(accumulate(reversed(cover), max))[::-1]
    candidates: list[int] = []
    run: list[int] = []
    for strip, count in enumerate(cover):
        peak = min(highest_before[strip], highest_after[strip])
        if peak - count >= _MIN_COLUMN_ROWS and count <= 0.6 * peak:
            run.append(strip)
            continue
        if run:
            lowest = min(cover[index] for index in run)
            for limit in (lowest, lowest + _MAX_TITLE_ROWS):
                deepest = [index for index in run if cover[index] <= limit]
                candidates.append(deepest[len(deepest) // 2])
            run = []
    return candidates


def _line_count(word: Word) -> int:
    """Returns 1 for a word of text, and about the number of its lines for a ruled table."""
    height = word.bottom - word.top
    return 1 if height < 3 * word.size else max(1, min(int(height / _TABLE_LINE), _MAX_LINE_COUNT))


def _spans_at(
    rows: Sequence[TextRow],
    masks: Sequence[int],
    strip: int,
    are_columns: _AreColumns,
    gutters: "_Gutters",
) -> list[_ColumnSpan]:
    """Returns the spans of rows in which `strip` lies in a gutter between columns.

    `gutters` has the gutters that were examined before, because each strip is examined twice.
    """
    spans: list[_ColumnSpan] = []
    start = 0
    bit = 1 << strip
    for index in range(len(rows) + 1):
        if (
            index < len(rows)
            and not masks[index] & bit
            and _is_wide(masks[index], strip, rows[index])
        ):
            continue
        if index - start >= _MIN_COLUMN_ROWS:
            key = start, index, strip
            if key not in gutters:
                gutters[key] = _gutter_at(rows, masks, start, index, strip)
            spans += _checked_spans(rows, start, index, gutters[key], are_columns)
        start = index + 1
    return spans


def _is_wide(mask: int, strip: int, row: TextRow) -> bool:
    """Returns True if the space of a row around a strip is no space between two words of a line.

    A heading may stand beside the text of the other column. So the smaller word decides.
    """
    before, after = mask & ((1 << strip) - 1), mask >> strip
    if not before or not after:
        return True
    space = strip - before.bit_length() + (after & -after).bit_length() - 1
    width = (space + 1) * STRIP
    if width >= _MIN_GUTTER_SIZE * row.size or width < _MIN_GUTTER_SIZE * row.smallest:
        return width >= _MIN_GUTTER_SIZE * row.size
    at = bisect_left(row.words, strip * STRIP, key=_left)
    size = min(word.size for word in row.words[max(0, at - 1) : at + 1])
    return width >= _MIN_GUTTER_SIZE * size


def _gutter_at(
    rows: Sequence[TextRow], masks: Sequence[int], start: int, end: int, strip: int
) -> "_Gutter | None":
    """Returns the gutter of rows `start` to `end` around `strip`, or None if there is none."""
    union = 0
    for mask in masks[start:end]:
        union |= mask
    gutter = next((run for run in zeros_inside(union) if run[0] <= strip < run[1]), None)
    if gutter is None:
        return None
    x = (gutter[0] + gutter[1]) / 2 * STRIP
    left = _Side([[word for word in row.words if word.left < x] for row in rows[start:end]])
    right = _Side([[word for word in row.words if word.left >= x] for row in rows[start:end]])
    size = sorted(row.size for row in rows[start:end])[(end - start) // 2]
    if right.left - left.right < _MIN_GUTTER_SIZE * size:
        return None
    if _are_parts_of_table(left, right):
        return _Gutter(x, left, right, are_parts_of_table=True)
    is_beside_prose = _is_beside_prose(left, right) or _is_beside_prose(right, left)
    ranges = _without_wide_tables(left, right, may_be_apart=is_beside_prose)
    return _Gutter(x, left, right, is_beside_prose=is_beside_prose, ranges=ranges)


def _checked_spans(
    rows: Sequence[TextRow],
    start: int,
    end: int,
    gutter: "_Gutter | None",
    are_columns: _AreColumns,
) -> list[_ColumnSpan]:
    """Returns the parts of rows `start` to `end` that are two columns beside a gutter."""
    if gutter is None:
        return []
    x, left, right = gutter.x, gutter.left, gutter.right
    if gutter.are_parts_of_table:
        return [_ColumnSpan(start, end, x)]
    spans = []
    for first, last in gutter.ranges:
        top = first
        while top < last and not right.parts[top] and _continues_above(rows, start + top, x):
            top += 1
        left_part, right_part = left.part(top, last), right.part(top, last)
        if are_columns(left_part, right_part) or (
            gutter.is_beside_prose and left_part.filled and right_part.filled
        ):
            spans.append(_ColumnSpan(start + top, start + last, x))
    return spans


def _continues_above(rows: Sequence[TextRow], index: int, x: float) -> bool:
    """Returns True if a row is the last line of a title or paragraph that stands above columns.

    The line above it has words on both sides of `x`, the middle of the gutter.
    """
    if not index:
        return False
    above, row = rows[index - 1], rows[index]
    return (
        above.words[0].left < x < above.right
        and abs(above.size - row.size) < _SAME_SIZE
        and row.baseline - above.baseline < _MAX_LEADING * row.size
    )


class _Side:
    """The words of consecutive rows that are on one side of a gutter."""

    def __init__(self, parts: Sequence[Sequence[Word]]) -> None:
        self.parts = parts
        filled = [part for part in parts if part]
        self.filled = filled
        self.left = min((part[0].left for part in filled), default=0.0)
        self.right = max((part[-1].right for part in filled), default=0.0)
        self.width = max(self.right - self.left, 1.0)
        self._stretches: list[tuple[float, float]] = []

    def part(self, start: int, end: int) -> "_Side":
        return _Side(self.parts[start:end])

    def is_prose_row(self, index: int) -> bool | None:
        """Returns None for a row without words on this side."""
        part = self.parts[index]
        if not part:
            return None
        return part[-1].right - part[0].left >= _FULL_ROW * self.width and not _has_cells(part)

    @property
    def second_cell(self) -> tuple[float, float]:
        """Where the second cells of most rows begin, and where the rows with cells end.

        Both are distances from the left edge.
        """
        places = []
        for part in self.filled:
            gaps = (
                after.left
                for word, after in pairwise(part)
                if after.left - word.right > _CELL_GAP * word.size
            )
            start = next(gaps, None)
            if start is not None:
                places.append((start - self.left, part[-1].right - self.left))
        if not places:
            return 0.0, 0.0
        starts, ends = (sorted(values) for values in zip(*places, strict=True))
        return starts[len(starts) // 2], ends[len(ends) // 2]

    def is_full_line(self, part: Sequence[Word]) -> bool:
        """Returns True if words are a line of prose from the left edge nearly to the right one."""
        return (
            len(part) > _MIN_PROSE_WORDS
            and part[0].left - self.left < part[0].size
            and part[-1].right - part[0].left >= _FULL_ROW * self.width
            and not _has_cells(part)
        )

    def without_prose_around(self, start: int, end: int) -> tuple[float, float]:
        """Returns the baselines of the first and last line of the text around some rows.

        This text has no full lines of prose, and no empty space that is higher than a row.
        """
        if not self._stretches:
            self._stretches = self._text_without_prose()
        return self._stretches[start][0], self._stretches[end - 1][1]

    def _text_without_prose(self) -> list[tuple[float, float]]:
        """Returns for each row the first and last baseline of the text without prose around it."""
        ends: list[list[float]] = []
        for parts in (self.parts, self.parts[::-1]):
            baselines = []
            baseline = last = float("-inf")
            is_prose = False
            for part in parts:
                if part:
                    first, was_prose, is_prose = part[0], is_prose, self.is_full_line(part)
                    pitch = abs(first.baseline - last)
                    if is_prose or was_prose or pitch > _MAX_ROW_PITCH * first.size:
                        baseline = first.baseline
                    last = first.baseline
                baselines.append(baseline)
            ends.append(baselines)
        return list(zip(ends[0], reversed(ends[1]), strict=True))

    @property
    def is_prose(self) -> bool:
        """True if the rows have several words and most of them fill the column."""
        count = len(self.filled)
        full = sum(part[-1].right - part[0].left >= _FULL_ROW * self.width for part in self.filled)
        words = sum(map(len, self.filled))
        cells = sum(map(_has_cells, self.filled))
        return (
            words >= _MIN_PROSE_WORDS * count
            and full >= _MIN_FULL_ROWS * count
            and cells <= 0.5 * count
        )

    @property
    def is_text(self) -> bool:
        """True if most rows have several words and no wide gaps."""
        count = len(self.filled)
        return sum(map(len, self.filled)) >= _MIN_TEXT_WORDS * count and (
            sum(map(_has_cells, self.filled)) <= 0.2 * count
        )

    @property
    def is_list(self) -> bool:
        """True if many rows begin with a bullet."""
        bullets = sum(part[0].text[0] in _BULLETS for part in self.filled)
        return bullets >= 2 and bullets >= 0.3 * len(self.filled)

    @property
    def last_numbers(self) -> list[int]:
        """The page numbers at the ends of rows that begin with another word."""
        return [
            int(part[-1].text)
            for part in self.filled
            if len(part) > 1 and _NUMERAL.fullmatch(part[-1].text)
        ]

    @property
    def first_words(self) -> list[str]:
        return [part[0].text.casefold() for part in self.filled if part[0].text[0].isalpha()]


class _Gutter(NamedTuple):
    """A gutter at `x`, the words on both sides of it, and which rows beside it may be columns."""

    x: float
    left: _Side
    right: _Side
    are_parts_of_table: bool = False
    is_beside_prose: bool = False
    ranges: Sequence[tuple[int, int]] = ()


# The gutters around strips, by the first row, the row after the last one, and the strip.
_Gutters = dict[tuple[int, int, int], _Gutter | None]


def _has_cells(part: Sequence[Word]) -> bool:
    for word, after in pairwise(part):
        if after.left - word.right > _CELL_GAP * word.size:
            return not even_space(part)
    return False


def _without_wide_tables(left: _Side, right: _Side, *, may_be_apart: bool) -> list[tuple[int, int]]:
    """Returns the ranges of rows that remain when wide tables are taken out.

    If `may_be_apart`, tables that stand beside each other in two columns are not taken out.
    """
    count = len(left.parts)
    tabular = [
        left.is_prose_row(index) is False and right.is_prose_row(index) is False
        for index in range(count)
    ]
    ranges = []
    start = index = 0
    while index < count:
        after = index
        while after < count and tabular[after]:
            after += 1
        if (
            after - index >= _WIDE_TABLE_ROWS
            and after - index < count
            and not (may_be_apart and _are_apart(left, right, index, after))
        ):
            if index > start:
                ranges.append((start, index))
            start = after
        index = max(after, index + 1)
    if start < count:
        ranges.append((start, count))
    return ranges


def _are_apart(left: _Side, right: _Side, start: int, end: int) -> bool:
    """Returns True if rows that look like those of a wide table are parts of two tables.

    These begin or end at different heights, because lines of prose are beside one of them.
    """
    rows = [word for side in (left, right) for part in side.parts[start:end] for word in part[:1]]
    limit = _MAX_APART * max(word.size for word in rows)
    (top, bottom), (other_top, other_bottom) = (
        side.without_prose_around(start, end) for side in (left, right)
    )
    return abs(top - other_top) > limit or abs(bottom - other_bottom) > limit


def _is_beside_prose(side: _Side, other: _Side) -> bool:
    """Returns True if consecutive lines of prose on one side have rows with cells beside them.

    A cell of a table may have many lines, too. But the rows beside it then are not so many as its
    lines, or they have one piece.
    """
    narrow, wide = sorted((side.width, other.width))
    if narrow < _MIN_SAME_WIDTH * wide:
        return False
    lines = cells = beside = 0
    before: Sequence[Word] = ()
    table_bottom = 0.0
    # A ruled table that reaches over the middle stands in no column.
    middle = (min(side.left, other.left) + max(side.right, other.right)) / 2
    is_in_half = other.right < middle or other.left > middle
    for part, other_part in zip(side.parts, other.parts, strict=True):
        if part:
            is_next = before and part[0].baseline - before[0].baseline < _MAX_LEADING * part[0].size
            if not side.is_full_line(part):
                lines = cells = beside = 0
            elif not is_next:
                lines, cells, beside = 1, 0, 0
            else:
                lines += 1
            before = part
        if len(other_part) == 1 and _line_count(other_part[0]) >= _MIN_PROSE_LINES:
            table_bottom = other_part[0].bottom
        elif lines and other_part:
            beside += 1
            cells += _has_cells(other_part)
        if part and part[0].bottom < table_bottom and lines:
            beside += 1
            cells += is_in_half
        if lines >= _MIN_PROSE_LINES and cells >= max(_MIN_ROWS_BESIDE, 0.6 * beside):
            return True
    return False


def _are_parts_of_table(left: _Side, right: _Side) -> bool:
    """Returns True if both sides are parts of one table, which continues in the next column.

    Four columns of one table may be at equal distances, so equal places of cells are not enough.
    """
    sides = left.filled, right.filled
    if min(map(len, sides)) < _MIN_COLUMN_ROWS:
        return False
    cells = []
    for side in sides:
        cells.append([part for part in side if _has_cells(part)])
        if len(cells[-1]) < _MIN_CELL_ROWS * len(side):
            return False
    pairs = list(zip(left.parts, right.parts, strict=True))
    both = [(one, other) for one, other in pairs if one and other]
    is_repeated = any(
        _has_cells(one)
        and [word.text for word in one] == [word.text for word in other]
        and all(word.text[0].isalpha() for word in one)
        for one, other in both
    )
    is_named_once = (
        bool(both)
        and [_is_bold(part) for part in (*both[0], sides[0][-1], sides[1][-1])]
        == [True, False, False, False]
        and both[0][0] is sides[0][0]
    )
    are_apart = len(both) <= _MAX_ALIGNED_ROWS * min(map(len, sides))
    if not (is_repeated or is_named_once or are_apart):
        return False
    if not all(sum(part[0].text[0].isalpha() for part in rows) > 0.5 * len(rows) for rows in cells):
        return False
    return _is_same_place(left.second_cell, right.second_cell)


def _is_bold(part: Sequence[Word]) -> bool:
    return all(word.font.is_bold for word in part)


def _is_same_place(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Returns True if two cells begin or end at the same distance from the edge of their column."""
    return min(abs(one[0] - other[0]), abs(one[1] - other[1])) <= 2 * STRIP


def _are_contents(left: _Side, right: _Side) -> bool:
    """Returns True if both sides are parts of one table of contents."""
    numbers = [left.last_numbers, right.last_numbers]
    fewest = 0.4 * min(len(left.filled), len(right.filled))
    return _is_rising(numbers[0] + numbers[1]) and min(map(len, numbers)) >= max(4, fewest)


def _are_columns(left: _Side, right: _Side) -> bool:
    count = min(len(left.filled), len(right.filled))
    if count < _MIN_COLUMN_ROWS:
        return False
    if left.is_prose and right.is_prose:
        return True
    if left.is_list and right.is_list:
        return True
    if _runs_on(right, left) or _runs_on(left, right):
        return True
    both = sum(bool(one and other) for one, other in zip(left.parts, right.parts, strict=True))
    if both <= _MAX_ALIGNED_ROWS * count and count >= 2 * _MIN_COLUMN_ROWS:
        # The lines of a table's cells are on different baselines too, if the cells are centred.
        return left.is_text and right.is_text
    return _is_alphabetical(left.first_words, right.first_words)


def _runs_on(side: _Side, other: _Side) -> bool:
    """Returns True if a side is prose that runs on in rows in which the other side has words, too.

    In a table, a cell that runs on has empty cells beside its next line. Words beside a definition
    are terms, and belong to it.
    """
    if not side.is_prose or sum(map(len, other.filled)) < _MIN_LIST_WORDS * len(other.filled):
        return False
    runs = count = 0
    before: Sequence[Word] = ()
    for part, other_part in zip(side.parts, other.parts, strict=True):
        if part and before and other_part:
            count += 1
            is_open = before[-1].text[-1] not in _SENTENCE_ENDS
            runs += is_open and (part[0].text[0].islower() or before[-1].text[-1] == "-")
        before = part or before
    return count >= _MIN_RUNS and runs >= 0.5 * count


def _is_rising(numbers: Sequence[int]) -> bool:
    """Returns True if numbers grow like those of a table of contents in two columns."""
    rising = sum(number <= after for number, after in pairwise(numbers))
    return len(numbers) >= 8 and rising >= 0.9 * (len(numbers) - 1)


def _is_alphabetical(left: Sequence[str], right: Sequence[str]) -> bool:
    """Returns True if both columns are one sorted list, like an index.

    The list goes on in the right column. If it goes on in each row instead, the end of the left
    column comes after the start of the right one.
    """
    if len(left) < 8 or len(right) < 8:
        return False
    words = [*left, *right]
    ordered = sum(word <= after for word, after in pairwise(words))
    late, early = left[len(left) * 3 // 4], right[len(right) // 4]
    return ordered >= 0.8 * (len(words) - 1) and late <= early
