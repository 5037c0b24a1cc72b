"""A pool of parser processes for all tenants.

While a file is parsed, it occupies one of the pool's slots, so the count of slots limits how many
files are parsed at once. A tenant occupies at most half of all slots, so the files of other tenants
need not wait for the many slow files of one tenant. A slot that becomes free goes to a file of the
tenant that occupies the fewest slots. If several tenants occupy equally few slots, the file that
has waited longest is next.

A process is kept for further files of the same tenant. The files of two tenants are never read by
the same process, so a hostile file that takes over its process learns nothing about another tenant.
For each family of formats that has been needed, one process is started in advance for the next
tenant, because a start takes a tenth of a second. A family is a set of formats that the same
process can read.

A pool for text recognition is a separate pool, so that scans, which take minutes, never delay other
files. Its processes have more memory. Each page, not each file, has a time limit there, and a file
waits for a slot as long as its caller does. Only a page that a reader wants to see waits for a
shorter time, because a scan of many pages may occupy the slot for minutes. No process is started in
advance: the start takes less time than a page, and the models take much memory.
"""

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import structlog

from hrag.observe import metrics
from hrag.values.deadline import Deadline
from hrag.values.document_limits import MAX_PAGES
from hrag.values.errors import (
    HragError,
    InvalidArgument,
    ServiceUnavailable,
    TooBusy,
    TooLarge,
    UnreadableDocument,
)
from hrag.values.page_images import MAX_PAGE_BOXES, PageImage
from indexer_svc.parsers.parsed_file import PAGE_BREAK, ParsedFile
from indexer_svc.parsers.parser_functions import FormatFamily, format_family
from indexer_svc.parsers.parser_process import (
    Check,
    ParserEnded,
    ParserNotStarted,
    ParserProcess,
)
from indexer_svc.parsers.protocol import MalformedMessage, ParserFault
from indexer_svc.parsers.recognised_words import RecognisedWords

_log = structlog.get_logger()

# While a file waits for a slot, the interval at which the pool checks whether the call's deadline
# has passed or the call was cancelled.
_POLL_S = 0.05
_FIELD = "content"
_CPU_LIMIT_SIGNAL = "SIGPROF"
# A process loads its libraries in 1 to 3 s. On a busy machine it may take a minute.
_MAX_START_S = 120.0
# A page that a reader wants to see waits this long for a slot of text recognition.
_RECOGNISED_PAGE_WAIT_S = 5.0
# The log reports the progress of text recognition after this many pages. They take about a minute.
_PAGES_PER_LOG = 20

Parse = Callable[[bytes, str, int, bool], ParsedFile]
"""Parses a file in another process.

The arguments are the bytes, their MIME type, the largest size of the text in bytes of UTF-8, and
whether the parts of a web page around its content are read too.
"""
TenantParse = Callable[[str, Deadline, bytes, str, int, bool], ParsedFile]
"""Parses a file for a tenant, like Parse, with two more arguments before the others.

They are the tenant's id and the deadline of the call.
"""

ShowPage = Callable[[str, Deadline, bytes, str, Mapping[str, Any], int], PageImage]
"""Renders a page in a parser process; see `ParserPool.show_page`."""
PageWords = Callable[[str, Deadline, bytes, str, int], RecognisedWords]
"""Recognises a page in a parser process; see `ParserPool.page_words`."""

Result = TypeVar("Result")
_OnPage = Callable[[int], None]
_Assignment = tuple[str, FormatFamily]
"""The tenant whose files a process reads, and the family of their formats."""


@dataclass(frozen=True, slots=True)
class _SettingNames:
    """The names of the settings by which the limits of a pool can be changed, for messages."""

    slots: str
    memory_bytes: str
    timeout_s: str


_PARSER_SETTINGS = _SettingNames(
    "HRAG_PARSERS", "HRAG_PARSER_MEMORY_BYTES", "HRAG_PARSER_TIMEOUT_S"
)
_OCR_SETTINGS = _SettingNames("HRAG_OCR_PROCESSES", "HRAG_OCR_MEMORY_BYTES", "HRAG_OCR_TIMEOUT_S")


class _OutOfTime(Exception):
    """Raised when a file, or a page that is recognised, has taken too long."""


class _WaitingFile:
    """A file that waits for a free slot, because all slots that its tenant may use are occupied."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id = tenant_id


class ParserPool:
    """Parses files in a limited number of parser processes. Safe to call from several threads."""

    def __init__(
        self,
        slots: int,
        memory_bytes: int,
        timeout_s: float,
        start: Callable[[int, FormatFamily], ParserProcess] = ParserProcess,
        *,
        max_recognised_pages: int = 0,
        max_start_s: float = _MAX_START_S,
    ) -> None:
        """Starts no process yet.

        `slots`, at least 2, is the count of files that may be parsed at once. `memory_bytes` limits
        the address space of a process. A file may wait for a slot for `timeout_s` seconds, and then
        be parsed for `timeout_s` seconds. `start` is called with `memory_bytes` and a family of
        formats. It must start a process that reads the formats of this family. The process must be
        ready within `max_start_s` seconds, which do not count as time of the file.

        If `max_recognised_pages` is not 0, this is a pool for text recognition. It recognises at
        most this many pages of a file, each of which may take `timeout_s` seconds.
        """
        self._max_recognised_pages = max_recognised_pages
        self._settings = _OCR_SETTINGS if max_recognised_pages else _PARSER_SETTINGS
        self._max_page_wait_s = _RECOGNISED_PAGE_WAIT_S if max_recognised_pages else timeout_s
        self._slots = slots
        self._tenant_slots = slots // 2
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._max_start_s = max_start_s
        self._start = partial(start, memory_bytes)
        # The kernel ends a parser process when the thread that has started the process ends. So no
        # parser process outlives the indexer. For the same reason, one thread, which runs until
        # `close`, must start all parser processes.
        self._starter = ThreadPoolExecutor(1, "parsers")
        self._spares: dict[FormatFamily, Future[ParserProcess]] = {}
        self._changed = threading.Condition()
        self._waiting: list[_WaitingFile] = []
        self._running: Counter[str] = Counter()
        self._idle: OrderedDict[ParserProcess, _Assignment] = OrderedDict()
        self._is_closed = False
        self._has_warned = False

    def parse(
        self,
        tenant_id: str,
        deadline: Deadline,
        content: bytes,
        mime_type: str,
        max_text_bytes: int,
        keep_boilerplate: bool = False,
    ) -> ParsedFile:
        """Parses `content` in a parser process and returns the result.

        With `keep_boilerplate`, the parts of a web page around its content are read too.

        Raises:
            InvalidArgument, UnreadableDocument, TooLarge: the file cannot be read, makes its
                parser fail, or exceeds a limit.
            DeadlineExceeded, Cancelled: `deadline` has passed, or the call was cancelled.
            TooBusy: no slot became free within HRAG_PARSER_TIMEOUT_S. A pool for text recognition
                does not raise it.
            ServiceUnavailable: no process can be started, or the pool is closed.
        """
        recognises = self._max_recognised_pages > 0
        assignment = tenant_id, FormatFamily.OCR if recognises else format_family(mime_type)
        request = {
            "mime_type": mime_type,
            "max_text_bytes": max_text_bytes,
            "keep_boilerplate": keep_boilerplate,
            "cpu_s": self._timeout_s,
            "max_pages": self._max_recognised_pages,
        }
        max_body_bytes = max_text_bytes + len(PAGE_BREAK) * MAX_PAGES

        def parse(process: ParserProcess, check: Check, on_page: _OnPage) -> ParsedFile:
            return process.parse(request, content, max_body_bytes, check, on_page)

        max_wait_s = math.inf if recognises else self._timeout_s
        return self._run(assignment, deadline, content, mime_type, parse, max_wait_s)

    def show_page(
        self,
        tenant_id: str,
        deadline: Deadline,
        content: bytes,
        mime_type: str,
        page: Mapping[str, Any],
        max_png_bytes: int,
    ) -> PageImage:
        """Renders a page of `content` in a parser process.

        `page` has the arguments of `page_image` after the first, except `max_png_bytes`. Raises the
        errors of `parse`, and TooLarge if the image has more than `max_png_bytes` bytes.
        """
        assignment = tenant_id, format_family(mime_type)
        arguments = {**page, "max_png_bytes": max_png_bytes}
        request = {"mime_type": mime_type, "cpu_s": self._timeout_s, "page": arguments}

        def show(process: ParserProcess, check: Check, _on_page: _OnPage) -> PageImage:
            return process.show_page(request, content, max_png_bytes, MAX_PAGE_BOXES, check)

        return self._run(assignment, deadline, content, mime_type, show, self._max_page_wait_s)

    def page_words(
        self, tenant_id: str, deadline: Deadline, content: bytes, mime_type: str, index: int
    ) -> RecognisedWords:
        """Recognises a page of `content` in a process of a pool for text recognition.

        `index` counts the pages from 0. Raises the errors of `parse`, and TooBusy.
        """
        request = {
            "mime_type": mime_type,
            "cpu_s": self._timeout_s,
            "max_pages": 1,
            "recognised_page": index,
        }

        def recognise(process: ParserProcess, check: Check, on_page: _OnPage) -> RecognisedWords:
            return process.page_words(request, content, check, on_page)

        assignment = tenant_id, FormatFamily.OCR
        return self._run(assignment, deadline, content, mime_type, recognise, self._max_page_wait_s)

    def _run(
        self,
        assignment: _Assignment,
        deadline: Deadline,
        content: bytes,
        mime_type: str,
        work: Callable[[ParserProcess, Check, _OnPage], Result],
        max_wait_s: float,
    ) -> Result:
        """Calls `work` with a parser process that is ready, and returns its result.

        Raises TooBusy if no slot becomes free within `max_wait_s` seconds.
        """
        with metrics.parser_call(), self._slot(assignment[0], deadline, max_wait_s):
            process = self._acquire_process(assignment)
            is_healthy = False
            try:
                result = self._work_in(process, deadline, content, work)
                is_healthy = True
                return result
            except InvalidArgument:
                # The process itself has reported that the file cannot be read, so the process is
                # not damaged and may read further files.
                is_healthy = True
                raise
            except (ParserEnded, ParserFault, MalformedMessage, _OutOfTime) as failure:
                _log.warning(
                    "parser_failed",
                    problem=_problem(failure),
                    mime_type=mime_type,
                    size_bytes=len(content),
                )
                raise self._error_of(failure, mime_type) from None
            finally:
                self._release_process(process, assignment, is_healthy)

    def close(self) -> None:
        """Ends every parser process. May be called repeatedly.

        Parsing the files that are being read fails with ServiceUnavailable.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            processes = list(self._idle)
            self._idle.clear()
            spares = list(self._spares.values())
            self._spares.clear()
        self._starter.shutdown()
        processes += [spare.result() for spare in spares if spare.exception() is None]
        for process in processes:
            process.kill()

    @property
    def waiting_count(self) -> int:
        """The count of files that wait for a free slot."""
        with self._changed:
            return len(self._waiting)

    def _closing_error(self) -> ServiceUnavailable:
        return ServiceUnavailable("the indexer is stopping; send the document again")

    # The following methods wait until one of the slots is free for a file.

    @contextmanager
    def _slot(self, tenant_id: str, deadline: Deadline, max_wait_s: float) -> Iterator[None]:
        file = _WaitingFile(tenant_id)
        with self._changed:
            self._waiting.append(file)
            try:
                self._wait_for(file, deadline, max_wait_s)
                self._running[tenant_id] += 1
            finally:
                self._waiting.remove(file)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running[tenant_id] -= 1
                if not self._running[tenant_id]:
                    del self._running[tenant_id]
                self._changed.notify_all()

    def _wait_for(self, file: _WaitingFile, deadline: Deadline, max_wait_s: float) -> None:
        end_s = time.monotonic() + max_wait_s
        while self._next_file() is not file:
            if self._is_closed:
                break
            deadline.check("waiting for a parser")
            if time.monotonic() > end_s:
                raise TooBusy(
                    f"no parser became free in {max_wait_s} s; the indexer has {self._slots} "
                    f"({self._settings.slots}), and one tenant may use at most "
                    f"{self._tenant_slots} at once"
                )
            self._changed.wait(_POLL_S)
        if self._is_closed:
            raise self._closing_error()

    def _next_file(self) -> _WaitingFile | None:
        """Returns the waiting file that may be parsed next, or None if no file may be parsed now.

        The files of the tenants that occupy the fewest slots come first. Among these files, the
        file that has waited longest is next.
        """
        if self._running.total() >= self._slots:
            return None
        limit = self._tenant_slots
        allowed = [file for file in self._waiting if self._running[file.tenant_id] < limit]
        return min(allowed, key=lambda file: self._running[file.tenant_id], default=None)

    # The following methods choose, start and end the processes that parse the files.

    def _acquire_process(self, assignment: _Assignment) -> ParserProcess:
        """Returns a process for a tenant and a family of formats.

        The process has read no file of another tenant. Raises ServiceUnavailable if no process can
        be started.
        """
        while (idle := self._pop_idle(assignment)) is not None:
            if idle.is_alive:
                return idle
            idle.kill()
        try:
            process = self._pop_unused(assignment[1])
        # The operating system has no memory for a process, or allows no more processes or threads.
        except (OSError, RuntimeError) as error:
            raise ServiceUnavailable(f"no parser can be started: {error}") from None
        self._end_surplus()
        return process

    def _pop_idle(self, assignment: _Assignment) -> ParserProcess | None:
        with self._changed:
            idle = self._idle.items()
            process = next((key for key, previous in idle if previous == assignment), None)
            if process is not None:
                del self._idle[process]
            return process

    def _pop_unused(self, family: FormatFamily) -> ParserProcess:
        """Returns a process that has read no file.

        If an earlier call has started a process in advance, returns this process, else a new
        process. Also starts a process for the next call in advance.
        """
        with self._changed:
            if self._is_closed:
                raise self._closing_error()
            spare = self._spares.get(family)
            started = spare or self._starter.submit(self._start, family)
            if family is not FormatFamily.OCR:
                self._spares[family] = self._starter.submit(self._start, family)
        # If the process could not be started, for example because there was not enough memory, or
        # if it has ended since, another process is started below.
        with suppress(OSError):
            process = started.result()
            if process.is_alive:
                return process
            process.kill()
        return self._starter.submit(self._start, family).result()

    def _end_surplus(self) -> None:
        """Ends idle processes until the pool has at most as many processes as slots.

        The processes that have been idle longest are ended first. Processes that were started in
        advance are not counted.
        """
        with self._changed:
            surplus = max(0, len(self._idle) + self._running.total() - self._slots)
            ending = [self._idle.popitem(last=False)[0] for _ in range(surplus)]
        for process in ending:
            process.kill()

    def _release_process(
        self, process: ParserProcess, assignment: _Assignment, is_healthy: bool
    ) -> None:
        if is_healthy and process.is_reusable:
            with self._changed:
                if not self._is_closed:
                    self._idle[process] = assignment
                    return
        process.kill()

    # The following methods parse a file in a process, and explain failures.

    def _work_in(
        self,
        process: ParserProcess,
        deadline: Deadline,
        content: bytes,
        work: Callable[[ParserProcess, Check, _OnPage], Result],
    ) -> Result:
        start_end_s = time.monotonic() + self._max_start_s
        next_count = 0

        def check_start() -> None:
            deadline.check("extracting")
            if time.monotonic() > start_end_s:
                raise ParserNotStarted(f"it was not ready in {self._max_start_s} s")

        process.wait_until_ready(check_start)
        self._warn_if_unconfined(process)
        end_s = time.monotonic() + self._timeout_s

        def check() -> None:
            deadline.check("extracting")
            if time.monotonic() > end_s:
                raise _OutOfTime(f"{self._timeout_s} s")

        def on_page(page_count: int) -> None:
            nonlocal end_s, next_count
            # Without this check, a process that a hostile file has taken over could prolong its
            # time for ever.
            if page_count != next_count or page_count >= self._max_recognised_pages:
                raise MalformedMessage(
                    f"the parser reports that {page_count} pages are recognised; it must report "
                    f"{next_count}, and at most {self._max_recognised_pages} are allowed"
                )
            next_count += 1
            end_s = time.monotonic() + self._timeout_s
            metrics.recognised_pages.inc()
            if page_count and not page_count % _PAGES_PER_LOG:
                _log.info("pages_recognised", pages=page_count, size_bytes=len(content))

        return work(process, check, on_page)

    def _warn_if_unconfined(self, process: ParserProcess) -> None:
        if not process.is_confined and not self._has_warned:
            self._has_warned = True
            _log.warning("parser_unconfined", problem="this machine cannot filter its system calls")

    def _error_of(self, failure: Exception, mime_type: str) -> HragError:
        """Returns the error for the caller if the parser has failed with `failure`."""
        if self._is_closed:
            return self._closing_error()
        subject = f"{_FIELD} of type {mime_type}"
        if isinstance(failure, ParserNotStarted):
            return ServiceUnavailable(f"the parser does not start: {failure}")
        if isinstance(failure, _OutOfTime) or str(failure) == _CPU_LIMIT_SIGNAL:
            each = " for each page" if self._max_recognised_pages else ""
            return TooLarge(
                f"{subject} takes longer to read than {self._settings.timeout_s} allows{each}, "
                f"{self._timeout_s} s",
                field=_FIELD,
                limit="parser_time",
            )
        if isinstance(failure, ParserEnded):
            return UnreadableDocument(
                f"{subject} made its parser end ({failure}); it is damaged, or reading it takes "
                f"more memory than {self._settings.memory_bytes} allows, {self._memory_bytes}",
                field=_FIELD,
            )
        if isinstance(failure, ParserFault) and str(failure).startswith("MemoryError"):
            return TooLarge(
                f"{subject} takes more memory to read than {self._settings.memory_bytes} allows, "
                f"{self._memory_bytes}",
                field=_FIELD,
                limit="parser_memory",
            )
        return UnreadableDocument(f"{subject} cannot be read: {failure}", field=_FIELD)


def _problem(failure: Exception) -> str:
    """Returns the description of a failure for the log.

    The message of a ParserFault may quote text of the file, which must not be logged. So the
    description has only the name of the error that the parser raised.
    """
    detail = str(failure)
    if isinstance(failure, ParserFault):
        detail = detail.partition(":")[0]
    return f"{type(failure).__name__.strip('_')}: {detail}"
