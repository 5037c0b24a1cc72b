"""What an ingest tells of skipped files, and its progress in a pipe."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from hrag.cli.ingest.folders import EMPTY, UNKNOWN_FORMAT, SkippedFile
from hrag.cli.ingest.ingest_progress import IngestProgress
from hrag.cli.ingest.input_document import Unreadable
from hrag.cli.ingest.outcomes import skipped_summary
from hrag.cli.ingest.progress_display import shown_progress


@pytest.mark.parametrize(
    ("names", "summary"),
    [
        ([], ""),
        (["a.bin", "b.dat", "e"], "skipped 3: 2 of unknown format (.bin, .dat), 1 empty"),
        (["a.b", "c.b", "d.a", "LICENSE"], "skipped 4: 4 of unknown format (.b, .a, no extension)"),
        (
            [f"x.{each}" for each in "abcdefgh"],
            "skipped 8: 8 of unknown format (.a, .b, .c, .d, .e and 3 more)",
        ),
    ],
)
def test_skipped_files_are_summed_up_by_reason(names, summary):
    skipped = [SkippedFile(Path(name), EMPTY if name == "e" else UNKNOWN_FORMAT) for name in names]
    assert skipped_summary(skipped) == summary


def test_a_pipe_gets_plain_lines_of_progress(capsys):
    progress = IngestProgress(3, 8_000_000)
    progress.send("docs/手册.pdf\x1b[2J", 48_000_000, "")
    with shown_progress(progress, Console(file=io.StringIO()), interval_s=0.001):
        shown = ""
        while "\n" not in shown:
            time.sleep(0.001)
            shown += capsys.readouterr().err
    line = shown.splitlines()[0]
    assert line.startswith("0 of 3 documents, 0 bytes of 8.0 MB, 0 tokens, now at docs/手册.pdf")
    assert line.endswith(" s")
    assert "\x1b" not in shown
    assert "\r" not in shown


def test_a_terminal_gets_a_bar_that_moves_with_each_outcome():
    progress = IngestProgress(2)
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    with shown_progress(progress, terminal):
        progress.fail("a", Unreadable("locked"))
    shown = terminal.file.getvalue()
    assert "1 of 2 documents, 0 tokens" in shown
    assert "━━━━━━\x1b[0m" in shown  # Half of the bar has another colour.
