"""The attacks that load the services, each with its rate.

`python -m tests.attacks.attackers NAME TARGET` runs one attack until SIGTERM. It has the lowest
priority, so that on a machine with few cores it loads the services and does not take the processor
from them. The module `test_service_under_attack` and `benchmarks/under_attack.py` run the same
attacks.

A call that gets an error is repeated after a millisecond, because attackers do not give up.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import grpc

from hrag.client.calls import channel_options
from hrag.v1 import indexer_pb2, retriever_pb2, types_pb2
from hrag.values.filters import AnyOf, Range
from hrag.values.formats import DOCX, EPUB, HTML
from hrag.wire.filters import filter_message
from tests.attacks.http2 import Connection, ReferenceSender, half_open
from tests.attacks.world import ATTACKER, BATCH_SEARCH, INGEST, SEARCH
from tests.support.documents.bombs import TALL_ROW, WIDE_ROW, wide_tables
from tests.support.documents.format_files import epub_file
from tests.support.servers.forked import program_with_output

MARKERS = "[1] " * 8192
"""The answer of the chat model to the attacker: 32 KiB of citations."""
_ANSWER = "/hrag.v1.RetrieverService/Answer"
_COUNT = "/hrag.v1.IndexerService/CountDocuments"
_WATCH = "/grpc.health.v1.Health/Watch"
_HALF_OPEN = 8800
_RESETTING_CONNECTIONS, _RESETS_OF_CONNECTION = 8, 1000
_BETWEEN_FLOODS_S = 5.0
_UNREAD_WATCHES = 240
_METADATA_KEYS = 400_000
_RANGES_REFUSED, _RANGES_ALLOWED = 9990, 32
_TIMEOUT_S = 60.0
_BEGUN = "begun"


@dataclass(frozen=True)
class Target:
    """The addresses that are attacked, as `host:port`, and the key of the attacking tenant."""

    indexer: str
    retriever: str
    gateway: str
    key: str
    key_file: str

    @property
    def services(self) -> tuple[str, str]:
        return self.indexer, self.retriever


Step = Callable[[], object]
Prepare = Callable[[Target, ExitStack], list[Step]]


@dataclass(frozen=True)
class Attack:
    """An attack. `what` states the attack and its rate.

    `prepare` returns steps. Each step is repeated in a thread of its own, without a pause. What the
    attack holds open is closed with the ExitStack.
    """

    what: str
    prepare: Prepare


# Strangers.


def _references(target: Target, ending: ExitStack) -> list[Step]:
    steps: list[Step] = []
    for address in target.services:
        connect = partial(Connection, address, acknowledges=False)
        sender = ReferenceSender(connect, SEARCH)
        ending.callback(sender.close)
        steps.append(sender)
    return steps


def _half_open_calls(target: Target, _ending: ExitStack) -> list[Step]:
    """Half of the calls are a stranger's, the others have the key of the attacking tenant."""

    def flood(address: str, method: str) -> None:
        with (
            half_open(address, method, _HALF_OPEN // 2),
            half_open(address, method, _HALF_OPEN // 2, target.key),
        ):
            time.sleep(_BETWEEN_FLOODS_S)

    return [partial(flood, target.indexer, INGEST), partial(flood, target.retriever, SEARCH)]


def _resets(target: Target, _ending: ExitStack) -> list[Step]:
    def flood(address: str) -> None:
        with ExitStack() as ending:
            for _ in range(_RESETTING_CONNECTIONS):
                connection = Connection(address)
                ending.callback(connection.close)
                connection.open_and_reset(SEARCH, _RESETS_OF_CONNECTION)
            time.sleep(_BETWEEN_FLOODS_S)

    return [partial(flood, address) for address in target.services]


def _watches(target: Target, ending: ExitStack) -> list[Step]:
    for address in target.services:
        connection = Connection(address, window_bytes=0)
        ending.callback(connection.close)
        for _ in range(_UNREAD_WATCHES):
            connection.call(_WATCH, b"")
        connection.wait_until_read()
    return []


# A tenant with a key of the role WRITE.


def _repeated_call(target: Target, address: str, method: str, message: bytes) -> Step:
    """Returns a step that makes a call and reads its whole reply."""
    call = grpc.insecure_channel(address, channel_options(address)).unary_stream(method)
    metadata = (("authorization", f"Bearer {target.key}"),)
    return lambda: sum(map(len, call(message, metadata=metadata, timeout=_TIMEOUT_S)))


def _answers(target: Target, _ending: ExitStack) -> list[Step]:
    search = retriever_pb2.SearchRequest(tenant_id=ATTACKER, text="which ship passed")
    message = retriever_pb2.AnswerRequest(search=search).SerializeToString()
    return [_repeated_call(target, target.retriever, _ANSWER, message) for _ in range(4)]


def _batches(target: Target, _ending: ExitStack) -> list[Step]:
    search = retriever_pb2.SearchRequest(
        tenant_id=ATTACKER,
        text="word",
        mode=retriever_pb2.SEARCH_MODE_CONTEXT,
        token_budget=1_000_000,
        candidates=10_000,
    )
    message = retriever_pb2.BatchSearchRequest(searches=[search] * 32).SerializeToString()
    return [_repeated_call(target, target.retriever, BATCH_SEARCH, message) for _ in range(4)]


def _filters(target: Target, _ending: ExitStack) -> list[Step]:
    steps: list[Step] = []
    for ranges in (_RANGES_REFUSED, _RANGES_ALLOWED):
        filter = filter_message(
            AnyOf([Range("metadata.number", above=n / 2, below=n) for n in range(1, ranges + 1)])
        )
        search = retriever_pb2.SearchRequest(tenant_id=ATTACKER, text="word", filter=filter)
        count = indexer_pb2.CountDocumentsRequest(tenant_id=ATTACKER, filter=filter)
        steps += [
            _repeated_call(target, address, method, message.SerializeToString())
            for address, method, message in (
                (target.retriever, SEARCH, search),
                (target.indexer, _COUNT, count),
            )
        ]
    return steps


def _files(target: Target, _ending: ExitStack) -> list[Step]:
    files = {
        DOCX: wide_tables(20, 2_000),
        EPUB: epub_file({"a.xhtml": f"<p>x<table>{WIDE_ROW * 30_000}"}),
        HTML: f"<p>x<table>{TALL_ROW * 100_000}".encode(),
    }
    steps = []
    for mime_type, content in files.items():
        document = types_pb2.Document(document_id="file", mime_type=mime_type, content=content)
        request = indexer_pb2.IngestDocumentRequest(tenant_id=ATTACKER, document=document)
        message = request.SerializeToString()
        steps.append(_repeated_call(target, target.indexer, INGEST, message))
    return steps


def _json(target: Target, _ending: ExitStack) -> list[Step]:
    metadata = {f"k{number}": number for number in range(_METADATA_KEYS)}
    document = {"text": "x", "metadata": metadata}
    body = json.dumps({"tenantId": ATTACKER, "document": document}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {target.key}"}

    def post() -> None:
        connection = HTTPConnection(target.gateway, timeout=_TIMEOUT_S)
        with closing(connection):
            connection.request("POST", INGEST, body, headers)
            connection.getresponse().read()

    return [post] * 4


# An operator's mistake.


def _fifo(target: Target, ending: ExitStack) -> list[Step]:
    """Replaces the file of keys with a FIFO, whose opener waits for a writer."""
    keys = Path(target.key_file)
    saved = keys.with_suffix(".saved")
    keys.rename(saved)
    ending.callback(saved.rename, keys)
    os.mkfifo(keys, 0o600)
    return []


ATTACKS = {
    "references": Attack(
        "calls with 12,000 references to one header, 1.2 MB/s to each service", _references
    ),
    "half_open": Attack(
        f"{_HALF_OPEN:,} half-open calls to each service every {_BETWEEN_FLOODS_S:g} s",
        _half_open_calls,
    ),
    "resets": Attack(
        f"{_RESETTING_CONNECTIONS * _RESETS_OF_CONNECTION:,} calls, reset at once, to each service "
        f"every {_BETWEEN_FLOODS_S:g} s",
        _resets,
    ),
    "watches": Attack(f"{_UNREAD_WATCHES} unread health watches of each service", _watches),
    "answers": Attack("four answers at once of 8,192 markers each", _answers),
    "batches": Attack(
        "four batches at once of 32 searches with a token budget of 1,000,000", _batches
    ),
    "filters": Attack(
        f"searches and counts by {_RANGES_REFUSED:,} and by {_RANGES_ALLOWED} ranges, four at once",
        _filters,
    ),
    "files": Attack("three small DOCX, EPUB and HTML files at once that declare much", _files),
    "json": Attack(f"four JSON documents at once with {_METADATA_KEYS:,} keys of metadata", _json),
    "fifo": Attack("the file of keys is a FIFO", _fifo),
}


@contextmanager
def attacking(name: str, target: Target) -> Iterator[None]:
    """Runs an attack in a process of its own during the block. The attack has begun at its start.

    The attack has ended when the block has ended.
    """
    arguments = ("-m", "tests.attacks.attackers", name, json.dumps(asdict(target)))
    with program_with_output(*arguments) as (program, lines):
        output = lines.readline()
        assert output == f"{_BEGUN}\n", output + lines.read()
        yield
        program.terminate()
        program.wait(_TIMEOUT_S)


def main(name: str, target: Target) -> None:
    """Runs an attack until SIGTERM."""
    os.nice(19)
    # The signal is blocked in all threads, so that it waits until this thread takes it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with ExitStack() as ending:
        steps = ATTACKS[name].prepare(target, ending)
        for step in steps:
            threading.Thread(target=_repeat, args=(step,), daemon=True).start()
        print(_BEGUN, flush=True)  # noqa: T201 - the parent process waits for this line
        signal.sigwait({signal.SIGTERM})
    # The threads are in calls, for which the end of an interpreter would wait.
    os._exit(0)


def _repeat(step: Step) -> None:
    while True:
        with suppress(Exception):
            step()
            continue
        time.sleep(0.001)


if __name__ == "__main__":
    main(sys.argv[1], Target(**json.loads(sys.argv[2])))
