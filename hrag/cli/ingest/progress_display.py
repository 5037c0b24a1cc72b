"""Shows progress while documents are stored: a bar on a terminal, plain lines elsewhere.

The progress within a document is not known, because the indexer answers when the document is
stored. So progress is counted in bytes of files, and the display names the current document.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from hrag.cli.ingest.ingest_progress import IngestProgress
from hrag.cli.terminal.progress_lines import LINE_INTERVAL_S, progress_lines
from hrag.text.plain_text import printable

_NAME_CHARS = 40
_BAR_WIDTH = 12
_TIME_WIDTH = 10


@contextmanager
def shown_progress(
    progress: IngestProgress, console: Console, interval_s: float = LINE_INTERVAL_S
) -> Iterator[None]:
    """Shows `progress` while the block runs.

    If `console` is not a terminal, writes a line without control characters to standard error
    every `interval_s` seconds.
    """
    if not console.is_terminal:
        with progress_lines(
            lambda: f"{_describe(progress)}, {progress.seconds:,.0f} s", interval_s
        ):
            yield
        return
    text = _StateColumn(progress, console.width - _BAR_WIDTH - _TIME_WIDTH)
    columns = (BarColumn(_BAR_WIDTH), text, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=_amount(progress)[1] or None)
        progress.on_outcome = lambda _: bar.update(task, completed=_amount(progress)[0])
        yield


class _StateColumn(ProgressColumn):
    """A column that describes the progress.

    It is drawn at each refresh, so it stays current while a single document takes long.
    """

    def __init__(self, progress: IngestProgress, width: int) -> None:
        super().__init__()
        self._progress = progress
        self._width = width

    def render(self, _task: Task) -> Text:
        text = Text(_describe(self._progress))
        text.truncate(self._width, overflow="ellipsis")
        return text


def _amount(progress: IngestProgress) -> tuple[int, int]:
    """Returns the completed and the total amount, in bytes, or in documents without sizes."""
    if progress.total_bytes:
        return progress.completed_bytes, progress.total_bytes
    return progress.completed, progress.total


def _describe(progress: IngestProgress) -> str:
    """Returns `3 of 10 documents, 1.2 MB of 8.0 MB, 5,120 tokens, now at docs/guide.md`."""
    of_total = f" of {progress.total:,}" if progress.total else ""
    parts = [f"{progress.completed:,}{of_total} documents"]
    if progress.total_bytes:
        parts.append(f"{decimal(progress.completed_bytes)} of {decimal(progress.total_bytes)}")
    parts.append(f"{progress.tokens:,} tokens")
    if label := printable(progress.next_label):
        short = label if len(label) <= _NAME_CHARS else f"…{label[-_NAME_CHARS:]}"
        parts.append(f"now at {short}")
    return ", ".join(parts)
