"""Files made to harm their parser cost their own call alone: not the indexer, not other tenants.

Each is read or refused within its caller's deadline; meanwhile another tenant's files are read.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hrag.errors import DeadlineExceeded, HragError, InvalidArgument, TooLarge, UnreadableDocument
from hrag.types import MARKDOWN, PLAIN_TEXT, Document
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

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(300)]

DEADLINE_S = 5.0
MIB = 1 << 20
_MARGIN_S = 1.0
_LONG_S = 100.0
_GROWTH_BYTES = 100 * MIB
_OTHERS_S = 4.0  # For a small PDF, on a busy machine; a quiet one takes some milliseconds.
_SETTINGS = {**FAST, "HRAG_PARSERS": "2", "HRAG_PARSER_TIMEOUT_S": "20"}
_LIGHT = sorted({*PDF_BOMBS} - {"inflating page", "repeated page"})


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("parsers") / "store", _SETTINGS) as services:
        for tenant in ("attacker", "neighbour"):
            services.client.ingest(tenant, Document(pdf_of(["warm up"])))
        yield services


def _resident_bytes(services: Running) -> int:
    """The memory of the indexer itself at its peak, without its children."""
    status = Path(f"/proc/{services.indexer.pid}/status").read_text("ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@contextmanager
def _neighbour_goes_on(services: Running) -> Iterator[None]:
    """Ingests small PDFs of another tenant all the while; none may take long."""
    ended = threading.Event()
    taken_s: list[float] = []
    failures: list[HragError] = []

    def ingest() -> None:
        with services.new_client() as client:
            while not ended.is_set() or not taken_s:
                began = time.monotonic()
                try:
                    client.ingest("neighbour", Document(pdf_of([f"Page of {began}"])))
                    taken_s.append(time.monotonic() - began)
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


def _outcome(services: Running, document: Document) -> HragError | None:
    """Ingests within the deadline and the margin; returns the error, if it is refused."""
    began = time.monotonic()
    try:
        services.client.ingest("attacker", document, timeout_s=DEADLINE_S)
    except HragError as error:
        return error
    finally:
        assert time.monotonic() - began < DEADLINE_S + _MARGIN_S
    return None


def _is_clear(error: HragError | None) -> bool:
    return error is None or isinstance(error, InvalidArgument | DeadlineExceeded)


def _until_idle(services: Running) -> None:
    """Until the indexer has noticed that the callers have left."""
    end_s = time.monotonic() + 2 * _MARGIN_S
    while True:
        try:
            services.client.ingest("attacker", Document(pdf_of(["idle?"])), timeout_s=_MARGIN_S)
        except HragError:
            assert time.monotonic() < end_s
        else:
            return


@pytest.mark.parametrize("bomb", [inflating_page, repeated_page])
def test_a_pdf_bomb_harms_nobody(services: Running, bomb: Callable[[], bytes]) -> None:
    before = _resident_bytes(services)
    with _neighbour_goes_on(services):
        error = _outcome(services, Document(bomb()))
        assert isinstance(error, UnreadableDocument | TooLarge | DeadlineExceeded)
    assert _resident_bytes(services) - before < _GROWTH_BYTES
    _until_idle(services)


@pytest.mark.parametrize("name", _LIGHT)
def test_every_other_bomb_is_read_or_refused(services: Running, name: str) -> None:
    before = _resident_bytes(services)
    content = PDF_BOMBS[name]()
    with _neighbour_goes_on(services):
        assert _is_clear(_outcome(services, Document(content)))
    assert _resident_bytes(services) - before < _GROWTH_BYTES
    _until_idle(services)


@pytest.mark.parametrize(
    "text",
    [nested_lists(400_000), list_items(400_000), lazy_lines(150_000)],
    ids=["nested", "flat", "lazy"],
)
def test_markdown_of_nothing_but_markers_takes_no_time_of_the_indexer(
    services: Running, text: str
) -> None:
    """It is parsed elsewhere; what the indexer does itself, it does for any text."""

    def ingest(mime_type: str) -> None:
        document = Document(text, mime_type=mime_type)
        services.client.ingest("attacker", document, timeout_s=_LONG_S)

    plain = _cpu_s(services, lambda: ingest(PLAIN_TEXT))
    assert _cpu_s(services, lambda: ingest(MARKDOWN)) < plain + 1.0


def _cpu_s(services: Running, work: Callable[[], object]) -> float:
    """Processor time of the indexer itself, in seconds, for `work`."""

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
    with _neighbour_goes_on(services):
        for thread in attackers:
            thread.start()
        for thread in attackers:
            thread.join(60)
    assert [type(error) for error in errors] == [DeadlineExceeded] * 6
    _until_idle(services)


def test_a_parser_knows_no_secret_and_holds_no_file(services: Running) -> None:
    end_s = time.monotonic() + 10
    while True:  # One may still be starting, and those of earlier tests may be ending.
        holdings = [_holdings(pid) for pid in _parsers(services)]
        if holdings and None not in holdings:
            break
        assert time.monotonic() < end_s
        time.sleep(0.05)
    for holding in holdings:
        assert holding == ({b"PYTHONPATH"}, ["socket"])


def _holdings(pid: int) -> tuple[set[bytes], list[str]] | None:
    """The variables and the kinds of open files of a filtered process; None of any other."""
    process = Path(f"/proc/{pid}")
    try:
        status = (process / "status").read_text("ascii")
        environment = (process / "environ").read_bytes().split(b"\0")
        opened = [str(each.readlink()) for each in (process / "fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return None
    if not ("Seccomp:\t2" in status and "NoNewPrivs:\t1" in status):
        return None
    return (
        {each.partition(b"=")[0] for each in environment if each},
        [each.partition(":")[0] for each in opened if each != "/dev/null"],
    )


def test_a_crash_of_a_parser_is_the_error_of_its_file_alone(services: Running) -> None:
    errors: list[HragError | None] = []
    slow = threading.Thread(
        target=lambda: errors.append(_outcome(services, Document(repeated_page())))
    )
    slow.start()
    time.sleep(1.0)
    os.kill(_busiest(services), signal.SIGSEGV)
    slow.join(60)
    (error,) = errors
    assert isinstance(error, UnreadableDocument)
    assert "SIGSEGV" in error.message
    assert "parser_failed" in services.indexer.log
    assert all(is_alive(pid) for pid in _parsers(services))


def _busiest(services: Running) -> int:
    """The parser that takes the most processor time at present."""
    before = {pid: _cpu_ticks(pid) for pid in _parsers(services)}
    time.sleep(0.5)
    return max(before, key=lambda pid: _cpu_ticks(pid) - before[pid])


def test_no_parser_outlives_an_indexer_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path / "store", _SETTINGS) as services:
        services.client.ingest("a", Document(pdf_of(["read"])))
        busy = threading.Thread(target=_ingest_in_vain, args=(services,))
        busy.start()
        time.sleep(1.0)
        parsers = _parsers(services)
        assert parsers
        services.indexer.kill()
        busy.join(30)
        _assert_ended(parsers)


def test_a_stop_ends_every_parser(tmp_path: Path) -> None:
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
    end_s = time.monotonic() + 5
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end_s, "a parser lives on"
        time.sleep(0.05)


def _parsers(services: Running) -> set[int]:
    """Process ids of the indexer's children, whichever thread has started them."""
    tasks = Path(f"/proc/{services.indexer.pid}/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text("ascii").split()}
