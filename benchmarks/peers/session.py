"""Starts a worker's process and calls its methods. The driver uses it."""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from benchmarks.peers.registry import ROOT

_TAIL_LINES = 3
# These settings turn off telemetry and the network. Connections fail at once, because no proxy
# listens at this address.
_QUIET = {
    "HAYSTACK_TELEMETRY_ENABLED": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "HF_HUB_OFFLINE": "1",
    "TIKTOKEN_CACHE_DIR": str(ROOT / "hrag" / "text" / "data"),
    "https_proxy": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "no_proxy": "127.0.0.1,localhost",
}


class PeerFailed(Exception):
    """A peer is not installed, cannot start, or has failed."""


class Session:
    """A peer in a separate process, which runs during the session's `with` block."""

    def __init__(
        self,
        python: Path,
        worker: str,
        name: str,
        folder: Path,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Starts the module `worker` with the peer's name. Its files are in `folder`.

        `settings` are environment variables that are added to the present ones. Raises PeerFailed
        if the interpreter is missing.
        """
        if not python.exists():
            raise PeerFailed("not installed: `make bench-peers` installs it")
        folder.mkdir(parents=True)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", worker, name, folder / "files"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **_QUIET, **settings},
                text=True,
            )

    @property
    def pid(self) -> int:
        """The id of the worker's process."""
        return self._process.pid

    def __enter__(self) -> Self:
        """Waits until the peer is loaded. Raises PeerFailed if it is not installed."""
        try:
            self._read()
        except PeerFailed:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the worker and returns its reply.

        Raises PeerFailed if the worker fails.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"method": method, **parameters}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerFailed(self._log_tail()) from error
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise PeerFailed(self._log_tail())
        reply: dict[str, Any] = json.loads(line)
        if "failed" in reply:
            raise PeerFailed(reply["failed"])
        return reply

    def _end(self) -> None:
        """Closes the worker's standard input, which stops the worker, and waits for its end."""
        with suppress(BrokenPipeError), self._process:
            pass

    def _log_tail(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "ended: " + " / ".join(lines[-_TAIL_LINES:])
