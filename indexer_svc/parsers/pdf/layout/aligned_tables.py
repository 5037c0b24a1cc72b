"""Finds tables whose cells are aligned, without ruled lines between the columns.

1. A row is tabular if wide gaps divide it into pieces. Consecutive tabular rows make a group.
   Rows with one piece between them belong to the group: they are wrapped cells, or headings inside
   the table. A line of justified text is no tabular row, however wide its spaces are
   (`justified_lines`).
2. The gutters of a group are the strips that no word of nearly all its tabular rows covers. A few
   rows may cover a gutter, because a heading may span several columns. Between columns of numbers a
   gutter may be as narrow as a space. Between columns of words it may not, and it may be narrower
   than others only if nearly all words after it begin at the same x.
3. Each word goes to the column in which it lies. A piece that covers gutters is repeated in each
   column that it spans if it is in the header. Numbers never leave their row: rows are joined only
   if the lower row has no number and continues the text of the row above.
4. The rows above the first row of numbers are the header, or those above the first ruled line.
   A list of codes or terms has no header: its first row is like all others.

Lists, numbered equations and columns of prose also have aligned gaps. They are recognised by what
is in their columns, and are no tables.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from indexer_svc.parsers.pdf.layout.lines import TextRow, line_text
from indexer_svc.parsers.pdf.layout.paragraphs import joined
from indexer_svc.parsers.pdf.layout.row_pieces import (
    MAX_LEADING,
    NUMBER,
    PIECE_GAP,
    SAME_EDGE,
    Piece,
    TableRow,
    as_table_rows,
    is_number,
    without_leaders,
)
from indexer_svc.parsers.pdf.layout.tables import PdfTable
from indexer_svc.parsers.pdf.layout.words import Word
from indexer_svc.parsers.pdf.layout.wrapped_cells import (
    MAX_HEADER_ROWS,
    lines_below,
    named_rows,
    row_groups,
    wide_lines,
)
from indexer_svc.parsers.pdf.page_content import RuledLine

_MIN_TEXT_GUTTER = 0.6
_MIN_NUMBER_GUTTER = 0.18
# If at least so many words, and nearly all, begin at the same x, the space before them is a gutter.
_MIN_ALIGNED_GUTTER, _MIN_ALIGNED, _MIN_ALIGNED_SHARE = 0.36, 5, 0.9
# Two words of one row that are so far apart are in two columns if a gutter is between them.
_MIN_HEADER_GAP = 0.45
# Words begin at the same x if it differs by at most so many points.
_ALIGNED = 0.8
# Consecutive rows of a table are at most this many font sizes apart.
_MAX_ROW_PITCH = 3.2
_MAX_ROWS_BETWEEN = 2
# The lines of a cell may be more than these if a row of the table has at least so many pieces.
_MIN_PIECES_BESIDE_CELL = 3
_MIN_ROWS = 2
_MAX_COLUMNS = 60
_MIN_ROWS_OF_TWO_COLUMNS = 3
_MAX_HEADER_PITCH = 1.8
_MAX_WORDS_OF_TERM = 5.0
_MAX_WORDS_OF_CELL = 14.0
_YEAR = re.compile(r"(?:FY|Q[1-4]|[12]H)?\s?'?(?:19|20)\d\d[A-Z]?(?:[-/\u2013]\d\d(?:\d\d)?)?")
_MARKER = re.compile(
    r"[\u2022\u25cf\u25aa\u25e6\u2023\u2013\u2014*\u25a0\u25ba\u27a2\u2713\u00b7-]|"
    r"[(\[]?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,6})[.)\]:]{1,2}|\[\w{1,12}\]|\d{1,2}(?:\.\d{1,2}){1,4}\.?"
)
_ITEM_NUMBER = re.compile(r"\d{1,2}")
_EQUATION_NUMBER = re.compile(r"\(\d+[a-z]?(?:[.-]\d+[a-z]?)*\)")
# A part number or a name such as `ATmega16`.
_CODE = re.compile(r"(?=[^\s\d]*\d)(?=\S*[^\W\d_])[^\W\d]\S*")
_MIN_CODES = 0.75
_MIN_ROWS_OF_CODES = 3
# A leader begins where no dot stands before it, so that each run of dots is searched only once.
_LEADER = re.compile(r"(?<![.\u2026])(?<![.\u2026]\s)(?:[.\u2026]\s?){3,}+$")


def aligned_tables(
    rows: Sequence[TextRow], rules: Sequence[RuledLine] = (), *, fixed_is_code: bool = True
) -> list[tuple[int, int, PdfTable]]:
    """Returns the tables among the rows of a region: first row, row after the last, and table.

    `rules` are the ruled lines of the page. If `fixed_is_code`, rows in a font whose characters
    have the same width are code and no table.
    """
    table_rows = as_table_rows(rows)
    tables = []
    start = 0
    while start < len(table_rows):
        end = _group_end(table_rows, start, fixed_is_code)
        found = _table(table_rows, start, end, rules) if end > start else None
        if found is None:
            start = max(end, start + 1)
            continue
        first, start, table = found
        tables.append((table_rows[first].start, table_rows[start - 1].end, table))
    return tables


def _group_end(rows: Sequence[TableRow], start: int, fixed_is_code: bool) -> int:
    """Returns the end of the group that begins at `start`, or `start` if none begins there."""
    if len(rows[start].pieces) < 2 or (fixed_is_code and rows[start].is_code):
        return start
    end = start + 1
    between = 0
    widest = rows[start]
    for index in range(start + 1, len(rows)):
        row, before = rows[index], rows[index - 1]
        if row.first - before.last > _MAX_ROW_PITCH * max(row.size, before.size):
            break
        if len(row.pieces) >= 2 and not (fixed_is_code and row.is_code):
            end = index + 1
            between = 0
            widest = max(widest, row, key=_piece_count)
            continue
        if _is_inside_cell(row, widest, before):
            continue
        between += 1
        if between > _MAX_ROWS_BETWEEN:
            break
    return end if end - start >= _MIN_ROWS else start


def _piece_count(row: TableRow) -> int:
    return len(row.pieces)


def _is_inside_cell(row: TableRow, widest: TableRow, before: TableRow) -> bool:
    """Returns True if a row is a further line of a cell that has many lines.

    It begins where a piece of the row with most pieces begins, and ends before the next one. Lines
    below the first piece may also be text between two tables.
    """
    pieces = widest.pieces
    if len(pieces) < _MIN_PIECES_BESIDE_CELL or len(row.pieces) != 1:
        return False
    if row.first - before.last > MAX_LEADING * row.size:
        return False
    line = row.pieces[0]
    return any(
        abs(line.left - piece.left) < SAME_EDGE * row.size
        and (after is None or line.right < after.left)
        for piece, after in zip(pieces[1:], [*pieces[2:], None], strict=True)
    )


def _table(
    rows: Sequence[TableRow], start: int, end: int, rules: Sequence[RuledLine]
) -> tuple[int, int, PdfTable] | None:
    """Returns the table of a group of rows, with its first row and the row after its last.

    Returns None if the group is no table.
    """
    tabular = [row for row in rows[start:end] if len(row.pieces) >= 2]
    gutters = _gutters([row.pieces for row in tabular], tabular[0].size)
    if not 0 < len(gutters) < _MAX_COLUMNS or not _is_table(
        [_cells(row, gutters) for row in tabular]
    ):
        return None
    start = _with_header_above(rows, start, gutters)
    end = _with_last_wrap(rows, end, gutters)
    left, right = _sides(rows[start:end])
    ys, are_cells = wide_lines(rules, left, right)
    if are_cells:
        end = _with_ruled_wrap(rows, end, ys)
    inside = rows[start:end]
    left, right = _sides(inside)
    merged, header_rows = _merged_rows(
        inside, gutters, lines_below(inside, ys), are_cells=are_cells
    )
    if len(merged) < _MIN_ROWS:
        return None
    top, bottom = inside[0].rows[0].top, inside[-1].rows[-1].bottom
    columns = [left, *((low + high) / 2 for low, high in gutters), right]
    return start, end, PdfTable(merged, header_rows, left, top, right, bottom, columns)


def _gutters(pieces: Sequence[Sequence[Piece]], size: float) -> list[tuple[float, float]]:
    """Returns the strips between the columns of tabular rows, from left to right."""
    count = len(pieces)
    allowed = 0 if count < 4 else max(1, count // 8)
    events = []
    for row in pieces:
        for piece in row:
            for word in piece.words:
                events.append((word.left, 1))
                events.append((word.right, -1))
    events.sort()
    strips = []
    cover = 0
    opened = None
    for x, change in events:
        was = cover
        cover += change
        if was > allowed >= cover:
            opened = x
        elif was <= allowed < cover and opened is not None:
            if x > opened:
                strips.append((opened, x))
            opened = None
    wide = [strip for strip in strips if strip[1] - strip[0] >= _MIN_TEXT_GUTTER * size]
    narrow = [
        strip
        for strip in strips
        if _MIN_NUMBER_GUTTER * size <= strip[1] - strip[0] < _MIN_TEXT_GUTTER * size
    ]
    edges = sorted(wide + narrow)
    wide += [strip for strip in narrow if _is_narrow_gutter(pieces, strip, edges, size)]
    # A gutter that few rows have on both sides is the space beside a single long row.
    return [strip for strip in sorted(wide) if _divides(pieces, strip, max(2, count // 4))]


def _is_narrow_gutter(
    pieces: Sequence[Sequence[Piece]],
    strip: tuple[float, float],
    edges: Sequence[tuple[float, float]],
    size: float,
) -> bool:
    """Returns True if a narrow strip is a gutter. `edges` are all strips, from left to right."""
    if strip[1] - strip[0] >= _MIN_ALIGNED_GUTTER * size and _begin_together(pieces, strip, size):
        return True
    at = edges.index(strip)
    low = edges[at - 1][1] if at else float("-inf")
    high = edges[at + 1][0] if at + 1 < len(edges) else float("inf")
    return _are_numbers(pieces, low, strip[0]) and _are_numbers(pieces, strip[1], high)


def _begin_together(
    pieces: Sequence[Sequence[Piece]], strip: tuple[float, float], size: float
) -> bool:
    """Returns True if the words after a strip begin at its end, whatever is before it.

    The spaces before them differ: numbers after the same word begin at the same x, too. The number
    of a line is no cell.
    """
    aligned = count = wide = marks = 0
    for row in pieces:
        words = [word for piece in row for word in piece.words]
        before = [word for word in words if word.right <= strip[0] + 0.1]
        after = [word.left for word in words if word.left >= strip[1] - 0.1]
        if before and after:
            count += 1
            aligned += min(after) - strip[1] < _ALIGNED
            wide += min(after) - max(word.right for word in before) >= _MIN_TEXT_GUTTER * size
            marks += len(before) == 1 and _is_mark(before[0].text)
    if marks > 0.5 * count:
        return False
    return aligned >= max(_MIN_ALIGNED, _MIN_ALIGNED_SHARE * count) and wide >= 0.3 * count


def _is_mark(text: str) -> bool:
    return bool(_MARKER.fullmatch(text) or _ITEM_NUMBER.fullmatch(text))


def _are_numbers(pieces: Sequence[Sequence[Piece]], low: float, high: float) -> bool:
    words = [
        word
        for row in pieces
        for piece in row
        for word in piece.words
        if word.left >= low - 0.1 and word.right <= high + 0.1
    ]
    numbers = sum(bool(NUMBER.fullmatch(word.text)) for word in words)
    return len(words) >= 2 and numbers >= 0.6 * len(words)


def _divides(pieces: Sequence[Sequence[Piece]], strip: tuple[float, float], least: int) -> bool:
    count = 0
    for row in pieces:
        if row[0].left < strip[0] + 0.1 and row[-1].right > strip[1] - 0.1:
            count += 1
    return count >= min(least, len(pieces))


def _cells(row: TableRow, gutters: Sequence[tuple[float, float]]) -> list[list[Word]]:
    """Returns the words of each column. A piece that covers gutters is in its first column."""
    cells: list[list[Word]] = [[] for _ in range(len(gutters) + 1)]
    middles = [(low + high) / 2 for low, high in gutters]
    for line in row.rows:
        column = -1
        before = None
        words = without_leaders(line)[0]
        gaps = (after.left - word.right for word, after in pairwise(words))
        space = min((gap for gap in gaps if gap > 0), default=0.0)
        for word in words:
            at = bisect_right(middles, (word.left + word.right) / 2)
            edge = gutters[at - 1][1] if at else 0.0
            if before is None or (at > column and _begins_column(before, word, space, edge)):
                column = at
            cells[column].append(word)
            before = word
    return cells


def _begins_column(before: Word, word: Word, space: float, edge: float) -> bool:
    """Returns True if `word` does not continue the cell of the word before it.

    `space` is the narrowest space between words of the row, and `edge` is the x at which the column
    begins.
    """
    gap = word.left - before.right
    if gap > _MIN_ALIGNED_GUTTER * word.size and abs(word.left - edge) < _ALIGNED:
        return True
    if gap > _MIN_TEXT_GUTTER * word.size or gap > max(_MIN_HEADER_GAP * word.size, 1.6 * space):
        return True
    return bool(NUMBER.fullmatch(word.text)) and bool(NUMBER.fullmatch(before.text))


def _text(words: Sequence[Word]) -> str:
    if not words:
        return ""
    lines: list[list[Word]] = [[words[0]]]
    for before, word in pairwise(words):
        if word.left < before.left or word.baseline - before.baseline > 0.8 * word.size:
            lines.append([])
        lines[-1].append(word)
    text = line_text(lines[0])
    for line in lines[1:]:
        text = joined(text, line_text(line))
    return _LEADER.sub("", text).rstrip()


def _is_table(grid: Sequence[Sequence[Sequence[Word]]]) -> bool:
    """Returns True if the columns contain what tables contain."""
    texts = [[_text(cell) for cell in row] for row in grid]
    columns = [[text for text in column if text] for column in zip(*texts, strict=True)]
    row_count = sum(sum(map(bool, row)) >= 2 for row in texts)
    if row_count < _MIN_ROWS or not all(columns) or _is_list(columns):
        return False
    averages = [sum(len(text.split()) for text in column) / len(column) for column in columns]
    if len(columns) > 2:
        return sum(averages) / len(columns) <= _MAX_WORDS_OF_CELL
    numbers = sum(map(is_number, columns[1]))
    return row_count >= _MIN_ROWS_OF_TWO_COLUMNS and (
        numbers >= 0.5 * len(columns[1]) or averages[0] <= _MAX_WORDS_OF_TERM
    )


def _is_list(columns: Sequence[Sequence[str]]) -> bool:
    """Returns True if the first column has the marks of items, or the last one those of equations.

    Numbers before texts are marks, too.
    """
    first, last = columns[0], columns[-1]
    if all(_MARKER.fullmatch(text) for text in first):
        return True
    if sum(bool(_EQUATION_NUMBER.fullmatch(text)) for text in last) > len(last) / 2:
        return True
    are_texts = sum(len(text.split()) for text in last) > 1.5 * len(last)
    return len(columns) == 2 and are_texts and all(map(_ITEM_NUMBER.fullmatch, first))


def _with_header_above(
    rows: Sequence[TableRow], start: int, gutters: Sequence[tuple[float, float]]
) -> int:
    """Returns the first row of the table: rows above that head its columns belong to it."""
    first = start
    while first > 0 and start - first < MAX_HEADER_ROWS:
        row, below = rows[first - 1], rows[first]
        if below.first - row.last > _MAX_HEADER_PITCH * max(row.size, below.size):
            break
        if not row.pieces or row.pieces[0].left < gutters[0][1] - 0.5 * row.size:
            break
        if max(len(piece.words) for piece in row.pieces) > _MAX_WORDS_OF_CELL:
            break
        first -= 1
    return first


def _with_last_wrap(
    rows: Sequence[TableRow], end: int, gutters: Sequence[tuple[float, float]]
) -> int:
    """Returns the end of the table: lines below that continue a cell of its last row are in it."""
    usual = _usual_pitch(rows[max(0, end - 12) : end])
    while end < len(rows):
        row, above = rows[end], rows[end - 1]
        pitch = (row.first - above.last) / above.size
        if pitch > MAX_LEADING or len(row.pieces) != 1 or abs(row.size - above.size) > 0.5:
            break
        is_first_cell = row.pieces[0].right < gutters[0][1] and pitch < 0.88 * usual
        if not is_first_cell and row.pieces[0].left < gutters[0][1] - 0.5 * row.size:
            break
        end += 1
    return end


def _with_ruled_wrap(rows: Sequence[TableRow], end: int, ys: Sequence[float]) -> int:
    """Returns the end of a table whose rows have lines below them: what is above the last line."""
    while end < len(rows):
        row, above = rows[end], rows[end - 1]
        first, last = bisect_right(ys, above.last), bisect_right(ys, row.last)
        if first < last or last == len(ys) or row.first - above.last > MAX_LEADING * row.size:
            break
        end += 1
    return end


def _sides(rows: Sequence[TableRow]) -> tuple[float, float]:
    """Returns the x at which the first word of rows begins, and at which the last one ends."""
    left = min(row.pieces[0].left for row in rows if row.pieces)
    return left, max(row.pieces[-1].right for row in rows if row.pieces)


def _usual_pitch(rows: Sequence[TableRow]) -> float:
    """Returns the usual distance of rows in font sizes; 0 for fewer than four rows."""
    pitches = sorted((after.first - row.last) / row.size for row, after in pairwise(rows))
    return pitches[len(pitches) // 2] if len(pitches) >= 3 else 0.0


def _merged_rows(
    rows: Sequence[TableRow],
    gutters: Sequence[tuple[float, float]],
    lines: Sequence[bool],
    *,
    are_cells: bool,
) -> tuple[list[list[str]], int | None]:
    """Returns the rows of a table, with wrapped cells joined, and how many of them are the header.

    The number of header rows is None if it is not known. `lines` says below which rows a ruled line
    is, and `are_cells` is True if these lines belong to single cells.
    """
    grid = [_cells(row, gutters) for row in rows]
    cells = [[_text(cell) for cell in row] for row in grid]
    names = named_rows(grid, lines)
    groups = row_groups(rows, cells, lines, names, are_cells=are_cells)
    header_count: int | None
    if names:
        header_count = sum(group[0] < names for group in groups)
    else:
        header_count = _rows_before_numbers([_joined_cells(cells, group) for group in groups])
        if header_count is None and _begins_with_values(grid, cells):
            header_count = 0
    head_rows = sum(len(group) for group in groups[: header_count or 0])
    spanned = _with_spans(cells, grid, gutters, head_rows)
    merged = [_joined_cells(spanned, group) for group in groups]
    if header_count is not None and header_count > 1:
        merged, header_count = _joined_header(merged, header_count)
    return merged, header_count


def _joined_cells(cells: Sequence[Sequence[str]], group: Sequence[int]) -> list[str]:
    row = list(cells[group[0]])
    for at in group[1:]:
        row = [joined(above, text) for above, text in zip(row, cells[at], strict=True)]
    return row


def _rows_before_numbers(cells: Sequence[Sequence[str]]) -> int | None:
    """Returns the number of rows above the first row of numbers.

    Returns None if few cells are numbers.
    """
    numbers = [
        sum(is_number(text) and not _YEAR.fullmatch(text) for text in row[1:]) for row in cells
    ]
    filled = [sum(map(bool, row[1:])) for row in cells]
    if not sum(filled) or sum(numbers) < 0.4 * sum(filled):
        return None
    count = next((index for index, number in enumerate(numbers) if number), 0)
    # Rows with only a first cell after the names are headings inside the table.
    while count > 1 and not filled[count - 1]:
        count -= 1
    return count if count <= MAX_HEADER_ROWS else None


def _begins_with_values(
    grid: Sequence[Sequence[Sequence[Word]]], cells: Sequence[Sequence[str]]
) -> bool:
    """Returns True if the first row of a table is no header, because it is like all other rows.

    Its first cell is in the font of code or ends with a colon, as those of all rows do, or it has
    a code in each column of codes.
    """
    if len(cells) < _MIN_ROWS_OF_CODES:
        return False
    fixed = [all(word.font.is_fixed for word in row[0]) for row in grid if row[0]]
    if all(fixed) and grid[0][0] and not all(word.font.is_fixed for word in grid[0][-1]):
        return True
    columns = list(zip(*cells, strict=True))
    if all(text.endswith(":") for text in columns[0]):
        return True
    are_codes = []
    for first, *below in columns:
        texts = list(filter(None, below))
        codes = sum(bool(_CODE.fullmatch(text)) for text in texts)
        if codes >= max(2, _MIN_CODES * len(texts)):
            are_codes.append(bool(_CODE.fullmatch(first)))
    return bool(are_codes) and all(are_codes)


def _with_spans(
    cells: Sequence[Sequence[str]],
    grid: Sequence[Sequence[Sequence[Word]]],
    gutters: Sequence[tuple[float, float]],
    header_rows: int,
) -> list[list[str]]:
    """Returns the cells with each header that spans columns repeated in all of them.

    A header spans the columns whose middle it covers. In a row above other names, it also spans
    the columns without a name that are nearer to it than to other headers of the row.
    """
    result = [list(row) for row in cells]
    width = len(gutters) + 1
    if width < 2 or not header_rows:
        return result
    edges = [_left_edge(grid), *(edge for gutter in gutters for edge in gutter), _right_edge(grid)]
    middles = [(edges[2 * at] + edges[2 * at + 1]) / 2 for at in range(width)]
    for index in range(header_rows):
        texts = {
            at: (words[0].left, max(word.right for word in words), cells[index][at])
            for at, words in enumerate(grid[index])
            if words
        }
        is_above = index + 1 < header_rows and len(texts) < sum(map(bool, cells[header_rows - 1]))
        for at in range(width):
            if at in texts:
                continue
            near = [
                (max(left - middles[at], middles[at] - right), text)
                for column, (left, right, text) in texts.items()
                if column or _is_covering(left, right, middles[at])
            ]
            distance, text = min(near, default=(1.0, ""))
            reach = (
                0.75 * (edges[2 * at + 1] - edges[2 * at] + PIECE_GAP * 10)
                if is_above and at
                else 0.0
            )
            if distance < reach or distance < 0:
                result[index][at] = text
    return result


def _is_covering(left: float, right: float, x: float) -> bool:
    return left < x < right


def _left_edge(grid: Sequence[Sequence[Sequence[Word]]]) -> float:
    return min(cell[0].left for row in grid for cell in row if cell)


def _right_edge(grid: Sequence[Sequence[Sequence[Word]]]) -> float:
    return max(cell[-1].right for row in grid for cell in row if cell)


def _joined_header(rows: list[list[str]], count: int) -> tuple[list[list[str]], int]:
    """Joins the lines of names that are wrapped; returns the rows and the number of header rows.

    A row with a heading that spans several columns stays a row of its own.
    """
    header = [rows[0]]
    for row in rows[1:count]:
        if any(text and text == after for text, after in pairwise(header[-1])):
            header.append(row)
        else:
            header[-1] = [joined(above, text) for above, text in zip(header[-1], row, strict=True)]
    return header + rows[count:], len(header)
