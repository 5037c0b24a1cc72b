"""Tenants share the slots of a parser pool, but no process. A failure affects only one file."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
from structlog.testing import capture_logs

from hrag.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    ServiceUnavailable,
    TooBusy,
    TooLarge,
    UnreadableDocument,
)
from hrag.observe.metrics import INSTRUMENTS
from hrag.types import PDF
from hrag.values.deadline import NEVER, Deadline
from hrag.values.formats import DOCX, HTML, PNG
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import FormatFamily
from indexer_svc.parsers.parser_pool import ParserPool
from indexer_svc.parsers.parser_process import ParserEnded, ParserNotStarted
from indexer_svc.parsers.protocol import MalformedMessage, ParserFault
from indexer_svc.parsers.recognised_words import RecognisedWords
from tests.support.until import PATIENCE_S, until


class FakeProcess:
    """A process that waits until `gate` is set, then returns a file as text or raises `failure`.

    While the process waits, it calls `check`. If `hangs` is true, it does not call `check`. It
    announces `page_counts` as the counts of recognised pages before. It is ready after `start_s`
    seconds.
    """

    def __init__(self, number: int, family: FormatFamily) -> None:
        self.number = number
        self.family = family
        self.is_alive = True
        self.is_reusable = True
        self.is_confined = True
        self.gate = threading.Event()
        self.gate.set()
        self.hangs = False
        self.failure: Exception | None = None
        self.not_started = False
        self.start_s = 0.0
        self.read: list[bytes] = []
        self.page_counts: list[int] = []
        self.requests: list[dict[str, object]] = []

    def wait_until_ready(self, check) -> None:
        if self.not_started:
            raise ParserNotStarted("exit code 1")
        ready_s = time.monotonic() + self.start_s
        while time.monotonic() < ready_s:
            check()
            threading.Event().wait(0.01)

    def parse(self, request, content, _max_body_bytes, check, on_page) -> ParsedFile:
        self.read.append(content)
        self.requests.append(request)
        for page_count in self.page_counts:
            on_page(page_count)
        while not self.gate.wait(0.01):
            if not self.hangs:
                check()
        if self.failure is not None:
            raise self.failure
        return ParsedFile(content.decode())

    def page_words(self, request, content, check, on_page) -> RecognisedWords:
        self.parse(request, content, 0, check, on_page)
        return RecognisedWords((), 0, 0.0, 10.0, 10.0)

    def kill(self) -> str:
        self.is_alive = False
        return "SIGKILL"


class FakeStarter:
    """Starts the fake processes of a pool and records them.

    `prepare` is called with each new process.
    """

    def __init__(self) -> None:
        self.processes: list[FakeProcess] = []
        self.prepare = lambda _process: None
        self._numbers = count(1)

    def __call__(self, _memory_bytes: int, family: FormatFamily) -> FakeProcess:
        process = FakeProcess(next(self._numbers), family)
        self.prepare(process)
        self.processes.append(process)
        return process

    @property
    def used(self) -> list[FakeProcess]:
        """The processes that have read a file."""
        return [process for process in self.processes if process.read]

    @property
    def alive(self) -> list[FakeProcess]:
        """The processes that have not ended."""
        return [process for process in self.processes if process.is_alive]


@pytest.fixture
def starter() -> FakeStarter:
    return FakeStarter()


@pytest.fixture
def pool(starter: FakeStarter) -> Iterator[ParserPool]:
    pool = ParserPool(4, 1 << 29, PATIENCE_S, starter)
    yield pool
    pool.close()
    assert starter.alive == []


@pytest.fixture
def impatient_pool(starter: FakeStarter) -> Iterator[ParserPool]:
    """A pool that allows half a second for a file."""
    pool = ParserPool(4, 1 << 29, 0.5, starter)
    yield pool
    pool.close()
    assert starter.alive == []


def parse(
    pool: ParserPool,
    tenant: str,
    content: bytes = b"x",
    deadline: Deadline = NEVER,
    mime_type: str = PDF,
) -> str:
    return pool.parse(tenant, deadline, content, mime_type, 1000).text


class Call(threading.Thread):
    """A thread that parses one file."""

    def __init__(self, pool: ParserPool, tenant: str, content: bytes = b"x") -> None:
        super().__init__(daemon=True)
        self._work = (pool, tenant, content, Deadline.after(PATIENCE_S))
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            parse(*self._work)
        except Exception as error:
            self.error = error


def slow(process: FakeProcess) -> None:
    """Makes a process wait until the test sets its gate."""
    process.gate.clear()


def hanging(process: FakeProcess) -> None:
    """Makes a process wait, without calls of `check`, until the test sets its gate."""
    process.gate.clear()
    process.hangs = True


def no_memory(_process: FakeProcess) -> None:
    """Raises the error of a system that has no memory for another process."""
    raise BlockingIOError(11, "Resource temporarily unavailable")


def pages(*counts: int):
    """Returns a function that makes a process announce these counts of recognised pages."""

    def prepare(process: FakeProcess) -> None:
        process.page_counts = list(counts)

    return prepare


def failing(failure: Exception):
    """Returns a function that makes a process raise `failure` for each file."""

    def prepare(process: FakeProcess) -> None:
        process.failure = failure

    return prepare


def test_one_process_reads_the_files_of_a_tenant_one_after_another(pool, starter):
    assert [parse(pool, "a", text) for text in (b"1", b"2", b"3")] == ["1", "2", "3"]
    assert [process.read for process in starter.used] == [[b"1", b"2", b"3"]]


def test_files_of_two_tenants_are_never_read_by_the_same_process(pool, starter):
    for _ in range(3):
        for tenant in (b"a", b"b", b"c"):
            parse(pool, tenant.decode(), tenant)
    assert [process.read for process in starter.used] == [[b"a"] * 3, [b"b"] * 3, [b"c"] * 3]


def test_there_are_at_most_as_many_processes_as_slots_plus_one_unused_process(pool, starter):
    for number in range(20):
        parse(pool, f"tenant {number}")
        until(lambda: len(starter.alive) <= 5)


def test_a_process_reads_only_the_formats_of_its_family(pool, starter):
    for _ in range(2):
        parse(pool, "a", b"pdf", mime_type=PDF)
        parse(pool, "a", b"docx", mime_type=DOCX)
        parse(pool, "a", b"html", mime_type=HTML)
    read = {process.family: process.read for process in starter.used}
    assert len(starter.used) == 2
    assert read == {FormatFamily.CORE: [b"pdf"] * 2, FormatFamily.EXTRA: [b"docx", b"html"] * 2}


def test_one_process_is_started_in_advance_for_each_family_in_use(pool, starter):
    parse(pool, "a", mime_type=PDF)
    until(lambda: len(starter.processes) == 2)
    assert {process.family for process in starter.processes} == {FormatFamily.CORE}
    parse(pool, "a", mime_type=DOCX)
    until(lambda: len(starter.alive) == 4)
    families = sorted(process.family for process in starter.alive if not process.read)
    assert families == [FormatFamily.CORE, FormatFamily.EXTRA]


def test_a_tenant_has_at_most_half_of_the_slots(pool, starter):
    starter.prepare = slow
    calls = [Call(pool, "a") for _ in range(5)]
    until(lambda: len(starter.used) == 2)
    others = [Call(pool, "b"), Call(pool, "c")]
    until(lambda: len(starter.used) == 4)
    until(lambda: pool.waiting_count == 3)
    assert len(starter.used) == 4
    for process in starter.processes:
        process.gate.set()
    starter.prepare = lambda _process: None
    for call in (*calls, *others):
        call.join(PATIENCE_S)
        assert call.error is None


def test_the_tenant_with_the_fewest_running_files_gets_the_next_slot(starter):
    pool = ParserPool(2, 1 << 29, PATIENCE_S, starter)
    starter.prepare = slow
    first, second = Call(pool, "a", b"first"), Call(pool, "b", b"second")
    until(lambda: len(starter.used) == 2)
    waiting = [Call(pool, "a", b"a waits")]
    until(lambda: pool.waiting_count == 1)
    waiting.append(Call(pool, "c", b"c waits"))
    until(lambda: pool.waiting_count == 2)
    second_process = next(process for process in starter.used if process.read == [b"second"])
    # This frees the slot of "b". "a" already uses its share of the slots.
    second_process.gate.set()
    until(lambda: any(process.read == [b"c waits"] for process in starter.used))
    for process in starter.processes:
        process.gate.set()
    for call in (first, second, *waiting):
        call.join(PATIENCE_S)
        assert call.error is None
    pool.close()


def test_the_error_after_a_wait_for_a_slot_names_the_number_of_slots(starter):
    pool = ParserPool(4, 1 << 29, 0.2, starter)
    starter.prepare = hanging
    calls = [Call(pool, "a"), Call(pool, "a")]
    until(lambda: len(starter.used) == 2)
    with pytest.raises(TooBusy, match=r"0\.2 s; the indexer has 4 \(HRAG_PARSERS\).* 2 at once"):
        parse(pool, "a")
    for process in starter.processes:
        process.gate.set()
    for call in calls:
        call.join(PATIENCE_S)
    pool.close()


@pytest.fixture
def ocr_pool(starter: FakeStarter) -> Iterator[ParserPool]:
    """A pool that recognises at most 3 pages of a file."""
    pool = ParserPool(2, 1 << 31, PATIENCE_S, starter, max_recognised_pages=3)
    yield pool
    pool.close()
    assert starter.alive == []


@pytest.fixture
def impatient_ocr_pool(starter: FakeStarter) -> Iterator[ParserPool]:
    """A pool that recognises each page for at most 0.3 s."""
    pool = ParserPool(2, 1 << 31, 0.3, starter, max_recognised_pages=3)
    yield pool
    pool.close()
    assert starter.alive == []


def test_a_pool_for_text_recognition_starts_its_processes_when_they_are_needed(ocr_pool, starter):
    starter.prepare = pages(0, 1, 2)
    before = INSTRUMENTS.get_sample_value("hrag_recognised_pages_total") or 0
    for mime_type in (PDF, PNG):
        assert parse(ocr_pool, "a", b"scan", mime_type=mime_type) == "scan"
    (process,) = starter.processes
    assert (process.family, process.read) == (FormatFamily.OCR, [b"scan", b"scan"])
    assert process.requests[0]["max_pages"] == 3
    assert INSTRUMENTS.get_sample_value("hrag_recognised_pages_total") == before + 6


def test_a_page_is_recognised_for_a_reader_who_does_not_wait_long(starter):
    starter.prepare = pages(0)
    pool = ParserPool(2, 1 << 31, 20.0, starter, max_recognised_pages=3)
    words = pool.page_words("a", NEVER, b"scan", PDF, 7)
    assert words.words == ()
    (process,) = starter.processes
    assert process.family == FormatFamily.OCR
    assert process.requests[0]["recognised_page"] == 7
    process.gate.clear()
    scan = Call(pool, "a")
    until(lambda: len(process.read) == 2)
    pool._max_page_wait_s = 0.1
    with pytest.raises(TooBusy, match=r"0\.1 s; the indexer has 2 \(HRAG_OCR_PROCESSES\)"):
        pool.page_words("a", NEVER, b"scan", PDF, 7)
    process.gate.set()
    scan.join(PATIENCE_S)
    pool.close()


@pytest.mark.parametrize("counts", [(0, 0), (1,), (0, 2), (0, 1, 2, 3)])
def test_a_process_that_announces_pages_it_cannot_have_recognised_is_ended(
    ocr_pool, starter, counts
):
    starter.prepare = pages(*counts)
    with pytest.raises(UnreadableDocument, match="pages are recognised"):
        parse(ocr_pool, "a")
    assert starter.alive == []


def test_each_page_has_the_time_limit_and_the_error_names_its_setting(impatient_ocr_pool, starter):
    starter.prepare = slow
    with pytest.raises(TooLarge, match=r"HRAG_OCR_TIMEOUT_S allows for each page, 0\.3 s"):
        parse(impatient_ocr_pool, "a")


def test_a_scan_waits_for_a_slot_as_long_as_its_caller(impatient_ocr_pool, starter):
    starter.prepare = hanging
    call = Call(impatient_ocr_pool, "a")
    until(lambda: starter.used)
    # The wait for the slot is longer than the time limit of a page, and is not refused.
    with pytest.raises(DeadlineExceeded, match="waiting for a parser"):
        parse(impatient_ocr_pool, "a", deadline=Deadline.after(0.5))
    starter.used[0].gate.set()
    call.join(PATIENCE_S)


def test_a_wait_for_a_slot_ends_at_the_deadline(starter):
    pool = ParserPool(2, 1 << 29, PATIENCE_S, starter)
    starter.prepare = slow
    call = Call(pool, "a")
    until(lambda: starter.used)
    with pytest.raises(DeadlineExceeded, match="waiting for a parser"):
        parse(pool, "a", deadline=Deadline.after(0.1))
    with pytest.raises(Cancelled):
        parse(pool, "a", deadline=Deadline.after(PATIENCE_S, lambda: False))
    starter.used[0].gate.set()
    call.join(PATIENCE_S)
    pool.close()


def test_a_file_and_its_process_end_at_the_deadline(pool, starter):
    starter.prepare = slow
    with pytest.raises(DeadlineExceeded, match="extracting"):
        parse(pool, "a", deadline=Deadline.after(0.5))
    assert not starter.used[0].is_alive


def test_a_file_and_its_process_end_at_the_time_limit_for_one_file(impatient_pool, starter):
    starter.prepare = slow
    with (
        pytest.raises(TooLarge, match=r"HRAG_PARSER_TIMEOUT_S allows, 0\.5 s"),
        capture_logs() as logs,
    ):
        parse(impatient_pool, "a")
    assert [log["event"] for log in logs] == ["parser_failed"]
    assert not starter.used[0].is_alive


FAILURES = [
    (ParserEnded("SIGSEGV"), UnreadableDocument, r"\(SIGSEGV\).* allows, 536870912", "SIGSEGV"),
    (ParserEnded("SIGPROF"), TooLarge, "HRAG_PARSER_TIMEOUT_S", "SIGPROF"),
    (ParserFault("KeyError: 'secret'"), UnreadableDocument, "KeyError: 'secret'", "KeyError"),
    (ParserFault("MemoryError: "), TooLarge, "HRAG_PARSER_MEMORY_BYTES allows", "MemoryError"),
    (MalformedMessage("a bad head"), UnreadableDocument, "a bad head", "a bad head"),
]


@pytest.mark.parametrize(("failure", "error", "message", "logged"), FAILURES)
def test_the_failure_of_a_process_is_reported_as_the_error_of_its_file(
    pool, starter, failure, error, message, logged
):
    starter.prepare = failing(failure)
    with pytest.raises(InvalidArgument, match=message) as caught, capture_logs() as logs:
        parse(pool, "a")
    assert type(caught.value) is error
    assert caught.value.field == "content"
    assert [(log["event"], log["problem"]) for log in logs] == [
        ("parser_failed", f"{type(failure).__name__}: {logged}")
    ]
    assert not starter.used[0].is_alive


def test_a_process_that_refuses_a_file_reads_the_next_file(pool, starter):
    starter.prepare = failing(UnreadableDocument("damaged"))
    for _ in range(2):
        with pytest.raises(UnreadableDocument, match="damaged"):
            parse(pool, "a")
    assert [len(process.read) for process in starter.used] == [2]


def test_an_idle_process_that_has_ended_is_replaced(pool, starter):
    parse(pool, "a")
    for process in starter.processes:
        process.is_alive = False
    assert parse(pool, "a", b"again") == "again"


def test_a_process_that_is_not_reusable_ends(pool, starter):
    starter.prepare = lambda process: setattr(process, "is_reusable", False)
    parse(pool, "a")
    assert not starter.used[0].is_alive


def test_if_no_process_can_be_started_the_error_allows_a_retry(pool, starter):
    starter.prepare = no_memory
    with pytest.raises(ServiceUnavailable, match=r"no parser can be started: .*temporarily"):
        parse(pool, "a")
    starter.prepare = lambda process: setattr(process, "not_started", True)
    with pytest.raises(ServiceUnavailable, match="does not start: exit code 1"):
        parse(pool, "a")


def test_the_start_of_a_process_does_not_count_as_time_of_the_file(impatient_pool, starter):
    starter.prepare = lambda process: setattr(process, "start_s", 0.7)
    assert parse(impatient_pool, "a") == "x"


def test_a_process_that_is_not_ready_in_time_ends_and_the_error_allows_a_retry(starter):
    starter.prepare = lambda process: setattr(process, "start_s", PATIENCE_S)
    with (
        closing(ParserPool(4, 1 << 29, 0.5, starter, max_start_s=0.05)) as pool,
        pytest.raises(ServiceUnavailable, match=r"does not start: it was not ready in 0\.05 s"),
    ):
        parse(pool, "a")
    assert starter.alive == []


def test_a_failed_start_in_advance_does_not_affect_later_files(pool, starter):
    tried = []

    def no_memory_yet(process: FakeProcess) -> None:
        tried.append(process)
        no_memory(process)

    starter.prepare = no_memory_yet
    with pytest.raises(ServiceUnavailable):
        parse(pool, "a")
    # The pool tries to start a process for this file, and one in advance.
    until(lambda: len(tried) >= 2)
    starter.prepare = lambda _process: None
    assert parse(pool, "a", b"again") == "again"


def test_a_closed_pool_refuses_files(starter):
    pool = ParserPool(2, 1 << 29, 1.0, starter)
    parse(pool, "a")
    pool.close()
    pool.close()
    assert starter.alive == []
    with pytest.raises(ServiceUnavailable, match="stopping"):
        parse(pool, "a")


def test_one_warning_is_logged_if_system_calls_cannot_be_filtered(pool, starter):
    starter.prepare = lambda process: setattr(process, "is_confined", False)
    with capture_logs() as logs:
        parse(pool, "a")
        parse(pool, "b")
    assert [log["event"] for log in logs] == ["parser_unconfined"]


def test_the_outcome_of_each_file_is_counted_in_the_metrics(pool, starter):
    def counted(outcome: str) -> float:
        labels = {"outcome": outcome}
        return INSTRUMENTS.get_sample_value("hrag_parser_calls_total", labels) or 0

    before = counted("ok"), counted("UnreadableDocument")
    parse(pool, "a")
    starter.used[0].failure = ParserEnded("SIGSEGV")
    with pytest.raises(UnreadableDocument):
        parse(pool, "a")
    assert (counted("ok"), counted("UnreadableDocument")) == (before[0] + 1, before[1] + 1)
