"""After SIGTERM under load, both services end soon, and no acknowledged write is lost."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from hrag.client import Client
from hrag.errors import HragError
from hrag.types import DEFAULT_COLLECTION, MAX_PAGE_SIZE, Document
from tests.crash.documents import VARIABLES, document_of, text_of
from tests.crash.harness import MIN_RECALL_OF_FEW
from tests.crash.ledger import Collection, Entry
from tests.crash.load import Done, Searcher, UnaryWriter, Worker, work_until_gone
from tests.crash.verify import ExactSearch, settle
from tests.support.servers.forked import program_with_output
from tests.support.servers.processes import Running, running
from tests.support.until import PATIENCE_S, until

_TENANT = "large"
_STREAMED = "streamed"
# The client of the long stream waits for this time before each document. So it does not write too
# many documents, all of which are verified.
_BETWEEN_S = 0.005
# The seconds in which a service ends that has to do so soon. It does not wait for its clients.
_EXIT_S = PATIENCE_S


@dataclass
class LongStream:
    """A client with a single call of IngestDocuments, which sends documents without end."""

    client: Client
    done: Done = field(default_factory=Done)
    acknowledged: list[str] = field(default_factory=list)

    def step(self) -> None:
        for result in self.client.ingest_many(_STREAMED, self._documents()):
            if isinstance(result, HragError):
                raise result
            self.acknowledged.append(result.document_id)

    def _documents(self) -> Iterator[Document]:
        for number in count():
            time.sleep(_BETWEEN_S)
            yield document_of(_STREAMED, f"s{number}", 1)


def _collection(client: Client) -> Collection:
    client.create_collection(_TENANT, DEFAULT_COLLECTION)
    collection = Collection(_TENANT, DEFAULT_COLLECTION)
    collection.existence.acknowledge(collection.existence.send(stores=True))
    collection.documents = {f"d{number:03}": Entry() for number in range(120)}
    return collection


def _workers(client: Client, collection: Collection) -> list[Worker]:
    ids = sorted(collection.documents)
    return [
        *(UnaryWriter(client, collection, ids[n::3], random.Random(n)) for n in range(3)),
        *(Searcher(client, [collection], random.Random(n)) for n in range(3)),
    ]


@pytest.mark.slow
def test_sigterm_under_load_loses_no_acknowledged_write(tmp_path: Path) -> None:
    data_dir = tmp_path / "store"
    with running(data_dir, VARIABLES) as services, services.new_client() as client:
        collection = _collection(client)
        stream = LongStream(client)
        workers = [*_workers(client, collection), stream]
        with ThreadPoolExecutor(len(workers)) as threads:
            tasks = [threads.submit(work_until_gone, worker, Event()) for worker in workers]
            try:
                until(lambda: _well_under_way(workers, stream))
                assert not any(task.done() for task in tasks)
                _stop_both(services)
                for task in tasks:
                    task.result(PATIENCE_S)
            finally:
                client.close()  # If a call hangs, this ends it.
    with running(data_dir, VARIABLES) as services:
        assert settle(services.client, _TENANT, {DEFAULT_COLLECTION: collection}) == []
        exact = ExactSearch(_TENANT, collection.versions())
        recalls = exact.compare(services.client, random.Random(0))
        assert sum(recalls) / len(recalls) >= MIN_RECALL_OF_FEW
        _verify_stream(services.client, stream.acknowledged)


def _well_under_way(workers: list[Worker], stream: LongStream) -> bool:
    """Returns True if every client has done some work."""
    steps = (worker.done.acknowledged + worker.done.searches for worker in workers[:-1])
    return len(stream.acknowledged) > 200 and min(steps) > 10


def _stop_both(services: Running) -> None:
    began_s = time.monotonic()
    processes = (services.retriever, services.indexer)
    for process in processes:
        process.terminate()
    for process in processes:
        assert process.wait(_EXIT_S - (time.monotonic() - began_s)) == 0, process.log


def _verify_stream(client: Client, acknowledged: list[str]) -> None:
    """Fails unless every acknowledged document is stored, and every stored document is complete."""
    stored = set(_listed(client))
    assert set(acknowledged) <= stored
    for document_id in stored:
        assert client.get_text(_STREAMED, document_id) == text_of(_STREAMED, document_id, 1)


def _listed(client: Client) -> Iterator[str]:
    token = ""
    while True:
        listing = client.list_documents(_STREAMED, page_size=MAX_PAGE_SIZE, page_token=token)
        yield from (info.document_id for info in listing.items)
        token = listing.next_page_token
        if not token:
            return


# The kernel delivers a signal to any thread of the process, even to a thread that is just starting
# another thread. But only the main thread runs Python's signal handlers.
_STARTS_THREADS = """
import threading
from hrag.config import IndexerSettings
from hrag.server.serving.service_process import run

def start_threads():
    while True:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

def serve(settings, stopping):
    for _ in range(4):
        threading.Thread(target=start_threads, daemon=True).start()
    print("serving", flush=True)
    stopping.wait()

run("indexer", IndexerSettings, serve)
"""


def test_a_service_that_is_starting_threads_notices_sigterm() -> None:
    with ExitStack() as closing:
        children = [
            closing.enter_context(program_with_output("-c", _STARTS_THREADS)) for _ in range(8)
        ]
        for _, output in children:
            assert output.readline() == "serving\n"
        for child, _ in children:
            child.terminate()
        assert [child.wait(_EXIT_S) for child, _ in children] == [0] * len(children)
