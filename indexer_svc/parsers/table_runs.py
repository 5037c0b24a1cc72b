"""Divides the rows of a sheet or of a file into tables. Pure functions.

Empty rows separate tables, but may also be spaces within one table. So a run of rows continues the
table above it if all its columns are columns of that table, and if it has no header: its first row
has numbers where the table has numbers, or nothing in it looks like a header. A header may be
separated from its table by an empty row too.
"""

from collections.abc import Iterable, Iterator, Sequence

from indexer_svc.parsers.table_header import (
    ColumnKind,
    column_kinds,
    compare_with_columns,
    count_header_rows,
    count_titles,
    has_header_votes,
)

_MAX_TITLES = 10  # A header that is separated from its table has at most this many titles.


class RowRun:
    """Consecutive rows of one table: their cells and their numbers, counted from 1.

    `columns` are the indices of the columns that are not empty.
    """

    def __init__(self) -> None:
        """Begins a run without rows."""
        self.rows: list[list[str]] = []
        self.numbers: list[int] = []
        self.columns: set[int] = set()
        self._kinds: Sequence[ColumnKind] = ()
        self._kinds_of_count = 0

    def add(self, cells: list[str], number: int) -> None:
        """Adds a row."""
        self.rows.append(cells)
        self.numbers.append(number)
        self.columns.update(at for at, cell in enumerate(cells) if cell)

    def extend(self, other: "RowRun") -> None:
        """Adds the rows of another run."""
        self.rows += other.rows
        self.numbers += other.numbers
        self.columns |= other.columns

    def column_kinds(self) -> Sequence[ColumnKind]:
        """Returns the kinds of the columns.

        They are determined again only when the number of rows has doubled, because a table may
        consist of many short runs.
        """
        if len(self.rows) >= 2 * self._kinds_of_count:
            self._kinds = column_kinds(self.rows[1:])
            self._kinds_of_count = len(self.rows)
        return self._kinds


def row_runs(rows: Iterable[Sequence[str]]) -> Iterator[RowRun]:
    """Yields the tables among `rows`, whose first row has the number 1.

    The white space in each cell is replaced by single spaces.
    """
    table: RowRun | None = None
    for run in _runs(rows):
        if table is not None and _continues(table, run):
            table.extend(run)
            continue
        if table is not None:
            yield table
        table = run
    if table is not None:
        yield table


def _runs(rows: Iterable[Sequence[str]]) -> Iterator[RowRun]:
    """Yields the runs of rows between empty rows."""
    run = RowRun()
    for number, row in enumerate(rows, start=1):
        cells = [" ".join(cell.split()) for cell in row]
        if any(cells):
            run.add(cells, number)
        elif run.rows:
            yield run
            run = RowRun()
    if run.rows:
        yield run


def _continues(table: RowRun, run: RowRun) -> bool:
    """Returns True if `run` continues `table`."""
    if not run.columns <= table.columns:
        return False
    titles = count_titles(run.rows)
    rows = run.rows[titles:]
    if not rows:
        return False
    if has_header_votes(rows):
        return False
    if _is_header_alone(table):
        return not titles and has_header_votes([table.rows[-1], *rows])
    difference = compare_with_columns(rows[0], table.column_kinds())
    return difference < 0 or (difference == 0 and not titles and not count_header_rows(rows))


def _is_header_alone(table: RowRun) -> bool:
    """Returns True if a table has one row, apart from its titles."""
    rows = table.rows
    return len(rows) <= _MAX_TITLES + 1 and count_titles(rows) == len(rows) - 1
