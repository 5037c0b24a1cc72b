"""Finds the lines that are one row of a table, because their cells are wrapped.

Ruled lines below cells divide rows. Otherwise lines of one column that are as close as the lines of
a cell are in one row, if other lines are farther apart; if all are equally far apart, the texts
decide. Numbers never leave their row.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from indexer_svc.parsers.pdf.layout.row_pieces import MAX_LEADING, MIN_PITCH, TableRow, is_number
from indexer_svc.parsers.pdf.layout.words import Word
from indexer_svc.parsers.pdf.page_content import RuledLine

# For one pair of close lines with texts in the same columns, so many others have fewer texts.
_MIN_WRAPPED = 4
# The header of a table has at most so many rows, and at most so many lines if all are bold.
MAX_HEADER_ROWS = 4
_MAX_HEADER_LINES = 8
# A ruled line that is at least so long, relative to the table, divides rows.
_WIDE_LINE = 0.6
_SAME_LINE = 0.5
# The lines of two cells beside each other are at most so many points apart.
_SAME_CELL_EDGE = 3.0
_SENTENCE_ENDS = frozenset(".!?\u3002\uff01\uff1f")


def _top(rule: RuledLine) -> float:
    return rule.top


def wide_lines(rules: Sequence[RuledLine], left: float, right: float) -> tuple[list[float], bool]:
    """Returns the y of the ruled lines that are nearly as wide as a table, from the top down.

    The second value is True if these are the lines of single cells, which touch each other. The
    edges of boxes around columns of text do not.
    """
    lines: dict[float, list[tuple[float, float]]] = {}
    for rule in sorted(rules, key=_top):
        start, end = max(rule.left, left), min(rule.right, right)
        if rule.bottom - rule.top < 1 and end > start:
            y = next((y for y in reversed(lines) if rule.top - y < _SAME_LINE), rule.top)
            lines.setdefault(y, []).append((start, end))
    wide = {
        y: sorted(parts)
        for y, parts in lines.items()
        if sum(end - start for start, end in parts) > _WIDE_LINE * (right - left)
    }
    are_cells = all(
        len(parts) > 1
        and all(after - end <= _SAME_CELL_EDGE for (_, end), (after, _) in pairwise(parts))
        for parts in wide.values()
    )
    return list(wide), bool(wide) and are_cells


def lines_below(rows: Sequence[TableRow], ys: Sequence[float]) -> list[bool]:
    """Returns for each row if a wide ruled line is between it and the next row."""
    below = []
    for row, after in pairwise(rows):
        low, high = row.last, after.first - 0.3 * after.size
        below.append(bisect_right(ys, high) > bisect_right(ys, low))
    return [*below, False]


def named_rows(grid: Sequence[Sequence[Sequence[Word]]], lines: Sequence[bool]) -> int:
    """Returns how many lines at the top are the header for certain: 0 if that is not known."""
    bold = 0
    for row in grid:
        words = [word for cell in row for word in cell]
        if not words or not all(word.font.is_bold for word in words):
            break
        bold += 1
    if 0 < bold <= _MAX_HEADER_LINES and bold < len(grid):
        return bold
    ruled = sum(lines)
    first = lines.index(True) + 1 if ruled else 0
    if 0 < first <= MAX_HEADER_ROWS and first < len(grid):
        return first
    return 0


def row_groups(
    rows: Sequence[TableRow],
    cells: Sequence[Sequence[str]],
    lines: Sequence[bool],
    names: int,
    *,
    are_cells: bool,
) -> list[list[int]]:
    """Returns the lines of each row of the table.

    Ruled lines below cells divide the rows. Lines across the table may also divide groups of rows.

    Lines of one column that are as close as the lines of a cell are in one row, if other lines are
    farther apart. Otherwise the texts decide.
    """
    count = len(rows)
    least = 0.0 if are_cells else 0.5 * (_row_estimate(cells) - 1)
    if sum(lines) >= max(2, least):
        return _split([not line for line in lines[:-1]], cells)
    links = [False] * (count - 1)
    limit = _cell_pitch(rows, cells)
    if limit is None:
        above = cells[0]
        for index in range(1, count):
            pitch = (rows[index].first - rows[index - 1].last) / rows[index].size
            links[index - 1] = index != names and _continues(above, cells[index], pitch)
            above = cells[index]
    else:
        are_wrapped = _are_close_lines_wrapped(rows, cells, limit)
        for column in range(len(cells[0])):
            filled = [index for index in range(count) if cells[index][column]]
            for upper, lower in pairwise(filled):
                distance = (rows[lower].first - rows[upper].last) / rows[upper].size
                if distance <= limit and (
                    _may_be_one_cell(cells[upper], cells[lower], column, are_wrapped=are_wrapped)
                ):
                    links[upper:lower] = [True] * (lower - upper)
    if names:
        links[names - 1] = False
    return _split(links, cells)


def _row_estimate(cells: Sequence[Sequence[str]]) -> int:
    """Returns the number of lines with a text in the column that has most texts."""
    return max(sum(bool(text) for text in column) for column in zip(*cells, strict=True))


def _may_be_one_cell(
    above: Sequence[str], below: Sequence[str], column: int, *, are_wrapped: bool
) -> bool:
    """Returns True if the texts of two close lines in a column may be in one cell.

    Two lines with texts in the same columns are two rows, unless close lines are wrapped cells and
    no text of the upper line ends a sentence.
    """
    if is_number(above[column]) or is_number(below[column]):
        return False
    if not _are_alike(above, below):
        return True
    return are_wrapped and not any(text and text[-1] in _SENTENCE_ENDS for text in above)


def _are_alike(above: Sequence[str], below: Sequence[str]) -> bool:
    """Returns True if two lines have texts in the same columns, as two rows of a table have."""
    same = [bool(text) for text in above] == [bool(text) for text in below]
    return same and sum(map(bool, above)) >= 2 and bool(above[0])


def _are_close_lines_wrapped(
    rows: Sequence[TableRow], cells: Sequence[Sequence[str]], limit: float
) -> bool:
    """Returns True if nearly all lines that are close to the line above have fewer texts than it.

    Then space divides the rows of the table, and all cells of a row may be wrapped. In other tables
    space divides groups of rows.
    """
    alike = wrapped = 0
    for index in range(1, len(rows)):
        if (rows[index].first - rows[index - 1].last) / rows[index].size > limit:
            continue
        if _are_alike(cells[index - 1], cells[index]):
            alike += 1
        else:
            wrapped += 1
    return wrapped >= _MIN_WRAPPED * alike


def _cell_pitch(rows: Sequence[TableRow], cells: Sequence[Sequence[str]]) -> float | None:
    """Returns how far apart the lines of one cell are at most, in font sizes.

    Returns None if the distances of lines do not show which of them are in one cell.
    """
    distances = []
    for column in range(len(cells[0])):
        distances += [
            (rows[index + 1].first - rows[index].last) / rows[index].size
            for index in range(len(rows) - 1)
            if cells[index][column] and cells[index + 1][column]
        ]
    distances = sorted(distance for distance in distances if distance >= MIN_PITCH)
    if not distances or distances[0] > MAX_LEADING * 1.2:
        return None
    limit = 1.1 * distances[0]
    larger = [distance for distance in distances if distance > 1.15 * distances[0]]
    return limit if len(larger) >= 2 else None


def _split(links: Sequence[bool], cells: Sequence[Sequence[str]]) -> list[list[int]]:
    """Returns the lines in groups. A group with two numbers in one column is not one row."""
    groups = [[0]]
    for index, link in enumerate(links, start=1):
        if link:
            groups[-1].append(index)
        else:
            groups.append([index])
    result = []
    for group in groups:
        columns = zip(*(cells[index] for index in group), strict=True)
        numbers = (sum(map(is_number, column)) for column in columns)
        if len(group) > 1 and max(numbers) > 1:
            result += [[index] for index in group]
        else:
            result.append(group)
    return result


def _continues(above: Sequence[str], row: Sequence[str], pitch: float) -> bool:
    """Returns True if a row continues the wrapped cells of the row above.

    All rows are equally far apart, so only their texts can show it.
    """
    filled = [index for index, text in enumerate(row) if text]
    if not filled or pitch > MAX_LEADING:
        return False
    if any(is_number(row[index]) for index in filled):
        # Only the numbers of the row itself may follow a label that is wrapped over two lines.
        return bool(row[0]) and row[0][0].islower() and not any(above[1:])
    if row[0]:
        is_open = row[0][0].islower() or above[0].endswith(("-", ",", "(", "/", "&"))
        return bool(above[0]) and is_open and len(filled) == 1
    if not all(above[index] for index in filled):
        return False
    return len(filled) == 1 or all(
        row[index][0].islower() or above[index][-1] in "-,(/&" for index in filled
    )
