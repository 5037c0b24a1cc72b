"""A simulated reranker that knows the gold, for measuring what a reranker can reach.

It serves `POST /rerank` in Cohere's form on a loopback port. The score of a text is the share of
the gold's characters that it has, from 0 to 1. With `noise`, this share of the texts gets a random
score from 0 to 1 instead, as if the reranker knew nothing about them. The random scores are the
same in each run.
"""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from benchmarks.quality.sets import QualitySet
from hrag.evaluation.questions import GoldSpan


class Oracle:
    """Scores texts by the gold of the question."""

    def __init__(self, sets: Iterable[QualitySet], noise: float = 0.0) -> None:
        self._noise = noise
        # The gold of each question: the text of the document, and the span of the gold in it.
        self._gold: dict[str, list[tuple[str, int, int]]] = {}
        for quality_set in sets:
            texts = {
                document.document_id: str(document.body) for document in quality_set.documents()
            }
            for question in quality_set.questions:
                spans = [gold.span for gold in question.gold if isinstance(gold, GoldSpan)]
                self._gold.setdefault(question.text, []).extend(
                    (texts[document_id], start, end) for document_id, start, end in spans
                )

    def score(self, query: str, text: str) -> float:
        """Returns the share of the gold's characters that are in `text`, or a random number."""
        draw = random.Random(f"{query}\n{text}")
        if draw.random() < self._noise:
            return draw.random()
        gold = self._gold.get(query, [])
        whole = sum(end - start for _, start, end in gold)
        return sum(_shared(*span, text) for span in gold) / max(whole, 1)


def _shared(document: str, start: int, end: int, text: str) -> int:
    """Returns how many characters of a gold span are in the text of a leaf.

    A reranker gets a leaf below a line with its title and sections, if it has any.
    """
    for content in (text.partition("\n")[2], text):
        first = document.find(content) if content else -1
        if first >= 0:
            return max(min(end, first + len(content)) - max(start, first), 0)
    return 0


@contextmanager
def oracle_serving(oracle: Oracle) -> Iterator[str]:
    """Serves `oracle` and yields the base URL of the server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = _reply(oracle, json.loads(self.rfile.read(length)))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _reply(oracle: Oracle, request: dict[str, Any]) -> bytes:
    texts: Sequence[str] = request["documents"]
    scores = [oracle.score(request["query"], text) for text in texts]
    entries = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
    return json.dumps({"results": entries}).encode()
