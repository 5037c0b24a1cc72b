"""Finds tables whose cells are divided by ruled lines.

Lines that touch each other make a grid. The coordinates of its lines divide the grid into
elementary cells. Where no line divides two elementary cells, they are one merged cell, and its text
is repeated in each of them: so each row and each column of the table can be read on its own. A word
belongs to the cell in which its centre lies.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from indexer_svc.parsers.pdf.layout.lines import TextRow, line_text, rows_of
from indexer_svc.parsers.pdf.layout.paragraphs import joined
from indexer_svc.parsers.pdf.layout.row_pieces import NUMBER
from indexer_svc.parsers.pdf.layout.tables import PdfTable, cell_text
from indexer_svc.parsers.pdf.layout.words import Word
from indexer_svc.parsers.pdf.page_content import RuledLine

# Lines that are at most this far apart, in points, are one line. Cells that have borders of their
# own stand up to 2 pixels apart.
_TOLERANCE = 3.0
# A line divides two cells if it runs along at least this share of their common side.
_MIN_COVER = 0.6
# A page with more lines than this is a drawing.
_MAX_LINES = 600
_MAX_CELLS = 20_000
# The text of a merged cell is repeated if it has at most this many characters.
_MAX_REPEATED_CHARS = 200
# A grid in which fewer cells have text is a drawing, such as the background of a plot.
_MIN_FILLED_CELLS = 0.15
# A grid of few cells with long texts divides a page into parts, and is no table.
_MAX_FRAME_CELLS = 4
_MAX_FRAME_CHARS = 400
# A grid whose cells are nearly all merged is a drawing of boxes.
_MIN_CELLS = 0.3
# Words that are so small, in points, cannot be read on paper, and are labels of a drawing.
_MIN_WORD_SIZE = 3.0
# Between two lines, so many lines of text in each cell are rows of their own.
_MIN_LINES = 4
# The lines of the first column name rows if this share of them has a line beside it.
_MIN_NAMED = 0.8
# Two lines have an empty line between them if their distance is so much larger than another one.
_MIN_HOLE = 1.7


class _GridLine(NamedTuple):
    """A line at the coordinate `at`, from `start` to `end` in the other direction."""

    at: float
    start: float
    end: float


def ruled_tables(
    rules: Sequence[RuledLine], words: Sequence[Word]
) -> list[tuple[PdfTable, list[Word]]]:
    """Returns the tables that ruled lines enclose, each with the words that it contains."""
    if len(rules) < 4:
        return []
    horizontal = _merged(
        _GridLine(rule.top, rule.left, rule.right)
        for rule in rules
        if rule.right - rule.left > rule.bottom - rule.top
    )
    vertical = _merged(
        _GridLine(rule.left, rule.top, rule.bottom)
        for rule in rules
        if rule.right - rule.left <= rule.bottom - rule.top
    )
    if not horizontal or not vertical or len(horizontal) + len(vertical) > _MAX_LINES:
        return []
    tables = []
    free = [word for word in words if word.size >= _MIN_WORD_SIZE]
    for grid in _grids(horizontal, vertical):
        found = _table(grid, free)
        if found is not None:
            tables.append(found)
            taken = set(map(id, found[1]))
            free = [word for word in free if id(word) not in taken]
    return tables


def _merged(spans: Iterable[_GridLine]) -> list[_GridLine]:
    """Returns the spans, with those on the same line that touch each other joined."""
    merged: list[_GridLine] = []
    levels: list[list[_GridLine]] = []
    for span in sorted(spans):
        if levels and span.at - levels[-1][0].at <= _TOLERANCE / 2:
            levels[-1].append(span)
        else:
            levels.append([span])
    for level in levels:
        level.sort(key=lambda span: span.start)
        current = level[0]
        for span in level[1:]:
            if span.start - current.end <= _TOLERANCE:
                current = _GridLine(current.at, current.start, max(current.end, span.end))
            else:
                merged.append(current)
                current = span
        merged.append(current)
    return merged


class _Grid(NamedTuple):
    horizontal: list[_GridLine]
    vertical: list[_GridLine]


def _grids(horizontal: Sequence[_GridLine], vertical: Sequence[_GridLine]) -> list[_Grid]:
    """Returns the groups of lines that touch each other, the largest first."""
    parents = list(range(len(horizontal) + len(vertical)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    for row, across in enumerate(horizontal):
        low, high = across.start - _TOLERANCE, across.end + _TOLERANCE
        for column, down in enumerate(vertical, start=len(horizontal)):
            if (
                low <= down.at <= high
                and down.start - _TOLERANCE <= across.at <= down.end + _TOLERANCE
            ):
                parents[root(row)] = root(column)
    groups: dict[int, _Grid] = {}
    for index, span in enumerate((*horizontal, *vertical)):
        group = groups.setdefault(root(index), _Grid([], []))
        group[index >= len(horizontal)].append(span)
    return sorted(groups.values(), key=lambda grid: -len(grid.horizontal) - len(grid.vertical))


def _table(grid: _Grid, words: Sequence[Word]) -> tuple[PdfTable, list[Word]] | None:
    """Returns the table of a grid and its words, or None if the grid is no table."""
    if len(grid.horizontal) < 2 or not grid.vertical:
        return None
    sides = (edge for span in grid.horizontal for edge in (span.start, span.end))
    ends = (edge for span in grid.vertical for edge in (span.start, span.end))
    xs = _levels([*(span.at for span in grid.vertical), *sides])
    ys = _levels([*(span.at for span in grid.horizontal), *ends])
    if len(xs) < 3 or len(ys) < 3 or (len(xs) - 1) * (len(ys) - 1) > _MAX_CELLS:
        return None
    inside: dict[tuple[int, int], list[Word]] = {}
    contained = []
    for word in words:
        x, y = (word.left + word.right) / 2, (word.top + word.bottom) / 2
        if xs[0] <= x <= xs[-1] and ys[0] <= y <= ys[-1]:
            row, column = bisect_right(ys, y) - 1, bisect_right(xs, x) - 1
            place = min(row, len(ys) - 2), min(column, len(xs) - 2)
            inside.setdefault(place, []).append(word)
            contained.append(word)
    merged = _merged_cells(grid, xs, ys)
    texts: dict[tuple[int, int], list[Word]] = {}
    for place, cell_words in inside.items():
        texts.setdefault(merged[place], []).extend(cell_words)
    cell_count = len(set(merged.values()))
    char_count = sum(len(word.text) for word in contained)
    if cell_count < 4 or len(texts) < max(2, _MIN_FILLED_CELLS * cell_count):
        return None
    if cell_count <= _MAX_FRAME_CELLS and char_count > _MAX_FRAME_CHARS * cell_count:
        return None
    divided = sum(
        len({merged[row, column] for column in range(len(xs) - 1)}) > 1
        for row in range(len(ys) - 1)
    )
    if divided < max(2, 0.5 * (len(ys) - 1)) or cell_count < _MIN_CELLS * len(merged):
        return None
    header_rows = _header_rows(merged, texts, len(ys) - 1, len(xs) - 1)
    rows = []
    long_cells = {
        place
        for place, cell_words in texts.items()
        if sum(len(word.text) for word in cell_words) > _MAX_REPEATED_CHARS
    }
    for row in range(len(ys) - 1):
        places = [merged[row, column] for column in range(len(xs) - 1)]
        rows += _row_lines(
            [
                [] if place in long_cells and place != (row, column) else texts.get(place, [])
                for column, place in enumerate(places)
            ],
            xs[1:],
        )
    return PdfTable(rows, header_rows, xs[0], ys[0], xs[-1], ys[-1], xs), contained


def _row_lines(cells: Sequence[Sequence[Word]], rights: Sequence[float]) -> list[list[str]]:
    """Returns the rows between two ruled lines: usually one.

    Some tables have lines between their columns only. Their cells seem to have as many lines as the
    table has rows. Then each line is a row, so that the numbers of a row stay together. If some
    cells have more lines than others, a row begins at each line of the first column. `rights` are
    the right edges of the columns.
    """
    texts = [cell_text(cell) for cell in cells]
    if not any(len(cell) > 1 for cell in cells):
        return [texts]
    lines = [rows_of(cell) if cell else [] for cell in cells]
    most = max(map(len, lines))
    full = [column for column in lines if len(column) == most]
    has_numbers = any(
        len(column) > 1 and all(NUMBER.fullmatch(line_text(line.words)) for line in column)
        for column in lines
    )
    filled = [column for column in lines if column]
    if len(full) > 1 and (has_numbers or (most >= _MIN_LINES and len(full) == len(filled))):
        starts = full[0]
    elif _names_rows(lines, rights[0]):
        starts = lines[0]
    else:
        return [texts]
    is_wrapped = starts is lines[0] and len(full) < len(filled)
    baselines = [line.baseline for line in starts]
    size = starts[0].size
    rows = [[""] * len(cells) for _ in baselines]
    for at, column in enumerate(lines):
        for line in column:
            row = min(range(len(rows)), key=lambda index: abs(baselines[index] - line.baseline))
            if abs(baselines[row] - line.baseline) > 0.5 * size:
                row = bisect_right(baselines, line.baseline) - 1
                if not is_wrapped or row < 0:
                    return [texts]
            rows[row][at] = joined(rows[row][at], line_text(line.words))
    return rows


def _names_rows(lines: Sequence[Sequence[TextRow]], right: float) -> bool:
    """Returns True if each line of the first column names a row of its own.

    Most of its lines then have a line beside them in another column. And its lines are no wrapped
    text: either the first word of the next line would have fitted before `right`, the edge of the
    column, or the column is empty beside the wrapped lines of other columns.
    """
    first, *others = lines
    if len(first) < _MIN_LINES:
        return False
    size = first[0].size
    beside = [line.baseline for column in others for line in column]
    named = sum(any(abs(line.baseline - other) < 0.3 * size for other in beside) for line in first)
    unbroken = sum(
        line.right + after.words[0].right - after.left + 0.3 * size < right
        for line, after in pairwise(first)
    )
    distances = [after.baseline - line.baseline for line, after in pairwise(first)]
    has_holes = max(distances) > _MIN_HOLE * min(distances)
    return named >= _MIN_NAMED * len(first) and (
        has_holes or unbroken >= _MIN_NAMED * len(distances)
    )


def _levels(values: Iterable[float]) -> list[float]:
    """Returns values in order, with those that are close to each other as one."""
    levels: list[float] = []
    for value in sorted(values):
        if not levels or value - levels[-1] > _TOLERANCE:
            levels.append(value)
    return levels


def _merged_cells(
    grid: _Grid, xs: Sequence[float], ys: Sequence[float]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns for each elementary cell the first cell of the merged cell that it belongs to."""
    column_count, row_count = len(xs) - 1, len(ys) - 1
    across = _covered(grid.horizontal, ys, xs)
    down = _covered(grid.vertical, xs, ys)
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for row in range(row_count):
        for column in range(column_count):
            place = row, column
            if column and (column, row) not in down:
                first[place] = first[row, column - 1]
            elif row and (row, column) not in across:
                first[place] = first[row - 1, column]
            else:
                first[place] = place
    return first


def _covered(
    spans: Sequence[_GridLine], levels: Sequence[float], steps: Sequence[float]
) -> set[tuple[int, int]]:
    """Returns the sides of cells along which a line runs: the index of the line and of the cell."""
    covered: dict[tuple[int, int], float] = {}
    for span in spans:
        level = bisect_right(levels, span.at + _TOLERANCE / 2) - 1
        for index in range(max(0, bisect_right(steps, span.start) - 1), len(steps) - 1):
            if steps[index] > span.end:
                break
            length = min(span.end, steps[index + 1]) - max(span.start, steps[index])
            covered[level, index] = covered.get((level, index), 0.0) + length
    return {
        (level, index)
        for (level, index), length in covered.items()
        if length >= _MIN_COVER * (steps[index + 1] - steps[index])
    }


def _header_rows(
    merged: dict[tuple[int, int], tuple[int, int]],
    texts: dict[tuple[int, int], list[Word]],
    row_count: int,
    column_count: int,
) -> int | None:
    """Returns how many rows at the top are bold, or None if none or all are."""
    bold = []
    for row in range(row_count):
        words = [
            word for column in range(column_count) for word in texts.get(merged[row, column], ())
        ]
        bold.append(bool(words) and all(word.font.is_bold for word in words))
        if not bold[-1]:
            break
    count = sum(bold)
    return count if 0 < count < row_count and count <= 3 else None
