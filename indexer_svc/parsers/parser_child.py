"""A parser process: `python -m indexer_svc.parsers.parser_child MEMORY_BYTES FAMILY`.

Its input is a socket. It loads the parsers of its family of formats, confines itself, says that
it is ready, and then answers one file after another until its input ends. It imports no store,
no gRPC and no numpy, so that it starts fast and is small.
"""

import codecs
import os
import signal
import sys
from functools import partial

from indexer_svc.parsers.parser_functions import Family, load, parse
from indexer_svc.parsers.protocol import answer_to, message, received
from indexer_svc.parsers.sandbox import confine

_SOCKET = 0
_MAX_FILE_BYTES = 1 << 32


def main(memory_bytes: int, family: Family) -> None:
    """Serves files until the socket ends."""
    for name in ("utf-8", "utf-16-le"):  # Codecs are modules; once confined, none can be loaded.
        codecs.lookup(name)
    load(family)
    _send(message({"confined": confine(memory_bytes)}))
    while True:
        request, content = received(_receive, _MAX_FILE_BYTES)
        # Ends this process by SIGPROF, whatever library it is in.
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        _send(answer_to(partial(parse, content, request["mime_type"], request["max_text_bytes"])))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _receive(size: int) -> bytes:
    data = sys.stdin.buffer.read(size)  # Straight into one buffer, whatever its size.
    if len(data) < size:
        os._exit(0)  # The indexer has ended, or needs this process no longer.
    return data


def _send(parts: list[bytes]) -> None:
    for part in parts:
        unsent = memoryview(part)
        while unsent:
            unsent = unsent[os.write(_SOCKET, unsent) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), Family(sys.argv[2]))
