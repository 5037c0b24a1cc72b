"""The indexer's side of one parser process: starts it, sends files, receives answers, ends it.

The process starts with an environment that only says where Python finds its modules. It has one
socket and no other open file. The kernel ends it when the thread that has started it ends
(PR_SET_PDEATHSIG), so this thread must live as long as the process may be needed.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import Family
from indexer_svc.parsers.protocol import Head, answer_of, message, received

_MODULE = "indexer_svc.parsers.parser_child"
_ROOT = str(Path(__file__).resolve().parents[2])
_POLL_S = 0.05  # A wait calls `check` this often.
_RECEIVE_BYTES = 1 << 20
_KILLED_WAIT_S = 10.0
_ENDING_WAIT_S = 1.0

# A process ends after this many files, or once it has this much memory. PDFium's caches and a
# fragmented heap would otherwise stay for the next file.
_MAX_FILES = 1000
_MAX_RESIDENT_BYTES = 128 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_SIGNAL_NAMES = {int(number): number.name for number in signal.Signals}

Check = Callable[[], None]
"""A function that raises an error if waiting any longer is pointless."""


class ParserEnded(Exception):
    """The process has ended by itself. The message says how."""


class ParserNotStarted(ParserEnded):
    """The process has ended before it was ready."""


class ParserProcess:
    """A running parser process. Only one thread may use it at a time.

    `is_confined` is True if the kernel filters its system calls. It is set once the process is
    ready.
    """

    def __init__(self, memory_bytes: int, family: Family) -> None:
        """Starts a process for the formats of `family`, and does not wait for it.

        `memory_bytes` limits its address space. Raises OSError.
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
                    # Ctrl-C must reach only the indexer, which finishes its calls first.
                    start_new_session=True,
                )
        except OSError:
            our_socket.close()
            raise
        our_socket.settimeout(_POLL_S)
        self._socket = our_socket
        self._files = 0
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
        """True if the process is alive and has read few files and uses little memory."""
        try:
            resident_pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        except (OSError, IndexError):
            return False
        is_small = resident_pages * _PAGE_BYTES < _MAX_RESIDENT_BYTES
        return self.is_alive and is_small and self._files < _MAX_FILES

    def wait_until_ready(self, check: Check) -> None:
        """Waits until the process is ready. `check` is called repeatedly during the wait.

        Raises ParserNotStarted, MalformedMessage, and the errors of `check`.
        """
        if self._is_ready:
            return
        try:
            head, _body = received(partial(self._receive, check), 0)
        except (EOFError, ConnectionError):
            raise ParserNotStarted(self._end_of()) from None
        self.is_confined = head.get("confined") is True
        self._is_ready = True

    def parse(self, request: Head, content: bytes, max_body_bytes: int, check: Check) -> ParsedFile:
        """Sends `content` to the process and returns the parsed file.

        `max_body_bytes` limits the text of the answer. `check` is called repeatedly during the
        wait. Raises the InvalidArgument that the process reports. Also raises ParserEnded,
        ParserFault, MalformedMessage and the errors of `check`; after one of these the process
        must be killed.
        """
        self._files += 1
        try:
            for part in message(request, content):
                self._send(part, check)
            head, body = received(partial(self._receive, check), max_body_bytes)
        except (EOFError, ConnectionError):
            raise ParserEnded(self._end_of()) from None
        return answer_of(head, body)

    def kill(self) -> str:
        """Ends the process if it is alive; returns how it ended, for example SIGSEGV."""
        # The socket is closed after that. Otherwise the process might first end by itself.
        self._process.kill()
        self._socket.close()
        return self._how_it_ended(_KILLED_WAIT_S)

    def _end_of(self) -> str:
        """Returns how the process ended, after its socket was closed.

        The process may need a moment to end. If it does not end, kills it.
        """
        try:
            return self._how_it_ended(_ENDING_WAIT_S)
        except subprocess.TimeoutExpired:
            return self.kill()

    def _how_it_ended(self, timeout_s: float) -> str:
        """Waits for the end of the process; returns the name of the signal or the exit code."""
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
