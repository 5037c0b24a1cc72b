"""A collection moves to another embedder while it is in use, and processes are killed.

The services have both embedders. Writers and deleters repeat each change until it is acknowledged,
as clients do, and record what was acknowledged. The indexer and the command `hrag reembed` are
killed again and again. At the end, the collection must have exactly the recorded documents, each
once, with vectors of the new embedder, and no search may have failed.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from typing import Any

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER
from hrag.client import Client
from hrag.errors import DocumentNotFound, HragError
from hrag.filters import Match
from hrag.types import Document, Retrieval, SearchMode, SettingsRequest
from tests.endurance.report import Report
from tests.support.servers.forked import HRAG, Forked
from tests.support.servers.processes import Process, started
from tests.support.servers.stores import check_store
from tests.support.until import until

TENANT, COLLECTION, ALIAS, COPY = "t", "docs", "books", "docs.reembed"
OLD, NEW = "hash:64", "hash:32"
BEFORE = {"HRAG_EMBEDDER": OLD, "HRAG_INDEXER_NICENESS": "0"}
DURING = {**BEFORE, "HRAG_EMBEDDER": NEW, "HRAG_PREVIOUS_EMBEDDER": OLD}
SETTINGS = SettingsRequest(level_sizes=(32, 64, 128))
# A document has about ten leaves.
SENTENCES = 32
SEED = 4711
# Only each of these documents is changed. The others must be found by every search.
CHANGED = 4
PATIENCE_S = 120.0
WRITER_PAUSE_S = 0.02


def text_of(number: int, version: int) -> str:
    words = (f"Document name{number} of version {version} says line {n}." for n in range(SENTENCES))
    return " ".join(words)


@dataclass
class Ledger:
    """What was acknowledged: for each document its version, or None if it was deleted."""

    versions: dict[str, int | None] = field(default_factory=dict)
    changes: int = 0


class Load:
    """Threads that write, delete and search until they are stopped."""

    def __init__(self, client: Client, documents: int) -> None:
        self.ledger = Ledger({f"d{number}": 0 for number in range(documents)})
        self.problems: list[Any] = []
        self.searches = 0
        self.slowest_search_s = 0.0
        self.slowest_change_s = 0.0
        self._client = client
        self._documents = documents
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work, number))
            for number, work in enumerate((self._write, self._write, self._search, self._search))
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[random.Random, int], None], number: int) -> None:
        drawn = random.Random(SEED + number)
        while not self._stopping.is_set():
            try:
                work(drawn, number)
            except Exception as error:
                self.problems.append(error)
                return

    def _write(self, drawn: random.Random, writer: int) -> None:
        """Changes one document. Each writer has documents of its own, so it knows their state."""
        number = CHANGED * (2 * drawn.randrange(self._documents // (2 * CHANGED)) + writer)
        name, versions = f"d{number}", self.ledger.versions
        kind, began = drawn.choice(("put", "put", "metadata", "delete")), time.monotonic()
        if kind == "put" or versions[name] is None:
            version = (versions[name] or 0) + 1
            document = Document(text_of(number, version), name, metadata={"v": version})
            self._repeat(lambda: self._client.ingest(TENANT, document, collection=ALIAS))
            versions[name] = version
        elif kind == "metadata":
            version, change = versions[name], {"seen": drawn.randrange(100)}
            assert version is not None
            self._repeat(
                lambda: self._client.update_metadata(TENANT, name, change, collection=ALIAS)
            )
        else:
            self._repeat(lambda: self._delete(name))
            versions[name] = None
        self.ledger.changes += 1
        self.slowest_change_s = max(self.slowest_change_s, time.monotonic() - began)
        time.sleep(WRITER_PAUSE_S)

    def _delete(self, name: str) -> None:
        # A deletion that was repeated may have been done by the first try.
        with suppress(DocumentNotFound):
            self._client.delete_document(TENANT, name, collection=ALIAS)

    def _repeat(self, change: Callable[[], object]) -> None:
        """Repeats a change while the indexer is down."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                change()
                return
            except HragError as error:
                if not _is_outage(error) or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _search(self, drawn: random.Random, _: int) -> None:
        """Searches for a document that never changes, which must be the only result.

        Either a word or a filter says which document this is.
        """
        number = CHANGED * drawn.randrange(self._documents // CHANGED) + 1
        by_word = drawn.random() < 0.5
        line = f"{'+' * by_word}name{number} says line {drawn.randrange(SENTENCES)}"
        mode = drawn.choice((SearchMode.SMALL_TO_BIG, SearchMode.CONTEXT, SearchMode.STANDARD))
        only = None if by_word else Match("document_id", (f"d{number}",))
        began = time.monotonic()
        result = self._client.search(
            TENANT,
            line,
            collection=drawn.choice((ALIAS, COLLECTION)),
            mode=mode,
            filter=only,
            retrieval=Retrieval.HYBRID if by_word else Retrieval.DENSE,
        )
        self.slowest_search_s = max(self.slowest_search_s, time.monotonic() - began)
        self.searches += 1
        found = {passage.chunk.document_id for passage in result.passages}
        if found != {f"d{number}"} or result.fallback:
            self.problems.append((line, found, result.fallback))


def _is_outage(error: HragError) -> bool:
    return type(error).__name__ in {"ServiceUnavailable", "DeadlineExceeded", "Cancelled"}


@contextmanager
def command(indexer: str, log: Path, *options: str) -> Iterator[Forked]:
    arguments = ("reembed", COLLECTION, "--tenant", TENANT, "--indexer", indexer, *options)
    program = Forked((*HRAG, *arguments), environ, log)
    try:
        yield program
    finally:
        program.kill()
        program.wait()


def _filled(data_dir: Path, documents: int) -> tuple[str, int]:
    """Fills the collection with the old embedder.

    Returns the address of the indexer, which has stopped, and the count of leaves.
    """
    with started(INDEXER, data_dir, BEFORE) as indexer:
        indexer.wait_until_serving()
        with Client(indexer.address) as client:
            client.create_collection(TENANT, COLLECTION, SETTINGS)
            client.set_alias(TENANT, ALIAS, COLLECTION)
            sent = (Document(text_of(n, 0), f"d{n}", metadata={"v": 0}) for n in range(documents))
            list(client.ingest_many(TENANT, sent, collection=COLLECTION))
            leaves = client.index_status(TENANT, collection=COLLECTION).leaf_count
    return indexer.address, leaves


@pytest.mark.parametrize(
    ("documents", "kills"),
    [
        pytest.param(24, 1, id="short"),
        pytest.param(2000, 10, id="long", marks=[pytest.mark.endurance, pytest.mark.timeout(1800)]),
    ],
)
def test_a_collection_moves_under_load_and_kills(
    tmp_path: Path, documents: int, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir, drawn = tmp_path / "store", random.Random(SEED)
    address, leaves = _filled(data_dir, documents)
    indexer = Process(INDEXER, data_dir, DURING, address)
    try:
        indexer.wait_until_serving()
        with (
            started(RETRIEVER, data_dir, DURING) as retriever,
            Client(address, retriever.address) as client,
        ):
            retriever.wait_until_serving()
            began, log = time.monotonic(), tmp_path / "command.log"
            with Load(client, documents) as load:
                until(lambda: load.problems or load.ledger.changes > CHANGED, PATIENCE_S)
                for kill in range(kills):
                    share = (kill + drawn.random()) / kills
                    with command(address, log) as reembed:
                        _wait_for_copies(client, share * documents * 0.95, reembed)
                        # The kill comes at a random point of what the processes are doing.
                        time.sleep(drawn.random() * 0.05)
                        if kill % 2:
                            reembed.kill()
                        else:
                            indexer.kill()
                            indexer = Process(INDEXER, data_dir, DURING, address)
                            indexer.wait_until_serving()
                with command(address, log) as reembed:
                    assert reembed.wait(PATIENCE_S * 5) == 0, log.read_text()
                moved_s = time.monotonic() - began
                # The load also continues after the move.
                changes, searches = load.ledger.changes, load.searches
                until(lambda: load.problems or load.searches > searches + 10, PATIENCE_S)
            assert load.problems == []
            assert changes
            assert searches
            _verify(client, load.ledger)
            with command(address, log := tmp_path / "again.json", "--json") as again:
                assert again.wait(PATIENCE_S) == 0
            assert json.loads(log.read_text()) == {
                "collection": COLLECTION,
                "embedder": NEW.replace(":", "/"),
                "embedded_documents": 0,
                "sequence": 0,
            }
            Report(capsys).record(
                "embedded again under load",
                f"{leaves:,} leaves moved in {moved_s:.1f} s with {kills} kills, "
                f"{changes:,} changes (slowest {load.slowest_change_s:.2f} s) and "
                f"{searches:,} searches (slowest {load.slowest_search_s:.2f} s)",
            )
        assert indexer.stop() == 0
    finally:
        indexer.kill()
    check_store(data_dir)


def _wait_for_copies(client: Client, count: float, reembed: Forked) -> None:
    """Waits until the copy has at least `count` documents, or the command has ended."""

    def is_reached() -> bool:
        if reembed.poll() is not None:
            return True
        try:
            return client.count_documents(TENANT, collection=COPY).documents >= count
        except HragError:
            return False

    until(is_reached, PATIENCE_S)


def _verify(client: Client, ledger: Ledger) -> None:
    expected = {name: version for name, version in ledger.versions.items() if version is not None}
    (collection,) = client.list_collections(TENANT).items
    assert (collection.name, collection.document_count) == (COLLECTION, len(expected))
    assert collection.settings.dimension == int(NEW.partition(":")[2])
    assert client.get_collection(TENANT, ALIAS) == collection
    stored, token = {}, ""
    while True:
        page = client.list_documents(TENANT, collection=ALIAS, page_size=1000, page_token=token)
        for info in page.items:
            assert info.document_id not in stored
            stored[info.document_id] = info.metadata["v"]
        token = page.next_page_token
        if not token:
            break
    assert stored == expected
    for name in random.Random(SEED).sample(sorted(expected), min(20, len(expected))):
        text = client.get_text(TENANT, name, collection=ALIAS)
        assert text == text_of(int(name[1:]), expected[name])
    usage = client.index_status(TENANT, collection=ALIAS).tenant
    assert (usage.collections, usage.documents) == (1, len(expected))
