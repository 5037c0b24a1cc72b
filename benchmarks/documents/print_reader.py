"""Reads prints as the indexer does: in a confined parser process. Measures its processor time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hrag.config import IndexerSettings
from hrag.values.document_limits import MAX_PAGES
from hrag.values.formats import PDF
from indexer_svc.parsers.parsed_file import PAGE_BREAK, ParsedFile
from indexer_svc.parsers.parser_functions import FormatFamily
from indexer_svc.parsers.parser_process import ParserProcess

_NS_PER_MS = 1_000_000
_START_S = 60.0


class ReadPrint(NamedTuple):
    """What was read of a print, and the processor time of the parser process."""

    parsed: ParsedFile
    cpu_ms: float


class PrintReader:
    """A parser process that reads one print after the other."""

    def __init__(self, process: ParserProcess, max_text_bytes: int, timeout_s: float) -> None:
        """Uses a process that is ready."""
        self._process = process
        self._max_text_bytes = max_text_bytes
        self._timeout_s = timeout_s

    def read(self, pdf: bytes) -> ReadPrint:
        """Returns what the process reads of a PDF. Raises the errors of `ParserProcess.parse`."""
        before_ns = self._cpu_ns()
        request = {
            "mime_type": PDF,
            "max_text_bytes": self._max_text_bytes,
            "keep_boilerplate": False,
            "cpu_s": self._timeout_s,
            "max_pages": 0,
        }
        max_body_bytes = self._max_text_bytes + len(PAGE_BREAK) * MAX_PAGES
        parsed = self._process.parse(request, pdf, max_body_bytes, _no_check)
        return ReadPrint(parsed, (self._cpu_ns() - before_ns) / _NS_PER_MS)

    def _cpu_ns(self) -> int:
        """Returns the processor time of the process. Linux counts it in nanoseconds."""
        schedule = Path(f"/proc/{self._process.pid}/schedstat").read_text("ascii")
        return int(schedule.split()[0])


@contextmanager
def open_print_reader() -> Iterator[PrintReader]:
    """Yields a reader with the default settings of an indexer; ends its process afterwards."""
    settings = IndexerSettings()
    process = ParserProcess(settings.parser_memory_bytes, FormatFamily.CORE)
    end_s = time.monotonic() + _START_S

    def check() -> None:
        if time.monotonic() > end_s:
            raise TimeoutError(f"the parser process was not ready within {_START_S:g} s")

    try:
        process.wait_until_ready(check)
        yield PrintReader(process, settings.max_document_bytes, settings.parser_timeout_s)
    finally:
        process.kill()


def _no_check() -> None:
    """Does nothing: the process limits its own processor time."""
