"""hrag among many leaves: prepared documents in durable commits, then `hrag reindex`.

Settings are the default: a collection below the least size of a segment is scanned.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.corpus import (
    COLLECTION,
    TENANT,
    create_collection,
    engine,
    found_rows,
    leaves_query,
    reading,
    search_over,
)
from benchmarks.peers.hrag_itself import FILLED, InProcess, OverGrpc
from benchmarks.peers.peer import Query
from benchmarks.peers.scale.corpus import CutText, SeededCorpus
from benchmarks.peers.scale.peer import CANDIDATES, Library, OwnEf, Search
from benchmarks.peers.timing import timed
from benchmarks.peers.vectors import DIMENSION
from hrag.client import Client
from hrag.engine import PreparedDocument
from hrag.types import Retrieval, SearchMode
from hrag.values.deadline import NEVER
from hrag.values.tree import ParsedText

_DOCUMENTS_AT_ONCE = 64  # As in the indexer's bulk load.


class InProcessLeaves(OwnEf, Library, InProcess):
    """The retriever's search without its service."""

    def index_leaves(self, corpus: SeededCorpus) -> float:
        self._first_rows = corpus.first_rows
        seconds, _ = timed(lambda: self._build(corpus))
        return seconds

    def _build(self, corpus: SeededCorpus) -> None:
        _fill(self._folder, corpus)
        reader = self._open.enter_context(reading(self._folder))
        self._search = search_over(reader, DIMENSION)

    def nearest(self, query: Query) -> list[int]:
        result = self._search(leaves_query(query.vector, CANDIDATES), NEVER)
        return found_rows(result, self._first_rows).tolist()


class OverGrpcLeaves(OwnEf, OverGrpc):
    """Both services, and a client and a connection for each caller."""

    def index_leaves(self, corpus: SeededCorpus) -> float:
        self._first_rows = corpus.first_rows
        self._open.close()
        seconds, _ = timed(lambda: _fill(self._folder / FILLED, corpus))
        self._serve(FILLED)
        return seconds

    def nearest(self, query: Query) -> list[int]:
        result = self._client.search(
            TENANT,
            query.numbers,
            collection=COLLECTION,
            mode=SearchMode.STANDARD,
            limit=10,
            candidates=CANDIDATES,
            retrieval=Retrieval.DENSE,
            neighbour_bonus=0.0,
        )
        return found_rows(result, self._first_rows).tolist()

    @contextmanager
    def callers(self, count: int) -> Iterator[list[Search]]:
        with ExitStack() as stack:
            clients = [stack.enter_context(Client(*self._addresses)) for _ in range(count)]
            yield [partial(self.search_by, client) for client in clients]


def _fill(folder: Path, corpus: SeededCorpus) -> None:
    """Creates the store with all documents, and its segment if it is large enough for one."""
    documents = iter(corpus)
    with engine(folder) as opened:
        writer = opened.writer()
        collection = create_collection(writer, DIMENSION)
        while group := list(islice(documents, _DOCUMENTS_AT_ONCE)):
            writer.put_many([(collection, each) for each in _prepared(group)])
    with engine(folder) as opened:
        for _ in opened.administration().reindex():
            pass


def _prepared(documents: Sequence[CutText]) -> list[PreparedDocument]:
    return [
        PreparedDocument(
            document_id=each.document_id,
            title=each.document_id,
            source="",
            mime_type="text/plain",
            metadata={},
            content_hash=f"{each.first_row:064x}",
            parsed=ParsedText(each.text),
            tree=each.tree,
            vectors=each.vectors,
        )
        for each in documents
    ]
