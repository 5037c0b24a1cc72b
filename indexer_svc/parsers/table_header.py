"""Finds the titles and the header of a table whose format does not mark them. Pure functions.

The header is found by contrast: a row of names differs from the values below it. Each cell has a
kind: empty, a number, a period (a year or a date), a measure (another cell that begins with a
digit, for example `4 mg` or `15-64`), or text. The kind of a column is the kind of most of its
cells below the row that is examined. Each cell of the row then votes:

* for a header, if it is a text, a period or a measure above a column of another kind that is not
  text: `Price` above `12.5`, `2023` above `12.5`;
* against a header, if it is of the same kind as its column and this kind is not text, or if the
  same text occurs again in its column;
* not at all above a column of text, or of no clear kind.

Numbers above numbers are names if they form a series (`10 20 30`, `2021 2022 2023`,
`5 25 50 75 95`) and the rows below do not. Without any vote, the row is a header if it has only
short texts and at least half of the columns have one: most tables have a header. A row is also a
header if only its first cell is empty, above a column of labels.

A header may have up to MAX_HEADER_ROWS rows. A row continues the header above it if both belong
together by their form: the upper row has a name that spans several columns, or a name that spans
both rows, or the lower row has the units of the names. It must also have votes for a header.

A row that repeats the header, as reports do at the top of each page, has no influence.
"""

import re
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise

Row = Sequence[str]

MAX_HEADER_ROWS = 3

# The kinds of columns are determined from this many rows: enough for a stable majority.
_SAMPLE_ROWS = 50
_SAMPLE_COLUMNS = 200  # Further columns have no votes.
# After this many titles, a row with one cell is a title without further examination.
_MAX_EXAMINED_TITLES = 20
_GROUP_ROWS = _SAMPLE_ROWS + 2
_MAJORITY = 0.75
_NAMED_SHARE = 0.5
# A kind is read from the first characters of a cell, so that a long cell costs no more time.
_KIND_CHARS = 40
_MIN_NAMES_AT_CORNER = 2
_MIN_SERIES = 3
_MIN_SORTED = 5
# A table has this many columns at least before a row of two cells counts as a note above it.
_MIN_COLUMNS_BELOW_NOTE = 4
_MAX_UNIT_CHARS = 16
# A longer text above texts is a value, for example a paragraph.
_MAX_NAME_CHARS = 100
_COMMENT_MARKS = ("#", "//")

# These texts show in tables that a value is missing.
_MISSING = frozenset(("", *"-–—.*?…", "--", "..", "...", "n/a", "na", "n.a."))
_YEAR = r"(?:1[5-9]|2[01])\d\d"
_PERIOD = re.compile(
    rf"{_YEAR}(?:[/–-]\d{{2}}(?:\d\d)?)?"  # For example 2023, 2023/24, 2023-05.
    rf"|{_YEAR}([./-])\d\d?\1\d\d?(?:[ T]\d\d?:\d\d(?::\d\d)?)?"
    rf"|\d\d?([./-])\d\d?\2(?:{_YEAR}|\d\d)"
    rf"|\d\d?[./-]{_YEAR}"
)
_NUMBER = re.compile(r"[-+−(~\s$€£¥]*[.,]?\d[\d.,:'’/%\s)]*(?:[eE][-+]?\d+)?[\s€£¥*]*")
_BEGINS_WITH_DIGIT = re.compile(r"[-+−(~<>≤≥=\s$€£¥]*\d")


class _Kind(Enum):
    """The kind of content of a cell."""

    EMPTY = "empty"
    NUMBER = "number"
    PERIOD = "period"
    MEASURE = "measure"
    TEXT = "text"


# The kind of most cells of a column; EMPTY if all are empty, None if no kind has a majority.
ColumnKind = _Kind | None


def count_titles(rows: Sequence[Row]) -> int:
    """Returns how many rows at the top are titles of the table or notes above it.

    A title is a row with one filled cell, unless the cell names a group of columns: then it is not
    the first cell, and a header follows. A note has two cells, which are the first ones, above a
    table of at least _MIN_COLUMNS_BELOW_NOTE columns, for example `Currency | EUR`. A comment
    begins with one of _COMMENT_MARKS, and the row below it has votes for a header or is a comment
    too. The result is `len(rows)` if there is no other row.
    """
    typical = _typical_filled(rows)
    for at, row in enumerate(rows):
        filled = [column for column, cell in enumerate(row) if cell]
        is_title = len(filled) == 1 and not (
            filled[0] and at < _MAX_EXAMINED_TITLES and _is_group(rows[at : at + _GROUP_ROWS])
        )
        is_note = filled == [0, 1] and typical >= _MIN_COLUMNS_BELOW_NOTE
        if not is_title and not is_note and not _is_comment(rows, at):
            return at
    return len(rows)


def count_header_rows(rows: Sequence[Row]) -> int:
    """Returns how many rows at the top are the header, from 0 to MAX_HEADER_ROWS.

    `rows` are the rows after the titles. Rows may have different lengths. At least one row follows
    the header.
    """
    for count in range(min(MAX_HEADER_ROWS, len(rows) - 1), 1, -1):
        if _is_header_of(rows, count):
            return count
    return int(len(rows) > 1 and _is_header_row(rows[0], _body(rows, 1)))


def has_header_votes(rows: Sequence[Row]) -> bool:
    """Returns True if the first row differs from the rows below it as a header does.

    A header that contrasts in no column with the rows below it, as in a table of texts, does not
    count.
    """
    return len(rows) > 1 and sum(_votes(rows[0], _body(rows, 1))) > 0


def column_kinds(rows: Sequence[Row]) -> Sequence[ColumnKind]:
    """Returns the kinds of the first _SAMPLE_COLUMNS columns, from the first _SAMPLE_ROWS rows."""
    sample = rows[:_SAMPLE_ROWS]
    width = min(max(map(len, sample), default=0), _SAMPLE_COLUMNS)
    return [_column_kind([row[at] for row in sample if at < len(row)]) for at in range(width)]


def compare_with_columns(row: Row, kinds: Sequence[ColumnKind]) -> int:
    """Returns a number below 0 if a row is like the rows of a table, above 0 if it is unlike them.

    `kinds` are the kinds of the table's columns. The result is 0 if the row has texts only in
    columns of texts.
    """
    return sum(
        _contrast(_kind(cell), kind_below) for cell, kind_below in zip(row, kinds, strict=False)
    )


def column_names(header: Sequence[Row], width: int) -> list[str]:
    """Returns the names of `width` columns: the cells of the header's rows, joined per column.

    In all rows but the last one, an empty cell has the name of the cell to its left, because names
    of groups span several columns, for example `2023` above `Revenue` and `Cost`. A cell that
    repeats the cell above it is joined once.
    """
    padded = [[*row, *[""] * (width - len(row))] for row in header]
    for at in range(len(padded) - 2, -1, -1):
        padded[at] = _spread(padded[at], padded[at + 1])
    return [" ".join(_without_repeats(cells)) for cells in zip(*padded, strict=True)]


def _typical_filled(rows: Sequence[Row]) -> int:
    """Returns the median number of filled cells in a row."""
    counts = sorted(sum(map(bool, row)) for row in rows[: 2 * _SAMPLE_ROWS])
    return counts[len(counts) // 2] if counts else 0


def _is_comment(rows: Sequence[Row], at: int) -> bool:
    """Returns True if the row `at` is a comment above a header."""
    while at < min(len(rows), _MAX_EXAMINED_TITLES) and rows[at][0].startswith(_COMMENT_MARKS):
        at += 1
        if has_header_votes(rows[at : at + _GROUP_ROWS]):
            return True
    return False


def _is_group(rows: Sequence[Row]) -> bool:
    """Returns True if the first two rows are a header, with rows below it."""
    return len(rows) > 2 and _is_header_of(rows, 2)


def _is_header_of(rows: Sequence[Row], count: int) -> bool:
    """Returns True if the first `count` rows, at least two, are a header together.

    Each row must belong to the row below it, or to the last row: names may span the same columns in
    several rows.
    """
    body, last = _body(rows, count), rows[count - 1]
    if not body:  # All further rows repeat these rows, so nothing shows that they are a header.
        return False
    return all(
        _belong_together(upper, lower, body) or _belong_together(upper, last, body)
        for upper, lower in pairwise(rows[:count])
    ) and not any(vote < 0 for row in rows[:count] for vote in _votes(row, body))


def _body(rows: Sequence[Row], header_count: int) -> list[Row]:
    """Returns the first rows below the header, without those that repeat a row of the header."""
    header, body = rows[:header_count], rows[header_count : header_count + _SAMPLE_ROWS]
    return [row for row in body if row not in header]


def _belong_together(upper: Row, lower: Row, body: Sequence[Row]) -> bool:
    """Returns True if `lower` continues the header whose row above it is `upper`."""
    if not any(upper) or not any(lower):
        return False
    # A single period is not enough: it may be the first value in a column of prices, 1999.
    is_named = _is_text_row(lower) or sum(_kind(cell) is _Kind.PERIOD for cell in lower) > 1
    votes = _votes(lower, body)
    has_votes = is_named and sum(votes) > 0
    spans = _spans(upper, lower)
    if has_votes and (spans or _repeats_above(upper, lower) or _are_units(upper, lower, votes)):
        return True
    # Above a table of texts, only the form of the rows shows that they are a header.
    has_form = _repeats_above(upper, lower) or (not upper[0] and spans > 1)
    return bool(spans) and has_form and _is_text_row(lower) and _are_names(lower)


def _repeats_above(upper: Row, lower: Row) -> bool:
    """Returns True if a name spans both rows, and another name does not."""
    pairs = [(above, below) for above, below in zip(upper, lower, strict=False) if above or below]
    return 0 < sum(above == below for above, below in pairs) < len(pairs)


def _spans(upper: Row, lower: Row) -> int:
    """Returns how many columns with a name in `lower` are spanned by a name to the left in `upper`.

    A name spans the empty cells to its right, or is repeated in them.
    """
    count = 0
    group = ""
    for column, below in enumerate(lower):
        above = upper[column] if column < len(upper) else ""
        count += bool(below and group and column and above in ("", group))
        group = above or group
    return count


def _are_units(upper: Row, lower: Row, votes: Sequence[int]) -> bool:
    """Returns True if `lower` has units for names in `upper`, for example `kg` below `Weight`.

    The first column has no unit, or all columns have units of numbers. `votes` are those of
    `lower`.
    """
    if (lower[0] and min(votes) < 1) or not upper[0] or len(lower) > len(upper):
        return False
    pairs = [(above, below) for above, below in zip(upper, lower, strict=False) if below]
    return all(above and len(below) <= _MAX_UNIT_CHARS for above, below in pairs)


def _is_text_row(row: Row) -> bool:
    return all(_kind(cell) in (_Kind.TEXT, _Kind.EMPTY) for cell in row)


def _are_names(row: Row) -> bool:
    names = [cell for cell in row if cell]
    return len(set(names)) == len(names)


def _is_header_row(row: Row, body: Sequence[Row]) -> bool:
    if _has_empty_corner(row, body):
        return True
    if votes := sum(_votes(row, body)):
        return votes > 0
    if not _is_text_row(row) or max(map(len, row)) > _MAX_NAME_CHARS:
        return False
    return sum(map(bool, row)) >= _NAMED_SHARE * max(map(len, (row, *body)))


def _has_empty_corner(row: Row, body: Sequence[Row]) -> bool:
    """Returns True if only the first cell of `row` is empty, above labels in the first column.

    The other cells are different, and are at least two.
    """
    if row[0] or len(row) < _MIN_NAMES_AT_CORNER + 1 or not all(row[1:]) or not _are_names(row):
        return False
    return sum(bool(below and below[0]) for below in body) >= _MAJORITY * len(body)


def _votes(row: Row, body: Sequence[Row]) -> list[int]:
    """Returns the vote of each cell of `row`: 1 for a header, -1 against it, or 0."""
    if not body:
        return [0] * len(row)
    is_series = _is_series(row) and sum(map(_is_series, body)) < len(body) * (1 - _MAJORITY)
    cells = enumerate(row[:_SAMPLE_COLUMNS])
    return [_vote(cell, column, body, is_series=is_series) for column, cell in cells]


def _vote(cell: str, column: int, body: Sequence[Row], *, is_series: bool) -> int:
    below = [row[column] for row in body if column < len(row)]
    kind, kind_below = _kind(cell), _column_kind(below)
    vote = _contrast(kind, kind_below)
    if vote < 0 and is_series and kind in (_Kind.NUMBER, _Kind.PERIOD):
        return 1
    return -1 if vote == 0 and kind is _Kind.TEXT and cell in below else vote


def _contrast(kind: _Kind, kind_below: ColumnKind) -> int:
    """Returns 1 if a cell is unlike its column, -1 if it is like it, 0 if this is not clear."""
    if kind is _Kind.EMPTY or kind_below in (_Kind.EMPTY, _Kind.TEXT, None):
        return 0
    return -1 if kind is _Kind.NUMBER or kind is kind_below else 1


def _column_kind(cells: Sequence[str]) -> ColumnKind:
    """Returns the kind of most cells, EMPTY if all are empty, or None if no kind has a majority.

    A column of numbers may contain some numbers that look like years.
    """
    kinds = Counter(map(_kind, cells))
    del kinds[_Kind.EMPTY]
    total = kinds.total()
    if not total:
        return _Kind.EMPTY
    # `Counter.most_common` would import a module, and a confined process cannot load modules.
    kind = max(kinds, key=kinds.__getitem__)
    if kinds[kind] >= _MAJORITY * total:
        return kind
    numbers = kinds[_Kind.NUMBER] + kinds[_Kind.PERIOD]
    return _Kind.NUMBER if numbers >= _MAJORITY * total else None


def _kind(cell: str) -> _Kind:
    start = cell[:_KIND_CHARS].strip()
    if start.lower() in _MISSING:
        return _Kind.EMPTY
    if _PERIOD.fullmatch(start):
        return _Kind.PERIOD
    if len(cell) <= _KIND_CHARS and _NUMBER.fullmatch(start):
        return _Kind.NUMBER
    return _Kind.MEASURE if _BEGINS_WITH_DIGIT.match(start) else _Kind.TEXT


def _is_series(row: Row) -> bool:
    """Returns True if the numbers of a row are a series, after at most one text.

    A series is two years, _MIN_SERIES numbers at equal steps, or _MIN_SORTED numbers that all
    ascend or all descend.
    """
    cells = [cell for cell in row if cell]
    if cells and _kind(cells[0]) is _Kind.TEXT:
        cells = cells[1:]
    if not all(cell.isascii() and cell.isdecimal() and len(cell) < 10 for cell in cells):
        return False
    are_years = all(_kind(cell) is _Kind.PERIOD for cell in cells)
    if len(cells) < (2 if are_years else _MIN_SERIES):
        return False
    steps = {int(after) - int(before) for before, after in pairwise(cells)}
    are_sorted = len(cells) >= _MIN_SORTED and (min(steps) > 0 or max(steps) < 0)
    return are_sorted or (len(steps) == 1 and steps != {0})


def _spread(row: Row, below: Row) -> list[str]:
    """Returns `row` with each name repeated in the empty cells to its right above names."""
    spread = []
    name = ""
    for cell, cell_below in zip(row, below, strict=True):
        name = cell or name
        spread.append(cell or (name if cell_below else ""))
    return spread


def _without_repeats(cells: Sequence[str]) -> list[str]:
    """Returns the filled cells of a column's header, without those that repeat the one above."""
    names: list[str] = []
    for cell in cells:
        if cell and (not names or names[-1] != cell):
            names.append(cell)
    return names
