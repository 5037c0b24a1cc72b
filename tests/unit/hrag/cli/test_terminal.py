"""Tables fit into terminals, errors have exit codes, and progress is shown as lines."""

import io
import os
import sys
from itertools import count
from threading import Event, active_count

import pytest
from rich.cells import cell_len
from rich.console import Console

from hrag import errors
from hrag.cli.terminal import (
    Column,
    ExitCode,
    Fit,
    exit_code_of,
    finishes_without_reader,
    output,
    print_json_line,
    progress_lines,
    show_table,
)

COLUMNS = (
    Column("id"),
    Column("title", Fit.CUT_END),
    Column("source", Fit.CUT_START),
    Column("note"),
    Column("tokens", Fit.NEVER),
)
ROWS = [
    (
        "guide.md",
        "最高人民法院关于审理环境民事公益诉讼案件的解释",
        "/home/me/docs/guide.md",
        "",
        1234567,
    ),
    ("a" * 60, "Short", "x\ty\nz\x1b[31m", "", 5),
]


def _lines(width: int) -> list[str]:
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=width, highlight=False
    )
    show_table(console, COLUMNS, ROWS)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_table_fits_the_terminal_and_cuts_no_number(width):
    lines = _lines(width)
    assert max(map(cell_len, lines)) <= width
    assert "tokens" in lines[0]
    assert "note" not in lines[0]  # No row has a note.
    assert any("1,234,567" in line for line in lines)


def test_a_column_that_folds_divides_no_word_if_another_column_can_be_narrowed(capsys):
    console = Console(width=40, force_terminal=True, color_system=None)
    word = "text-embedding-3-small"
    show_table(console, (Column("model"), Column("levels")), [(word, "256, 512, 1024, 2048")])
    assert word in capsys.readouterr().out


def test_a_wide_terminal_shows_everything():
    text = "\n".join(_lines(200))
    assert all(value in text for value in (ROWS[0][1], ROWS[0][2], ROWS[1][0]))
    assert "…" not in text


def test_a_title_keeps_its_start_and_a_source_its_end():
    row = next(line for line in _lines(70) if line.startswith("guide.md"))
    assert "最高" in row
    assert "…uide.md " in row
    assert row.count("…") == 2


def test_a_pipe_gets_one_line_for_each_row_with_complete_values(capsys):
    show_table(Console(width=20), COLUMNS, ROWS)
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split("\t") == ["id", "title", "source", "note", "tokens"]
    assert first.split("\t") == [*ROWS[0][:3], "", "1234567"]
    assert second.split("\t")[2] == "x y z\N{REPLACEMENT CHARACTER}[31m"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DocumentNotFound, ExitCode.NOT_FOUND),
        (errors.CollectionNotFound, ExitCode.NOT_FOUND),
        (errors.StoreMissing, ExitCode.NOT_FOUND),
        (errors.RateQuotaExceeded, ExitCode.UNAVAILABLE),
        (errors.StorageQuotaExceeded, ExitCode.FAILED),
        (errors.PermissionDenied, ExitCode.DENIED),
        (errors.BlankDocument, ExitCode.FAILED),
        (errors.UnreadableDocument, ExitCode.FAILED),
        (errors.TooLarge, ExitCode.FAILED),
        (errors.InvalidArgument, ExitCode.USAGE),
        (errors.FolderRefused, ExitCode.USAGE),
        (errors.DatabaseRefused, ExitCode.USAGE),
        (errors.StoreUnusable, ExitCode.FAILED),
        (errors.StoreUnavailable, ExitCode.UNAVAILABLE),
        (errors.DocumentChanged, ExitCode.UNAVAILABLE),
    ],
)
def test_an_error_has_the_exit_code_of_its_kind(error, code):
    assert exit_code_of(error("why")) is code


def test_progress_lines_appear_on_standard_error_while_the_block_runs(capsys):
    calls, third = count(1), Event()

    def describe() -> str:
        number = next(calls)
        if number == 3:
            third.set()
        return f"step {number}"

    before = active_count()
    with progress_lines(describe, interval_s=0.001):
        assert third.wait(30)
    assert active_count() <= before  # A thread of an earlier test may have ended.
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("step 1\nstep 2\nstep 3\n")


def test_progress_lines_end_if_the_block_fails():
    before = active_count()
    with pytest.raises(ValueError, match="x"), progress_lines(lambda: "", interval_s=30):
        raise ValueError("x")
    assert active_count() <= before  # A thread of an earlier test may have ended.


def _print_lines(lines: int) -> None:
    for number in range(lines):
        output().print(f"line {number}")
        print_json_line(number)
    raise KeyError


def _run_into_pipe(monkeypatch: pytest.MonkeyPatch, lines: int, *, is_closed: bool) -> str:
    """Returns what a command that ends with KeyError has printed into a pipe."""
    reading, writing = os.pipe()
    if is_closed:
        os.close(reading)
    with monkeypatch.context() as patch, os.fdopen(writing, "w") as file:
        patch.setattr(sys, "stdout", file)
        file.write("before\n" if not is_closed else "")
        with pytest.raises(KeyError):
            finishes_without_reader(_print_lines)(lines)
    if is_closed:
        return ""
    with os.fdopen(reading) as printed:
        return printed.read()


@pytest.mark.parametrize("lines", [1, 20])
def test_a_command_that_finishes_ignores_a_closed_pipe(monkeypatch, lines):
    _run_into_pipe(monkeypatch, lines, is_closed=True)


def test_a_command_that_finishes_prints_everything_in_order_into_an_open_pipe(monkeypatch):
    printed = _run_into_pipe(monkeypatch, 2, is_closed=False)
    assert printed == "before\nline 0\n0\nline 1\n1\n"
