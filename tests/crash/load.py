"""Simultaneous clients, which write, read what they have written, delete and search.

Each document is written by only one client, so its responses arrive in the order of its writes. A
client works until the service has ended. Any other error fails the test.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from hrag.client import Client
from hrag.errors import HragError, ServiceUnavailable, StorageFull
from hrag.filters import DOCUMENT_ID, Match
from hrag.types import DEFAULT_CANDIDATES, MAX_LIMIT, IngestResult, Retrieval, SearchMode
from tests.crash.documents import SMALL, check_passage, document_of, prepared_of, random_query
from tests.crash.ledger import Collection, Entry, Write
from tests.support.documents.fakes import SCORE_TOLERANCE
from tests.support.documents.vocabulary import question

# A stream has at most this many documents. Storing them takes several group commits.
_MAX_STREAMED = 40
# This many documents have over a hundred leaves, which are enough for a segment. So deleting their
# collection also removes a segment.
_SCRATCH_DOCUMENTS = 12
_SCRATCH = "scratch-"
# These are the probabilities that a stored document is deleted, that a deletion is by a filter,
# that only the metadata of a stored document is changed, and that a write is read back.
_DELETED = 0.25
_BY_FILTER = 0.2
_REVISED = 0.2
_READ_BACK = 0.1


@dataclass
class Done:
    """Counts of what a client has done, and the recalls of its searches."""

    acknowledged: int = 0
    searches: int = 0
    recalls: list[float] = field(default_factory=list)

    def add(self, other: "Done") -> None:
        self.acknowledged += other.acknowledged
        self.searches += other.searches
        self.recalls += other.recalls


class Worker(Protocol):
    """A client that runs in a separate thread."""

    done: Done

    def step(self) -> None:
        """Makes one call, or a few calls of which the later ones check the first one."""


def work_until_gone(worker: Worker, stop: Event) -> Done:
    """Repeats `step` until `stop` is set or the service has ended; returns what was done."""
    while not stop.is_set():
        try:
            worker.step()
        except ServiceUnavailable:
            break
    return worker.done


class UnaryWriter:
    """A client that puts, changes and deletes documents one by one."""

    def __init__(
        self, client: Client, collection: Collection, ids: list[str], source: random.Random
    ) -> None:
        self.done = Done()
        self._client = client
        self._tenant_id = collection.tenant_id
        self._entries = {document_id: collection.documents[document_id] for document_id in ids}
        self._source = source

    def step(self) -> None:
        document_id, entry = self._source.choice(list(self._entries.items()))
        if entry.certain.stores and self._source.random() < _DELETED:
            if self._source.random() < _BY_FILTER:
                self._delete_several()
            else:
                self._delete(document_id, entry)
        elif entry.certain.stores and self._source.random() < _REVISED:
            self._revise(document_id, entry)
        else:
            self._put(document_id, entry)

    def _put(self, document_id: str, entry: Entry) -> None:
        write = entry.send(stores=True)
        document = document_of(self._tenant_id, document_id, write.number)
        try:
            result = self._client.ingest(self._tenant_id, document)
        except StorageFull:
            entry.refuse(write)
            raise
        entry.acknowledge(write)
        self.done.acknowledged += 1
        if self._source.random() < _READ_BACK:
            self._read_back(document_id, write, result.sequence)

    def _revise(self, document_id: str, entry: Entry) -> None:
        """Changes only the metadata of the document."""
        entry.revising = entry.revision + 1
        revision = {"revision": entry.revising}
        try:
            updated = self._client.update_metadata(self._tenant_id, document_id, revision)
        except StorageFull:
            entry.revising = 0
            raise
        assert updated.document.metadata == {"version": entry.certain.number, **revision}
        entry.revision, entry.revising = entry.revising, 0
        self.done.acknowledged += 1

    def _delete(self, document_id: str, entry: Entry) -> None:
        write = entry.send(stores=False)
        self._client.delete_document(self._tenant_id, document_id)
        entry.acknowledge(write)
        self.done.acknowledged += 1
        if self._source.random() < _READ_BACK:
            assert self._leaves_by_name(document_id) == 0

    def _delete_several(self) -> None:
        """Deletes up to half of the stored documents by a filter in one call."""
        stored = [name for name, entry in self._entries.items() if entry.certain.stores]
        chosen = self._source.sample(stored, self._source.randint(1, (len(stored) + 1) // 2))
        writes = [(self._entries[name], self._entries[name].send(stores=False)) for name in chosen]
        deleted = self._client.delete_documents(self._tenant_id, Match(DOCUMENT_ID, tuple(chosen)))
        assert deleted.documents == len(chosen)
        for entry, write in writes:
            entry.acknowledge(write)
        self.done.acknowledged += len(chosen)

    def _leaves_by_name(self, document_id: str) -> int:
        """Returns the count of leaves that a lexical search for the id of a document returns.

        Fails if a leaf is from another document.
        """
        result = self._client.search(
            self._tenant_id,
            document_id,
            mode=SearchMode.STANDARD,
            retrieval=Retrieval.LEXICAL,
            limit=MAX_LIMIT,
        )
        self.done.searches += 1
        assert {passage.chunk.document_id for passage in result.passages} <= {document_id}
        return len(result.passages)

    def _read_back(self, document_id: str, write: Write, sequence: int) -> None:
        """Searches for the first leaf, and for the id, of the document that was just written."""
        written = prepared_of(self._tenant_id, document_id, write.number)
        assert self._leaves_by_name(document_id) == len(written.vectors)
        result = self._client.search(
            self._tenant_id, written.vectors[0].tolist(), mode=SearchMode.STANDARD, limit=1
        )
        self.done.searches += 1
        assert result.sequence >= sequence
        (passage,) = result.passages
        is_first_leaf = passage.chunk.chunk_id == f"{document_id}#0.0" and passage.score > (
            1 - SCORE_TOLERANCE
        )
        assert is_first_leaf or self._tenant_id != SMALL, (document_id, write, result)
        self.done.recalls.append(float(is_first_leaf))


class StreamWriter:
    """A client that streams documents through IngestDocuments, some of them twice per stream."""

    def __init__(
        self, client: Client, collection: Collection, ids: list[str], source: random.Random
    ) -> None:
        self.done = Done()
        self._client = client
        self._tenant_id = collection.tenant_id
        self._documents = collection.documents
        self._ids = ids
        self._source = source

    def step(self) -> None:
        """Sends a stream of documents, which are all recorded as sent before the stream begins."""
        sent = []
        streamed = self._source.randint(1, _MAX_STREAMED)
        for document_id in self._source.choices(self._ids, k=streamed):
            entry = self._documents[document_id]
            sent.append((document_id, entry, entry.send(stores=True)))
        documents = [document_of(self._tenant_id, name, write.number) for name, _, write in sent]
        results = self._client.ingest_many(self._tenant_id, documents)
        try:
            for (document_id, entry, write), result in zip(sent, results, strict=True):
                self._acknowledge(document_id, entry, write, result)
        except StorageFull:  # It is raised after all stored documents have got their results.
            for _, entry, write in sent:
                entry.refuse(write)
            raise

    def _acknowledge(
        self, document_id: str, entry: Entry, write: Write, result: IngestResult | HragError
    ) -> None:
        if isinstance(result, HragError):
            raise result
        assert result.document_id == document_id
        entry.acknowledge(write)
        self.done.acknowledged += 1


class CollectionWriter:
    """A client that creates, fills and deletes collections, each with a new name."""

    def __init__(
        self,
        client: Client,
        tenant_id: str,
        collections: dict[str, Collection],
        names: Iterator[int],
    ) -> None:
        self.done = Done()
        self._client = client
        self._tenant_id = tenant_id
        self._collections = collections
        self._names = names

    def step(self) -> None:
        """Deletes a collection that remained after a crash. If there is none, creates one first."""
        remaining = [
            collection
            for name, collection in self._collections.items()
            if name.startswith(_SCRATCH)
        ]
        collection = remaining[0] if remaining else self._create(f"{_SCRATCH}{next(self._names)}")
        write = collection.existence.send(stores=False)
        self._client.delete_collection(self._tenant_id, collection.name)
        self._acknowledge(collection.existence, write)
        del self._collections[collection.name]

    def _create(self, name: str) -> Collection:
        collection = self._collections[name] = Collection(self._tenant_id, name)
        write = collection.existence.send(stores=True)
        self._client.create_collection(self._tenant_id, name)
        self._acknowledge(collection.existence, write)
        for number in range(_SCRATCH_DOCUMENTS):
            self._put(collection, f"d{number}")
        return collection

    def _put(self, collection: Collection, document_id: str) -> None:
        entry = collection.documents[document_id] = Entry()
        write = entry.send(stores=True)
        document = document_of(self._tenant_id, document_id, write.number)
        self._client.ingest(self._tenant_id, document, collection=collection.name)
        self._acknowledge(entry, write)

    def _acknowledge(self, entry: Entry, write: Write) -> None:
        entry.acknowledge(write)
        self.done.acknowledged += 1


class Searcher:
    """A client that searches. It fails if a passage is from a version that cannot be stored."""

    def __init__(
        self, client: Client, collections: list[Collection], source: random.Random
    ) -> None:
        self.done = Done()
        self._client = client
        self._collections = collections
        self._source = source

    def step(self) -> None:
        collection = self._source.choice(self._collections)
        mode = self._source.choice(list(SearchMode))
        # A vector is searched only by vectors, a question also by words.
        draw = self._source.choice((random_query, question))
        query, limit = draw(self._source), self._source.randint(1, MAX_LIMIT)
        certain = {name: entry.certain.number for name, entry in collection.documents.items()}
        result = self._client.search(
            collection.tenant_id,
            query,
            mode=mode,
            limit=limit,
            keep_overlap=mode is not SearchMode.CONTEXT,
        )
        self.done.searches += 1
        is_budget_full = mode is SearchMode.CONTEXT
        assert len(result.passages) == limit or result.exhausted or is_budget_full
        has_searched_deeper = result.candidates_considered > DEFAULT_CANDIDATES
        if not has_searched_deeper:
            scores = [passage.score for passage in result.passages]
            assert scores == sorted(scores, reverse=True), (mode, query, limit)
        for passage in result.passages:
            version = check_passage(collection.tenant_id, passage, query, mode)
            entry = collection.documents[passage.chunk.document_id]
            assert certain[passage.chunk.document_id] <= version <= entry.last, passage
