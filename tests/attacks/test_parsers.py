"""A file that harms its parser fails only its call, and harms neither indexer nor other tenants.

Each file is read or refused within its caller's deadline. At the same time the indexer reads
files of another tenant.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hrag.errors import DeadlineExceeded, HragError, InvalidArgument, TooLarge, UnreadableDocument
from hrag.types import MARKDOWN, PLAIN_TEXT, Document
from tests.attacks.uptime_clock import uptime_s
from tests.support.documents.bombs import (
    PDF_BOMBS,
    inflating_page,
    lazy_lines,
    list_items,
    nested_lists,
    repeated_page,
)
from tests.support.documents.pdfs import pdf_of
from tests.support.servers.processes import FAST, Running, is_alive, running
from tests.support.until import until

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(300)]

DEADLINE_S = 5.0
MIB = 1 << 20
_MARGIN_S = 1.0
_LONG_S = 100.0
_GROWTH_BYTES = 100 * MIB
# The most seconds for ingesting a small PDF of another tenant during an attack. Without other work
# the machine needs some milliseconds.
_OTHERS_S = 4.0
# A parser that has used this many seconds of processor time is working on a slow file.
_WORKING_S = 0.3
_SETTINGS = {**FAST, "HRAG_PARSERS": "2", "HRAG_PARSER_TIMEOUT_S": "20"}
_LIGHT = sorted({*PDF_BOMBS} - {"inflating page", "repeated page"})


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("parsers") / "store", _SETTINGS) as services:
        for tenant in ("attacker", "neighbour"):
            services.client.ingest(tenant, Document(pdf_of(["warm up"])))
        yield services


def _peak_resident_bytes(services: Running) -> int:
    """Returns the peak resident memory of the indexer, without its child processes."""
    status = Path(f"/proc/{services.indexer.pid}/status").read_text("ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@contextmanager
def _neighbour_ingests(services: Running) -> Iterator[None]:
    """Ingests small PDFs of another tenant during the block.

    Fails if one of the PDFs takes `_OTHERS_S` or longer.
    """
    ended = threading.Event()
    taken_s: list[float] = []
    failures: list[HragError] = []

    def ingest() -> None:
        with services.new_client() as client:
            while not ended.is_set() or not taken_s:
                began = uptime_s()
                try:
                    client.ingest("neighbour", Document(pdf_of([f"Page of {began}"])))
                    taken_s.append(uptime_s() - began)
                except HragError as error:
                    failures.append(error)
                    return

    thread = threading.Thread(target=ingest)
    thread.start()
    yield
    ended.set()
    thread.join(60)
    assert failures == []
    assert max(taken_s) < _OTHERS_S


def _outcome(
    services: Running, document: Document, deadline_s: float = DEADLINE_S
) -> HragError | None:
    """Ingests a document; returns the error if it is refused. Fails if the call ends too late."""
    began = uptime_s()
    try:
        services.client.ingest("attacker", document, timeout_s=deadline_s)
    except HragError as error:
        return error
    finally:
        assert uptime_s() - began < deadline_s + _MARGIN_S
    return None


def _is_read_or_refused(error: HragError | None) -> bool:
    return error is None or isinstance(error, InvalidArgument | DeadlineExceeded)


def _until_idle(services: Running) -> None:
    """Waits until the indexer has noticed that the callers have left, and reads files again."""
    until(lambda: _reads_soon(services))


def _reads_soon(services: Running) -> bool:
    try:
        services.client.ingest("attacker", Document(pdf_of(["idle?"])), timeout_s=_MARGIN_S)
    except HragError:
        return False
    return True


@pytest.mark.parametrize("bomb", [inflating_page, repeated_page])
def test_a_pdf_bomb_harms_nobody(services: Running, bomb: Callable[[], bytes]) -> None:
    before = _peak_resident_bytes(services)
    with _neighbour_ingests(services):
        error = _outcome(services, Document(bomb()))
        assert isinstance(error, UnreadableDocument | TooLarge | DeadlineExceeded)
    assert _peak_resident_bytes(services) - before < _GROWTH_BYTES
    _until_idle(services)


@pytest.mark.parametrize("name", _LIGHT)
def test_every_other_pdf_bomb_is_read_or_refused(services: Running, name: str) -> None:
    before = _peak_resident_bytes(services)
    content = PDF_BOMBS[name]()
    with _neighbour_ingests(services):
        assert _is_read_or_refused(_outcome(services, Document(content)))
    assert _peak_resident_bytes(services) - before < _GROWTH_BYTES
    _until_idle(services)


@pytest.mark.parametrize(
    "text",
    [nested_lists(400_000), list_items(400_000), lazy_lines(150_000)],
    ids=["nested", "flat", "lazy"],
)
def test_markdown_full_of_markers_takes_no_time_of_the_indexer(
    services: Running, text: str
) -> None:
    """A child process parses the Markdown.

    The indexer itself works at most one second more for Markdown than for plain text.
    """

    def ingest(mime_type: str) -> None:
        document = Document(text, mime_type=mime_type)
        services.client.ingest("attacker", document, timeout_s=_LONG_S)

    plain = _cpu_s(services, lambda: ingest(PLAIN_TEXT))
    assert _cpu_s(services, lambda: ingest(MARKDOWN)) < plain + 1.0


def _cpu_s(services: Running, work: Callable[[], object]) -> float:
    """Returns the processor time that the indexer itself uses during `work`, in seconds.

    The time of its child processes is not included.
    """

    def spent() -> float:
        return _cpu_ticks(services.indexer.pid) / os.sysconf("SC_CLK_TCK")

    before = spent()
    work()
    return spent() - before


def _cpu_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return int(stat[11]) + int(stat[12])


def test_many_slow_files_of_one_tenant_leave_a_parser_to_others(services: Running) -> None:
    errors: list[HragError | None] = []

    def attack() -> None:
        errors.append(_outcome(services, Document(repeated_page())))

    attackers = [threading.Thread(target=attack) for _ in range(6)]
    with _neighbour_ingests(services):
        for thread in attackers:
            thread.start()
        for thread in attackers:
            thread.join(60)
    # A fast machine reaches the parser's limit of memory before the deadline.
    assert len(errors) == len(attackers)
    assert all(isinstance(error, DeadlineExceeded | UnreadableDocument) for error in errors)
    _until_idle(services)


def test_a_parser_has_no_secret_and_no_open_file(services: Running) -> None:
    holdings: list[tuple[set[bytes], list[str]] | None] = []

    def all_are_confined() -> bool:
        """Returns False while a parser is starting, or ending after an earlier test."""
        holdings[:] = [_holdings(pid) for pid in _parsers(services)]
        return bool(holdings) and None not in holdings

    until(all_are_confined)
    for holding in holdings:
        assert holding == ({b"PYTHONPATH"}, ["socket"])


def _holdings(pid: int) -> tuple[set[bytes], list[str]] | None:
    """Returns the environment variables and the kinds of open files of a confined process.

    Returns None if the process has ended or is not confined yet.
    """
    if not _is_confined(pid):
        return None
    process = Path(f"/proc/{pid}")
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
        opened = [str(link.readlink()) for link in (process / "fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (
        {variable.partition(b"=")[0] for variable in environment if variable},
        [target.partition(":")[0] for target in opened if target != "/dev/null"],
    )


def _is_confined(pid: int) -> bool:
    """Returns True after a process has loaded its libraries and given up its rights.

    Returns False if the process has ended.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status


def test_a_crash_of_a_parser_fails_only_the_file_that_it_parses(services: Running) -> None:
    errors: list[HragError | None] = []
    slow = threading.Thread(
        target=lambda: errors.append(_outcome(services, Document(repeated_page()), _LONG_S))
    )
    slow.start()
    os.kill(_working_parser(services), signal.SIGSEGV)
    slow.join(60)
    (error,) = errors
    assert isinstance(error, UnreadableDocument)
    assert "SIGSEGV" in error.message
    assert "parser_failed" in services.indexer.log
    assert all(is_alive(pid) for pid in _parsers(services))


def _working_parser(services: Running) -> int:
    """Waits until a parser works on a slow file; returns its process id."""
    before: dict[int, int] = {}
    working: list[int] = []

    def one_works() -> bool:
        for pid in _parsers(services):
            if not _is_confined(pid):
                continue  # It uses processor time to start.
            ticks = _cpu_ticks(pid)
            if ticks - before.setdefault(pid, ticks) >= _WORKING_S * os.sysconf("SC_CLK_TCK"):
                working.append(pid)
        return bool(working)

    until(one_works)
    return working[0]


def test_no_parser_outlives_an_indexer_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path / "store", _SETTINGS) as services:
        services.client.ingest("a", Document(pdf_of(["read"])))
        busy = threading.Thread(target=_ingest_in_vain, args=(services,))
        busy.start()
        _working_parser(services)
        parsers = _parsers(services)
        assert parsers
        services.indexer.kill()
        busy.join(30)
        _assert_ended(parsers)


def test_no_parser_outlives_an_indexer_that_stops(tmp_path: Path) -> None:
    with running(tmp_path / "store", _SETTINGS) as services:
        services.client.ingest("a", Document(pdf_of(["read"])))
        parsers = _parsers(services)
        assert parsers
        assert services.indexer.stop() == 0
        _assert_ended(parsers)


def _ingest_in_vain(services: Running) -> None:
    with suppress(HragError):
        services.client.ingest("a", Document(repeated_page()), timeout_s=DEADLINE_S)


def _assert_ended(pids: set[int]) -> None:
    until(lambda: not any(is_alive(pid) for pid in pids))


def _parsers(services: Running) -> set[int]:
    """Returns the process ids of the indexer's child processes.

    Linux lists them per thread that started them.
    """
    tasks = Path(f"/proc/{services.indexer.pid}/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text("ascii").split()}
