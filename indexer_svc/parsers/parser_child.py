"""A parser process: `python -m indexer_svc.parsers.parser_child MEMORY_BYTES FAMILY`.

Its standard input is a socket to the indexer. FAMILY is the set of formats that the process reads.
The process loads the parsers of these formats, limits its own rights (`sandbox`), and reports that
it is ready. Then it receives one file after another, parses the file and sends the result, until
the socket is closed. The process does not import the store, gRPC or numpy, so that it starts fast
and needs little memory.
"""

import codecs
import heapq  # noqa: F401 - `Counter.most_common` loads it on its first call.
import os
import signal
import sys
from functools import partial

from indexer_svc.parsers.parser_functions import FormatFamily, load, page_words, parse, show_page
from indexer_svc.parsers.protocol import (
    Head,
    answer_to,
    image_answer_to,
    message,
    progress,
    received,
    words_answer_to,
)
from indexer_svc.parsers.recognition import PageRecogniser, Recognise
from indexer_svc.parsers.sandbox import confine

_SOCKET = 0
_MAX_FILE_BYTES = 1 << 32


def main(memory_bytes: int, family: FormatFamily) -> None:
    """Parses files until the socket is closed.

    `memory_bytes` limits the address space of this process. `family` is the family of formats that
    this process can read.
    """
    # Python's codecs are modules. After `confine`, this process cannot load modules, so the codecs
    # are loaded now.
    for name in ("utf-8", "utf-16-le"):
        codecs.lookup(name)
    recognise = load(family)
    _send(message({"confined": confine(memory_bytes)}))
    while True:
        request, content = received(_receive, _MAX_FILE_BYTES)
        _limit_processor_time(request["cpu_s"])
        _send(_answer(request, content, recognise))
        _limit_processor_time(0)


def _answer(request: Head, content: bytes, recognise: Recognise | None) -> list[bytes]:
    if "page" in request:
        show = partial(show_page, content, request["mime_type"], request["page"])
        return image_answer_to(show)
    recogniser = _page_recogniser(recognise, request)
    if recogniser is not None and "recognised_page" in request:
        index = request["recognised_page"]
        return words_answer_to(
            partial(page_words, content, request["mime_type"], index, recogniser)
        )
    options = (request["mime_type"], request["max_text_bytes"], request["keep_boilerplate"])
    return answer_to(partial(parse, content, *options, recogniser))


def _limit_processor_time(cpu_s: float) -> None:
    """Limits the processor time from now on; 0 removes the limit.

    If parsing uses more than this time, the signal SIGPROF ends this process, even while code of a
    library runs.
    """
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def _page_recogniser(recognise: Recognise | None, request: Head) -> PageRecogniser | None:
    """Returns the recogniser for one file; None if this process recognises nothing.

    Each page has the whole processor time that a request allows.
    """
    if recognise is None:
        return None

    def on_page(page_count: int) -> None:
        _limit_processor_time(request["cpu_s"])
        _send(progress(page_count))

    return PageRecogniser(recognise, request["max_pages"], on_page)


def _receive(size: int) -> bytes:
    # `read` receives all bytes into one buffer, so the parts of a large file need not be joined.
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        # The socket is closed, because the indexer has ended or does not need this process any
        # more.
        os._exit(0)
    return data


def _send(parts: list[bytes]) -> None:
    for part in parts:
        unsent = memoryview(part)
        while unsent:
            unsent = unsent[os.write(_SOCKET, unsent) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), FormatFamily(sys.argv[2]))
