"""Vectors from any endpoint that speaks OpenAI's `POST /embeddings`.

Requests are tried again, after timeouts too, and after as much as two minutes where the
endpoint asks for that and the deadline allows it. The SDK does not notice a reply that is
short, re-ordered or of the wrong size, so the reply is read here, and nothing in it is believed
before it is checked.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray
from openai import Timeout, omit

from hrag import metrics
from hrag.deadline import NEVER, Deadline
from hrag.embedding import Vectors
from hrag.embedding.checks import unit_rows
from hrag.endpoint.access import Access
from hrag.endpoint.openai import Endpoint, Retries, Verdicts
from hrag.errors import EmbedderRejected, EmbedderUnavailable

MAX_REQUEST_TEXTS = 512
# About 100,000 tokens at 3 bytes each. A token has at least one byte, so that whatever the
# language a request stays below the 300,000 tokens that OpenAI takes.
MAX_REQUEST_BYTES = 300_000
MAX_RETRIES = 4  # With their delays 7.5 s of waiting, which outlasts a rate limit's blip.

_LONGEST_DELAY_S = 120.0
_PROBE = "dimension"
_VERDICTS = Verdicts(
    EmbedderUnavailable,
    EmbedderRejected,
    {
        400: "check HRAG_OPENAI_DIMENSIONS and that the model takes texts this long",
        401: "check OPENAI_API_KEY",
        403: "the key in OPENAI_API_KEY may not use this model",
        404: "check OPENAI_BASE_URL and HRAG_OPENAI_EMBEDDING_MODEL",
    },
)


class OpenAIEmbedder:
    """An OpenAI-compatible endpoint's model. Safe to call from several threads."""

    max_tokens = 8191  # Of every OpenAI embedding model.

    def __init__(
        self,
        *,
        model: str,
        access: Access,
        dimensions: int | None = None,
        timeout_s: float = 30.0,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """Does not contact the endpoint.

        `dimensions` is asked of the model where it is given. `timeout_s` bounds each wait
        of one attempt; there are at most `1 + max_retries` attempts a request.
        """
        self.name = f"openai/{model}"
        self._model = model
        self._dimensions = dimensions
        retries = Retries(max_retries, _LONGEST_DELAY_S, if_slow=True)
        self._endpoint = Endpoint("embedding", access, _VERDICTS, retries, timeout_s)
        self._source = self._endpoint.name
        self._probe: Future[int] | None = None
        self._probe_lock = Lock()

    @property
    def dimension(self) -> int:
        """Length of every vector: `dimensions`, else what the endpoint gives.

        Asks the endpoint the first time and raises as `embed` does; a failure is forgotten.
        """
        return self._dimension(NEVER)

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector per text, in order, as `float32[len(texts), dimension]`.

        Raises EmbedderUnavailable when the endpoint is down, slow, limiting or failing
        after the last attempt, and EmbedderRejected when it refuses or its answer is wrong.
        """
        dimension = self._dimension(deadline)
        vectors: Vectors = np.empty((len(texts), dimension), np.float32)
        done = 0
        for batch in batches(texts):
            rows = read_reply(self._send(batch, deadline), len(batch), self._source)
            vectors[done : done + len(batch)] = self._checked(rows, dimension)
            done += len(batch)
        return vectors

    def _checked(self, rows: list[NDArray[np.floating]], expected: int) -> Vectors:
        for row in rows:
            if len(row) != expected:
                raise EmbedderRejected(
                    f"{self._source} answered a vector of {len(row)} numbers "
                    f"where {expected} are expected"
                )
        return unit_rows(np.stack(rows), self._source)

    def _dimension(self, deadline: Deadline) -> int:
        return self._dimensions or self._probed_dimension(deadline)

    def _probed_dimension(self, deadline: Deadline) -> int:
        # One thread asks for all. They share the outcome, a failure too: in turn they would
        # queue up behind an endpoint that is down. Each waits as long as its own caller does.
        with self._probe_lock:
            probe = self._probe
            if probe is None:
                probe = self._probe = Future()
                Thread(target=self._settle, args=(probe,), name="dimension", daemon=True).start()
        return deadline.result_of(probe, f"asking {self._source} for its dimension")

    def _settle(self, probe: Future[int]) -> None:
        try:
            (row,) = read_reply(self._send([_PROBE], NEVER), 1, self._source)
            unit_rows(row[np.newaxis], self._source)
            probe.set_result(len(row))
        except BaseException as error:  # Whatever it is, nobody may wait for ever.
            self._probe = None
            probe.set_exception(error)

    def _send(self, texts: list[str], deadline: Deadline) -> bytes:
        return self._endpoint.send(partial(self._request, texts), deadline)

    def _request(self, texts: list[str], timeout: Timeout) -> bytes:
        # Raw, because the SDK's own parser neither checks the reply nor explains it.
        reply = self._endpoint.client.embeddings.with_raw_response.create(
            input=texts,
            model=self._model,
            dimensions=self._dimensions or omit,
            timeout=timeout,
        )
        return reply.content


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Cuts `texts` into requests of at most MAX_REQUEST_TEXTS and MAX_REQUEST_BYTES.

    Keeps their order. A text that is longer than a request may be goes alone.
    """
    batch: list[str] = []
    batch_bytes = 0
    for text in texts:
        size_bytes = len(text.encode())
        full = len(batch) == MAX_REQUEST_TEXTS or batch_bytes + size_bytes > MAX_REQUEST_BYTES
        if batch and full:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(text)
        batch_bytes += size_bytes
    if batch:
        yield batch


def read_reply(content: bytes, count: int, source: str) -> list[NDArray[np.floating]]:
    """Reads a reply's `count` vectors, in order of their indexes.

    Vectors may be lists of numbers or base64 of little-endian float32; their lengths and
    numbers are not checked. `source` begins the messages of EmbedderRejected.
    """
    items = _items(content, source)
    if len(items) != count:
        raise EmbedderRejected(f"{source} answered {len(items)} vectors for {count} texts")
    by_index = {_index(item): item for item in items}
    if by_index.keys() != set(range(count)):
        raise EmbedderRejected(
            f"{source} answered {count} vectors whose indexes are not 0 to {count - 1}, each once"
        )
    return [_row(by_index[index].get("embedding"), source) for index in range(count)]


def _items(content: bytes, source: str) -> list[dict[str, Any]]:
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError):
        raise EmbedderRejected(f"{source} answered something that is not JSON") from None
    items = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise EmbedderRejected(f"{source} answered JSON without a list `data` of objects")
    metrics.embedder_tokens(_tokens(reply.get("usage")))
    return items


def _tokens(usage: object) -> int:
    """What the endpoint says it has read; 0 where it does not say, or nonsense."""
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and 0 <= count < 1 << 32 else 0


def _index(item: dict[str, Any]) -> int | None:
    index = item.get("index")
    return index if isinstance(index, int) else None


def _row(embedding: object, source: str) -> NDArray[np.floating]:
    try:
        if isinstance(embedding, str):
            return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
        row = np.array(embedding, np.float64)
    except (TypeError, ValueError, OverflowError):
        row = np.empty((0, 0))
    if row.ndim != 1:
        raise EmbedderRejected(
            f"{source} answered an embedding that is neither a list of numbers "
            "nor base64 of float32"
        )
    return row
