"""Reads documents as the indexer does, in a child process without store and server.

The command line does not import the indexer, so it starts the program `indexer_svc.file_reader`,
which confines the parsers of foreign formats like the indexer itself. The messages are described
there.
"""

import json
import struct
import subprocess
import sys
from typing import Any, Self

from hrag.cli.terminal import Failure
from hrag.values.documents import Document

_MODULE = "indexer_svc.file_reader"
_LENGTH = struct.Struct(">I")


class FileReader:
    """A child process that reads documents. It runs inside the `with` block."""

    def __enter__(self) -> Self:
        """Starts the process."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C must reach only the command, which then ends the process.
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends the process. It ends by itself when its standard input is closed."""
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def read(self, document: Document) -> dict[str, Any]:
        """Returns what was read of a document, or `{"error": {...}}`.

        Raises Failure if the process has ended, and InvalidArgument for values that cannot be sent.
        """
        # This module loads gRPC, which is slow to import.
        from hrag.wire.common import document_message  # noqa: PLC0415

        message = document_message(document).SerializeToString()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(_LENGTH.pack(len(message)))
            self._process.stdin.write(message)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> Failure:
        """Returns the error for a process that has ended. It has written why to standard error."""
        return Failure(f"the reader of files ended with exit code {self._process.wait()}")
