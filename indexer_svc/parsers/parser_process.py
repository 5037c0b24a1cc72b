"""One parser process, as the indexer sees it: start, a file in, an answer out, end.

The process starts with an empty environment but for where Python finds its modules, and with
one socket, no other open file. It ends with the thread that has started it (PR_SET_PDEATHSIG),
so that thread must live as long as the process may.
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
_POLL_S = 0.05  # How often a wait checks the deadline and whether the caller has left.
_RECEIVE_BYTES = 1 << 20
_KILLED_WAIT_S = 10.0
_ENDING_WAIT_S = 1.0

# PDFium's caches and a fragmented heap would stay for the next file.
_MAX_FILES = 1000
_MAX_RESIDENT_BYTES = 128 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_SIGNAL_NAMES = {int(each): each.name for each in signal.Signals}

Check = Callable[[], None]
"""Raises if there is no point in waiting any longer."""


class ParserEnded(Exception):
    """The process has ended by itself; the text says how."""


class ParserNotStarted(ParserEnded):
    """The process has ended before it was ready."""


class ParserProcess:
    """A running parser process, used by one thread at a time."""

    def __init__(self, memory_bytes: int, family: Family) -> None:
        """Starts a process for the formats of `family`, not waiting for it. Raises OSError."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-B", "-s", "-S", "-P", "-m", _MODULE, str(memory_bytes), family]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={"PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, sys.path)])},
                    start_new_session=True,  # Ctrl-C is for the indexer, which drains first.
                )
        except OSError:
            ours.close()
            raise
        ours.settimeout(_POLL_S)
        self._socket = ours
        self._files = 0
        self._is_ready = False
        self.is_confined = False

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def is_reusable(self) -> bool:
        """Whether it lives, and has neither read many files nor kept much memory."""
        try:
            resident_pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        except (OSError, IndexError):
            return False
        small = resident_pages * _PAGE_BYTES < _MAX_RESIDENT_BYTES
        return self.is_alive and small and self._files < _MAX_FILES

    def wait_until_ready(self, check: Check) -> None:
        """Raises ParserNotStarted, MalformedMessage, and what `check` raises."""
        if self._is_ready:
            return
        try:
            head, _body = received(partial(self._receive, check), 0)
        except (EOFError, ConnectionError):
            raise ParserNotStarted(self._end_of()) from None
        self.is_confined = head.get("confined") is True
        self._is_ready = True

    def parse(self, request: Head, content: bytes, max_body_bytes: int, check: Check) -> ParsedFile:
        """Returns what the process reads from `content`.

        Raises the InvalidArgument that the process reports; ParserEnded, ParserFault,
        MalformedMessage, and what `check` raises: then the process must be killed.
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
        """Ends the process, if it has not ended; returns how it ended, such as SIGSEGV."""
        self._process.kill()  # Before its socket closes, or it might end by itself first.
        self._socket.close()
        return self._how_it_ended(_KILLED_WAIT_S)

    def _end_of(self) -> str:
        """How the process ended after its socket has; it may need a moment to end."""
        try:
            return self._how_it_ended(_ENDING_WAIT_S)
        except subprocess.TimeoutExpired:
            return self.kill()

    def _how_it_ended(self, timeout_s: float) -> str:
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
