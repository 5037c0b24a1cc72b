"""With several indexers and retrievers on one database, no update is lost and no read is stale."""

import itertools
import json
import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER, Service
from hrag.client import Client
from hrag.types import Document, IngestOutcome, Retrieval
from tests.support.servers.processes import FAST, Process, started
from tests.support.servers.stores import check_store
from tests.support.until import until

pytestmark = pytest.mark.postgres

_INDEXERS, _RETRIEVERS, _WRITERS = 2, 3, 4
_HOME_LEAVES = 256
_LOAD_S = 6.0
# The log rounds times to milliseconds.
_ROUNDED_S = 0.005
_SETTINGS = {
    **FAST,
    "HRAG_POSTGRES_HOME_LEAVES": str(_HOME_LEAVES),
    "HRAG_LOG_FORMAT": "json",
    "HIERARCHICAL_CHUNK_LEVELS": "32,128",
    "SMALL_TO_BIG_RETURN_LEVEL": "1",
}
_BUILT = ("part_built", "parts_merged", "home_built")


def _text(document_id: str, version: int, sentences: int) -> str:
    """Returns a text in which every sentence has the word `<document id>x<version>`.

    No other text has this word.
    """
    word = f"{document_id}x{version}"
    return "".join(f"Sentence {n} of {word} is about things. " for n in range(sentences))


class _Writer:
    """Writes a separate set of documents; each call goes to a random indexer.

    `stored` has the documents that must be stored at the end.
    """

    def __init__(self, number: int, clients: list[Client]) -> None:
        self.stored: dict[str, str] = {}
        self.steps = 0
        self._name = f"w{number}"
        self._clients = clients
        self._random = random.Random(number)

    def run(self, stop: threading.Event) -> None:
        for version in itertools.count():
            if stop.is_set():
                return
            self._step(version)
            self.steps += 1

    def _step(self, version: int) -> None:
        document_id = f"{self._name}d{self._random.randrange(12)}"
        old = self.stored.get(document_id)
        if old is not None and self._random.random() < 0.2:
            sequence = self._any_client.delete_document("t", document_id)
            del self.stored[document_id]
        else:
            new = _text(document_id, version, self._random.randrange(2, 60))
            done = self._any_client.ingest("t", Document(new, document_id))
            outcome = IngestOutcome.CREATED if old is None else IngestOutcome.UPDATED
            assert done.outcome is outcome
            sequence = done.sequence
            self.stored[document_id] = new
        self._read(document_id, old, sequence)

    def _read(self, document_id: str, old: str | None, sequence: int) -> None:
        """Fails unless a search finds the new text without duplicates, and not the old text."""
        new = self.stored.get(document_id)
        for text, expected in ((old, False), (new, True)):
            if text is None:
                continue
            (word,) = set(re.findall(r"\w+x\d+", text))
            result = self._any_client.search(
                "t", f"+{word}", min_sequence=sequence, retrieval=Retrieval.LEXICAL, limit=100
            )
            chunks = [passage.chunk.chunk_id for passage in result.passages]
            assert bool(chunks) is expected, (word, expected)
            assert len(chunks) == len(set(chunks))
            assert {passage.chunk.document_id for passage in result.passages} <= {document_id}
            assert all(passage.chunk.content in text for passage in result.passages)

    @property
    def _any_client(self) -> Client:
        return self._random.choice(self._clients)


def _search(client: Client, stop: threading.Event) -> int:
    """Searches until `stop` is set; returns how many searches it made.

    Fails if a result has a passage twice.
    """
    for number in itertools.count():
        if stop.is_set():
            return number
        result = client.search("t", f"Sentence {number} is about things.", limit=20)
        chunks = [passage.chunk.chunk_id for passage in result.passages]
        assert len(chunks) == len(set(chunks))
    raise AssertionError


@contextmanager
def _side_by_side(data_dir: Path) -> Iterator[tuple[list[Process], list[Process]]]:
    """Runs several indexers and retrievers on one database; yields them when they serve."""
    with ExitStack() as closing:

        def several(service: Service, count: int) -> list[Process]:
            processes = [
                closing.enter_context(started(service, data_dir, _SETTINGS)) for _ in range(count)
            ]
            for process in processes:
                process.wait_until_serving()
            return processes

        yield several(INDEXER, _INDEXERS), several(RETRIEVER, _RETRIEVERS)


def _events(indexers: list[Process]) -> set[str]:
    return {event for builds in _builds(indexers).values() for *_, event in builds}


def _builds(indexers: list[Process]) -> dict[int, list[tuple[float, float, str]]]:
    """Returns the builds of each collection as the logs of all indexers report them.

    A build has its begin and end, in seconds since 1970, and its event.
    """
    builds_by_collection: dict[int, list[tuple[float, float, str]]] = {}
    # An indexer may be writing the last line of its log in this moment.
    logs = (indexer.log.rpartition("\n")[0].splitlines() for indexer in indexers)
    for line in itertools.chain.from_iterable(logs):
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("event") in _BUILT:
            end = datetime.fromisoformat(entry["timestamp"]).timestamp()
            build = (end - entry["seconds"], end, entry["event"])
            builds_by_collection.setdefault(entry["collection"], []).append(build)
    return {collection: sorted(builds) for collection, builds in builds_by_collection.items()}


def _assert_one_at_a_time(builds: list[tuple[float, float, str]]) -> None:
    for (_, end, earlier), (begin, _, later) in itertools.pairwise(builds):
        assert end < begin + _ROUNDED_S, (earlier, later, end - begin)


def _load(clients: list[Client]) -> dict[str, str]:
    """Writes and searches for at least `_LOAD_S`; returns the texts that must be stored."""
    stop = threading.Event()
    writers = [_Writer(number, clients) for number in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS + len(clients)) as threads:
        work = [threads.submit(writer.run, stop) for writer in writers]
        work += [threads.submit(_search, client, stop) for client in clients]
        wait(work, _LOAD_S, FIRST_EXCEPTION)
        try:
            # A slow machine needs longer for so many steps.
            until(lambda: all(w.steps > 5 for w in writers) or any(t.done() for t in work))
        finally:
            stop.set()
        for task in work:
            task.result()
    return dict(itertools.chain.from_iterable(writer.stored.items() for writer in writers))


def test_several_indexers_and_retrievers_lose_no_update_and_return_no_stale_state(
    data_dir: Path,
) -> None:
    with _side_by_side(data_dir) as (indexers, retrievers), ExitStack() as closing:
        clients = [
            closing.enter_context(Client(indexer.address, retriever.address))
            for indexer, retriever in itertools.product(indexers, retrievers)
        ]
        clients[0].create_collection("t", "default")
        filled = {f"filled{number}": _text(f"filled{number}", 0, 60) for number in range(40)}
        documents = [Document(text, name) for name, text in filled.items()]
        for client, batch in ((clients[0], documents[::2]), (clients[-1], documents[1::2])):
            list(client.ingest_many("t", batch))
        expected = filled | _load(clients)
        for client in clients:
            listed = client.list_documents("t", page_size=1000).items
            assert [info.document_id for info in listed] == sorted(expected)
            assert client.index_status("t").document_count == len(expected)
        assert {name: clients[0].get_text("t", name) for name in expected} == expected
        until(lambda: {"home_built", "part_built"} <= _events(indexers), 60)
        for builds in _builds(indexers).values():
            _assert_one_at_a_time(builds)
    check_store(data_dir)
