"""The process of one peer: `python -m benchmarks.peers.worker NAME FOLDER`.

Calls arrive as lines of JSON on standard input. Replies are written as lines of JSON to the
original standard output. Everything that libraries print is redirected to standard error.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers import recall
from benchmarks.peers.corpora import Corpus
from benchmarks.peers.memory import pss_bytes
from benchmarks.peers.peer import FillsBudget, FoundPassage, Peer, Query
from benchmarks.peers.registry import PEERS, load
from benchmarks.peers.timing import timed
from benchmarks.peers.vectors import Vectors

WARM_UP = 100
# A search returns at most this many passages when recall is measured. 40 leaves of 256 tokens are
# more than enough for the largest budget, 4,000 tokens.
RECALL_LIMIT = 40

Reply = dict[str, Any]


class Worker:
    """The methods that the driver calls.

    `search` uses the peer that the last call of `index` created. The methods `leaves` and `recall`
    create a new peer for each call and close it.
    """

    def __init__(self, name: str, folder: Path) -> None:
        """Loads the peer's factory. Raises ImportError if the peer is not installed."""
        self._make: Callable[[Path], Peer] = load(PEERS[name])
        self._libraries = PEERS[name].libraries
        self._folder = folder
        self._count = 0
        self._peer: Peer | None = None
        self._queries: list[Query] = []

    def versions(self) -> Reply:
        """Returns the versions of the peer's libraries."""
        return {name: version(name) for name in self._libraries}

    def leaves(self, corpus: str, into: str) -> Reply:
        """Writes the texts that the peer will embed to the file `into`."""
        with self._fresh() as peer:
            texts = peer.leaf_texts(Corpus.load(Path(corpus)).documents)
        Path(into).write_text(json.dumps(texts), "utf-8")
        return {}

    def recall(self, corpus: str, vectors: str, candidates: list[int], budgets: list[int]) -> Reply:
        """Indexes a corpus and scores every query, for each pair of candidates and budget."""
        loaded, known = Corpus.load(Path(corpus)), Vectors.load(Path(vectors))
        texts = {document.document_id: document.text for document in loaded.documents}
        queries = _queries(loaded, known)
        scores = []
        with self._fresh() as peer:
            peer.index(loaded.documents, known)
            for count in candidates:
                for budget, passages in _search_all(peer, queries, count, budgets):
                    score = _score(passages, loaded, texts, budget)
                    scores.append({"candidates": count, "budget": budget, **asdict(score)})
        return {"scores": scores}

    def index(self, corpus: str, vectors: str) -> Reply:
        """Indexes the corpus with a new peer, which stays open for `search`."""
        loaded, known = Corpus.load(Path(corpus)), Vectors.load(Path(vectors))
        self._queries = _queries(loaded, known)
        self._peer = peer = self._new()
        peer.leaf_texts(loaded.documents[:1])  # This loads tokenizers, for example.
        gc.collect()
        before = pss_bytes(peer.processes())
        indexed = peer.index(loaded.documents, known)
        for query in self._queries[:WARM_UP]:
            peer.search(query, candidates=50, limit=5)
        gc.collect()
        grown = pss_bytes(peer.processes()) - before
        save_s, _ = timed(peer.save)
        return {
            "leaves": indexed.leaves,
            "index_s": indexed.seconds,
            "save_s": save_s,
            "stored_bytes": peer.stored_bytes(),
            "memory_bytes": grown,
        }

    def search(self, first: int, count: int, candidates: int, limit: int, max_s: float) -> Reply:
        """Times `count` searches one after the other; stops early after `max_s` seconds."""
        assert self._peer is not None
        took: list[float] = []
        for number in range(first, first + count):
            query = self._queries[number % len(self._queries)]
            seconds, _ = timed(partial(self._peer.search, query, candidates, limit))
            took.append(seconds)
            if sum(took) > max_s:
                break
        return {"seconds": took}

    def close(self) -> None:
        """Closes the peer of the last call of `index`."""
        if self._peer is not None:
            self._peer.close()

    def _new(self) -> Peer:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir(parents=True)
        return self._make(folder)

    @contextmanager
    def _fresh(self) -> Iterator[Peer]:
        peer = self._new()
        try:
            yield peer
        finally:
            peer.close()


def _queries(corpus: Corpus, vectors: Vectors) -> list[Query]:
    texts = [question.text for question in corpus.questions]
    rows = vectors.rows_of(texts)
    return [Query(text, row, row.tolist()) for text, row in zip(texts, rows, strict=True)]


def _search_all(
    peer: Peer, queries: Sequence[Query], candidates: int, budgets: Sequence[int]
) -> Iterator[tuple[int, list[list[FoundPassage]]]]:
    """Yields each budget with the passages of all queries."""
    if isinstance(peer, FillsBudget):
        for budget in budgets:
            yield budget, [peer.filled(query, candidates, budget) for query in queries]
    else:
        passages = [peer.search(query, candidates, RECALL_LIMIT) for query in queries]
        yield from ((budget, passages) for budget in budgets)


def _score(
    passages: list[list[FoundPassage]], corpus: Corpus, texts: dict[str, str], budget: int
) -> recall.Score:
    contexts = [recall.within_budget(query_passages, texts, budget) for query_passages in passages]
    pairs = zip(contexts, corpus.questions, strict=True)
    return recall.mean([recall.score(context, question.gold) for context, question in pairs])


def serve(make: Callable[[], Any]) -> None:
    """Creates a worker, serves calls of its methods until standard input ends, and closes it."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        worker = None
        try:
            worker = make()
            _serve(worker, lambda reply: print(json.dumps(reply), file=replies, flush=True))
        except ImportError as error:
            print(json.dumps({"failed": f"not installed: {error}"}), file=replies, flush=True)
        finally:
            if worker is not None:
                worker.close()


def _serve(worker: Any, reply: Callable[[Reply], None]) -> None:
    reply({})
    for line in sys.stdin:
        call = json.loads(line)
        reply(getattr(worker, call.pop("method"))(**call))


if __name__ == "__main__":
    serve(lambda: Worker(sys.argv[1], Path(sys.argv[2])))
