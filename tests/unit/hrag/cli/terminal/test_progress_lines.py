"""Lines of progress appear while a block runs, and stop with it."""

from itertools import count
from threading import Event, active_count

import pytest

from hrag.cli.terminal.progress_lines import progress_lines


def test_lines_appear_on_standard_error_while_the_block_runs(capsys):
    calls, third = count(1), Event()

    def describe() -> str:
        number = next(calls)
        if number == 3:
            third.set()
        return f"step {number}"

    before = active_count()
    with progress_lines(describe, interval_s=0.001):
        assert third.wait(30)
    assert active_count() == before
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("step 1\nstep 2\nstep 3\n")


def test_they_end_with_a_block_that_fails():
    before = active_count()
    with pytest.raises(ValueError, match="x"), progress_lines(lambda: "", interval_s=30):
        raise ValueError("x")
    assert active_count() == before
