"""A parser process: `python -m indexer_svc.parsers.parser_child MEMORY_BYTES FAMILY`.

Its standard input is a socket. The process loads the parsers of its family of formats, confines
itself, and reports that it is ready. Then it parses and answers one file after another until its
input ends. It does not import the store, gRPC or numpy, so that it starts fast and needs little
memory.
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
    """Parses files until the socket is closed. `memory_bytes` limits its address space."""
    # Codecs are modules, and a confined process cannot load modules.
    for name in ("utf-8", "utf-16-le"):
        codecs.lookup(name)
    load(family)
    _send(message({"confined": confine(memory_bytes)}))
    while True:
        request, content = received(_receive, _MAX_FILE_BYTES)
        # When the processor time is used up, SIGPROF ends this process, even inside a library.
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        _send(answer_to(partial(parse, content, request["mime_type"], request["max_text_bytes"])))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _receive(size: int) -> bytes:
    # This reads directly into one buffer of any size.
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        # The indexer has ended, or it does not need this process any more.
        os._exit(0)
    return data


def _send(parts: list[bytes]) -> None:
    for part in parts:
        unsent = memoryview(part)
        while unsent:
            unsent = unsent[os.write(_SOCKET, unsent) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), Family(sys.argv[2]))
