"""hrag with many leaves: durable commits of prepared documents, then `hrag reindex`.

Settings are the default. A collection that is too small for a segment is scanned.
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
from benchmarks.peers.scale.peer import CANDIDATES, AutomaticEf, Library, Search
from benchmarks.peers.timing import timed
from hrag.client import Client
from hrag.engine import PreparedDocument
from hrag.types import Retrieval, SearchMode
from hrag.values.deadline import NEVER
from hrag.values.tree import ParsedText

# The indexer's bulk load commits as many documents together.
_DOCUMENTS_AT_ONCE = 64


class InProcessLeaves(AutomaticEf, Library, InProcess):
    """The retriever's search in this process, without its service."""

    def index_leaves(self, corpus: SeededCorpus) -> float:
        self._first_rows = corpus.first_rows
        seconds, _ = timed(lambda: self._build(corpus))
        return seconds

    def _build(self, corpus: SeededCorpus) -> None:
        _fill(self._folder, corpus)
        reader = self._open.enter_context(reading(self._folder))
        self._search = search_over(reader, corpus.dimension)

    def nearest(self, query: Query) -> list[int]:
        result = self._search(leaves_query(query.vector, CANDIDATES), NEVER)
        return found_rows(result, self._first_rows).tolist()


class OverGrpcLeaves(AutomaticEf, OverGrpc):
    """Both services. Each caller has a client and a connection."""

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
    """Creates the store with all documents, and its segment if there are enough leaves for one."""
    documents = iter(corpus)
    with engine(folder) as opened:
        writer = opened.writer()
        collection = create_collection(writer, corpus.dimension)
        while group := list(islice(documents, _DOCUMENTS_AT_ONCE)):
            writer.put_many([(collection, document) for document in _prepared(group)])
    with engine(folder) as opened:
        for _ in opened.administration().reindex():
            pass


def _prepared(documents: Sequence[CutText]) -> list[PreparedDocument]:
    return [
        PreparedDocument(
            document_id=document.document_id,
            title=document.document_id,
            source="",
            mime_type="text/plain",
            metadata={},
            content_hash=f"{document.first_row:064x}",
            parsed=ParsedText(document.text),
            tree=document.tree,
            vectors=document.vectors,
        )
        for document in documents
    ]
