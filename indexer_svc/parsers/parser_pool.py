"""Parser processes for all tenants: as many files at once as there are slots.

A tenant has at most half of the slots, so one with many slow files does not keep others
waiting. Beyond that, files wait in order, those of the tenant with the fewest in work first.

Processes stay for further files of the same tenant: the files of two tenants never meet in one
process, so a file that takes its parser over learns nothing of another tenant. One unused
process of each family of formats in use is started ahead, because a start takes a tenth of a
second.
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

import structlog

from hrag.observe import metrics
from hrag.values.deadline import Deadline
from hrag.values.errors import (
    HragError,
    InvalidArgument,
    ServiceUnavailable,
    TooBusy,
    TooLarge,
    UnreadableDocument,
)
from hrag.values.limits import MAX_PAGES
from indexer_svc.parsers.parsed_file import PAGE_BREAK, ParsedFile
from indexer_svc.parsers.parser_functions import Family, family_of
from indexer_svc.parsers.parser_process import ParserEnded, ParserNotStarted, ParserProcess
from indexer_svc.parsers.protocol import MalformedMessage, ParserFault

_log = structlog.get_logger()

_POLL_S = 0.05  # How often a wait for a slot checks whether the caller has left.
_FIELD = "content"
_CPU_LIMIT_SIGNAL = "SIGPROF"

_Use = tuple[str, Family]
"""The tenant whose files a process reads, and their formats."""


class _OutOfTime(Exception):
    """A file has taken HRAG_PARSER_TIMEOUT_S."""


class _Turn:
    """A file that waits for a slot."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id = tenant_id


class ParserPool:
    """Parses files in processes of their own; safe to call from several threads."""

    def __init__(
        self,
        slots: int,
        memory_bytes: int,
        timeout_s: float,
        start: Callable[[int, Family], ParserProcess] = ParserProcess,
    ) -> None:
        """Starts nothing yet. `slots` is at least 2; `start` starts a process of so much memory.

        It must read the formats of the family.
        """
        self._slots = slots
        self._share = slots // 2
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._start = partial(start, memory_bytes)
        # The kernel ends a process with the thread that has started it, so that none outlives
        # the indexer. This thread lives until `close`.
        self._starter = ThreadPoolExecutor(1, "parsers")
        self._spares: dict[Family, Future[ParserProcess]] = {}
        self._changed = threading.Condition()
        self._waiting: list[_Turn] = []
        self._running: Counter[str] = Counter()
        self._idle: OrderedDict[ParserProcess, _Use] = OrderedDict()
        self._is_closed = False
        self._has_warned = False

    def parse(
        self,
        tenant_id: str,
        deadline: Deadline,
        content: bytes,
        mime_type: str,
        max_text_bytes: int,
    ) -> ParsedFile:
        """Returns what a parser process reads from `content`.

        Raises:
            InvalidArgument, UnreadableDocument, TooLarge: the file cannot be read, makes its
                parser fail, or takes more than a limit.
            DeadlineExceeded, Cancelled: the caller does not wait any longer.
            TooBusy: no slot became free within HRAG_PARSER_TIMEOUT_S.
            ServiceUnavailable: no process can be started, or the pool is closed.
        """
        use = tenant_id, family_of(mime_type)
        with metrics.parser_call(), self._slot(tenant_id, deadline):
            process = self._taken(use)
            is_healthy = False
            try:
                parsed = self._parsed(process, deadline, content, mime_type, max_text_bytes)
                is_healthy = True
                return parsed
            except InvalidArgument:  # The file's fault, and the process has said so itself.
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
                self._give_back(process, use, is_healthy)

    def close(self) -> None:
        """Ends every process; files in work fail. Idempotent."""
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

    def _closed(self) -> ServiceUnavailable:
        return ServiceUnavailable("the indexer is stopping; send the document again")

    # A slot for a file

    @contextmanager
    def _slot(self, tenant_id: str, deadline: Deadline) -> Iterator[None]:
        turn = _Turn(tenant_id)
        with self._changed:
            self._waiting.append(turn)
            try:
                self._wait_for(turn, deadline)
                self._running[tenant_id] += 1
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running[tenant_id] -= 1
                if not self._running[tenant_id]:
                    del self._running[tenant_id]
                self._changed.notify_all()

    def _wait_for(self, turn: _Turn, deadline: Deadline) -> None:
        end_s = time.monotonic() + self._timeout_s
        while self._next_turn() is not turn:
            if self._is_closed:
                break
            deadline.check("waiting for a parser")
            if time.monotonic() > end_s:
                raise TooBusy(
                    f"no parser became free in {self._timeout_s} s; the indexer has {self._slots} "
                    f"(HRAG_PARSERS), of which a tenant may use {self._share} at once"
                )
            self._changed.wait(_POLL_S)
        if self._is_closed:
            raise self._closed()

    def _next_turn(self) -> _Turn | None:
        """The file that may start now: the first of the tenant with the fewest in work."""
        if self._running.total() >= self._slots:
            return None
        allowed = [turn for turn in self._waiting if self._running[turn.tenant_id] < self._share]
        return min(allowed, key=lambda turn: self._running[turn.tenant_id], default=None)

    # A process for a file

    def _taken(self, use: _Use) -> ParserProcess:
        """A process that has read files of no other tenant. Raises ServiceUnavailable."""
        while (idle := self._taken_idle(use)) is not None:
            if idle.is_alive:
                return idle
            idle.kill()
        try:
            process = self._taken_unused(use[1])
        except (OSError, RuntimeError) as error:  # No memory, no process, or no thread left.
            raise ServiceUnavailable(f"no parser can be started: {error}") from None
        self._end_surplus()
        return process

    def _taken_idle(self, use: _Use) -> ParserProcess | None:
        with self._changed:
            process = next((each for each, of in self._idle.items() if of == use), None)
            if process is not None:
                del self._idle[process]
            return process

    def _taken_unused(self, family: Family) -> ParserProcess:
        """The process that was started ahead, or a new one; starts the next one."""
        with self._changed:
            if self._is_closed:
                raise self._closed()
            spare = self._spares.get(family)
            started = spare or self._starter.submit(self._start, family)
            self._spares[family] = self._starter.submit(self._start, family)
        with suppress(OSError):  # It may have been tried long ago, when memory was short.
            process = started.result()
            if process.is_alive:
                return process
            process.kill()
        return self._starter.submit(self._start, family).result()

    def _end_surplus(self) -> None:
        """Ends those idle longest, so that there are no more processes than slots."""
        with self._changed:
            surplus = max(0, len(self._idle) + self._running.total() - self._slots)
            ending = [self._idle.popitem(last=False)[0] for _ in range(surplus)]
        for process in ending:
            process.kill()

    def _give_back(self, process: ParserProcess, use: _Use, is_healthy: bool) -> None:
        if is_healthy and process.is_reusable:
            with self._changed:
                if not self._is_closed:
                    self._idle[process] = use
                    return
        process.kill()

    # Parsing

    def _parsed(
        self,
        process: ParserProcess,
        deadline: Deadline,
        content: bytes,
        mime_type: str,
        max_text_bytes: int,
    ) -> ParsedFile:
        end_s = time.monotonic() + self._timeout_s

        def check() -> None:
            deadline.check("extracting")
            if time.monotonic() > end_s:
                raise _OutOfTime(f"{self._timeout_s} s")

        process.wait_until_ready(check)
        self._warn_of(process)
        request = {
            "mime_type": mime_type,
            "max_text_bytes": max_text_bytes,
            "cpu_s": self._timeout_s,
        }
        max_body_bytes = max_text_bytes + len(PAGE_BREAK) * MAX_PAGES
        return process.parse(request, content, max_body_bytes, check)

    def _warn_of(self, process: ParserProcess) -> None:
        if not process.is_confined and not self._has_warned:
            self._has_warned = True
            _log.warning("parser_unconfined", problem="its system calls cannot be filtered here")

    def _error_of(self, failure: Exception, mime_type: str) -> HragError:
        """The error for the caller when a parser has failed."""
        subject = f"{_FIELD} of type {mime_type}"
        if self._is_closed:
            return self._closed()
        if isinstance(failure, ParserNotStarted):
            return ServiceUnavailable(f"the parser does not start: {failure}")
        if isinstance(failure, _OutOfTime) or str(failure) == _CPU_LIMIT_SIGNAL:
            return TooLarge(
                f"{subject} takes longer to read than HRAG_PARSER_TIMEOUT_S allows, "
                f"{self._timeout_s} s",
                field=_FIELD,
            )
        if isinstance(failure, ParserEnded):
            return UnreadableDocument(
                f"{subject} made its parser end ({failure}); it is damaged, or reading it takes "
                f"more memory than HRAG_PARSER_MEMORY_BYTES allows, {self._memory_bytes}",
                field=_FIELD,
            )
        if isinstance(failure, ParserFault) and str(failure).startswith("MemoryError"):
            return TooLarge(
                f"{subject} takes more memory to read than HRAG_PARSER_MEMORY_BYTES allows, "
                f"{self._memory_bytes}",
                field=_FIELD,
            )
        return UnreadableDocument(f"{subject} cannot be read: {failure}", field=_FIELD)


def _problem(failure: Exception) -> str:
    """What the log says of a failure: no text of the file, which a fault's message may quote."""
    detail = str(failure)
    if isinstance(failure, ParserFault):
        detail = detail.partition(":")[0]
    return f"{type(failure).__name__.strip('_')}: {detail}"
