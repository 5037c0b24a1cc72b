"""Starts a parser process, sends files to it, receives its answers, and ends it.

This module runs in the indexer. The environment variables of the parser process contain only the
paths where Python finds its modules. The process has one socket and no other open file. The kernel
ends the process when the thread that has started it ends (PR_SET_PDEATHSIG), so this thread must
run as long as the process may be needed.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hrag.values.page_images import PageImage
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import FormatFamily
from indexer_svc.parsers.protocol import (
    Head,
    answer_of,
    image_of,
    message,
    progress_of,
    received,
    words_of,
)
from indexer_svc.parsers.recognised_words import RecognisedWords

_MODULE = "indexer_svc.parsers.parser_child"
_ROOT = str(Path(__file__).resolve().parents[2])
# While the indexer waits for a parser process, the caller's function `check` is called at this
# interval.
_POLL_S = 0.05
_RECEIVE_BYTES = 1 << 20
_KILLED_WAIT_S = 10.0
_ENDING_WAIT_S = 1.0

# After this many files, or once it occupies this much memory, a parser process is ended and
# replaced by a new process. Otherwise PDFium's caches and the fragmentation of the heap would grow
# with each file.
MAX_FILES = 1000
_MAX_RESIDENT_BYTES = 128 << 20
# The models of a process that recognises text, and the memory for one page, are larger.
_MAX_RECOGNISER_BYTES = 1 << 30
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_SIGNAL_NAMES = {int(number): number.name for number in signal.Signals}

Check = Callable[[], None]
"""A function that raises an error if the caller need not wait any longer."""


class ParserEnded(Exception):
    """Raised if a parser process has ended unexpectedly.

    The message says how the process has ended, for example `exit code 1` or `SIGSEGV`.
    """


class ParserNotStarted(ParserEnded):
    """Raised if a parser process has ended before it was ready to read files."""


class ParserProcess:
    """A running parser process. Only one thread may use it at a time.

    `is_confined` is True if the kernel filters the system calls of the process. It is set once the
    process is ready.
    """

    def __init__(self, memory_bytes: int, family: FormatFamily, max_files: int = MAX_FILES) -> None:
        """Starts a process for the formats of `family`; does not wait until the process is ready.

        `memory_bytes` limits the address space of the process. After `max_files` files, the process
        is not reusable. Raises OSError if no process can be started.
        """
        our_socket, child_socket = socket.socketpair()
        command = [sys.executable, "-B", "-s", "-S", "-P", "-m", _MODULE, str(memory_bytes), family]
        try:
            with child_socket:
                self._process = subprocess.Popen(
                    command,
                    stdin=child_socket.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={"PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, sys.path)])},
                    # Ctrl-C must not end the parser process: it must reach only the indexer, which
                    # finishes its calls before it stops.
                    start_new_session=True,
                )
        except OSError:
            our_socket.close()
            raise
        our_socket.settimeout(_POLL_S)
        self._socket = our_socket
        is_recogniser = family is FormatFamily.OCR
        self._max_resident_bytes = _MAX_RECOGNISER_BYTES if is_recogniser else _MAX_RESIDENT_BYTES
        self._files = 0
        self._max_files = max_files
        self._is_ready = False
        self.is_confined = False

    @property
    def pid(self) -> int:
        """The id of the process."""
        return int(self._process.pid)

    @property
    def is_alive(self) -> bool:
        """True if the process has not ended."""
        return self._process.poll() is None

    @property
    def is_reusable(self) -> bool:
        """True if the process may read a further file.

        The process must be alive, and must be below its limits of files and of memory.
        """
        try:
            resident_pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        except (OSError, IndexError):
            return False
        is_small = resident_pages * _PAGE_BYTES < self._max_resident_bytes
        return self.is_alive and is_small and self._files < self._max_files

    def wait_until_ready(self, check: Check) -> None:
        """Waits until the process is ready. `check` is called repeatedly during the wait.

        Raises ParserNotStarted, MalformedMessage, and the errors of `check`.
        """
        if self._is_ready:
            return
        try:
            head, _body = received(partial(self._receive, check), 0)
        except (EOFError, ConnectionError):
            raise ParserNotStarted(self._describe_end()) from None
        self.is_confined = head.get("confined") is True
        self._is_ready = True

    def parse(
        self,
        request: Head,
        content: bytes,
        max_body_bytes: int,
        check: Check,
        on_page: Callable[[int], None] = lambda _page_count: None,
    ) -> ParsedFile:
        """Sends `content` to the process, which must be ready, and returns the parsed file.

        `max_body_bytes` limits the text in the process's answer. `check` is called repeatedly
        during the wait. `on_page` is called before a page is recognised, with the count of the
        pages that the process has recognised. If the process reports that the file cannot be read,
        raises the reported InvalidArgument. Also raises ParserEnded, ParserFault, MalformedMessage
        and the errors of `check` and `on_page`; after one of these errors the process must be
        killed.
        """
        return answer_of(*self._exchange(request, content, max_body_bytes, check, on_page))

    def show_page(
        self, request: Head, content: bytes, max_png_bytes: int, max_boxes: int, check: Check
    ) -> PageImage:
        """Sends a request to show a page of `content`, and returns the image.

        `max_png_bytes` and `max_boxes` limit the answer. Raises the errors of `parse`.
        """
        answer = self._exchange(request, content, max_png_bytes, check)
        return image_of(*answer, max_boxes, len(request["page"]["spans"]))

    def page_words(
        self, request: Head, content: bytes, check: Check, on_page: Callable[[int], None]
    ) -> RecognisedWords:
        """Sends a request to recognise a page of `content`, and returns its words.

        `on_page` is called before the page is recognised. Raises the errors of `parse`.
        """
        head, _body = self._exchange(request, content, 0, check, on_page)
        return words_of(head)

    def _exchange(
        self,
        request: Head,
        content: bytes,
        max_body_bytes: int,
        check: Check,
        on_page: Callable[[int], None] = lambda _page_count: None,
    ) -> tuple[Head, bytes]:
        """Sends a request; returns the head and the body of the answer."""
        self._files += 1
        try:
            for part in message(request, content):
                self._send(part, check)
            head, body = received(partial(self._receive, check), max_body_bytes)
            while (page_count := progress_of(head)) is not None:
                on_page(page_count)
                head, body = received(partial(self._receive, check), max_body_bytes)
        except (EOFError, ConnectionError):
            raise ParserEnded(self._describe_end()) from None
        return head, body

    def kill(self) -> str:
        """Ends the process if it is alive; returns how the process ended, for example `SIGSEGV`."""
        # The process is killed before the socket is closed. If the socket were closed first, the
        # process would end by itself, and the result could be `exit code 0`.
        self._process.kill()
        self._socket.close()
        return self._wait_for_end(_KILLED_WAIT_S)

    def _describe_end(self) -> str:
        """Waits for the end of a process that has closed its socket; returns how the process ended.

        If the process does not end within _ENDING_WAIT_S seconds, kills the process.
        """
        try:
            return self._wait_for_end(_ENDING_WAIT_S)
        except subprocess.TimeoutExpired:
            return self.kill()

    def _wait_for_end(self, timeout_s: float) -> str:
        """Waits until the process has ended; returns its exit code or the signal that ended it."""
        code = self._process.wait(timeout_s)
        if code >= 0:
            return f"exit code {code}"
        return _SIGNAL_NAMES.get(-code, f"signal {-code}")

    def _send(self, data: bytes, check: Check) -> None:
        unsent = memoryview(data)
        while unsent:
            check()
            try:
                unsent = unsent[self._socket.send(unsent) :]
            except TimeoutError:
                continue

    def _receive(self, check: Check, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            check()
            try:
                part = self._socket.recv(min(size - len(data), _RECEIVE_BYTES))
            except TimeoutError:
                continue
            if not part:
                raise EOFError
            data += part
        return bytes(data)
