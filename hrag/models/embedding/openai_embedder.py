"""Requests embeddings from any endpoint with OpenAI's `POST /embeddings`.

Requests are retried, also after timeouts. If the endpoint asks for a delay in `Retry-After`, the
request is retried after this delay. If the delay is longer than two minutes or does not end before
the deadline, the request is not retried. The SDK does not detect a reply with missing vectors, a
different order or a wrong dimension, so this module parses and validates the reply.
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

from hrag.models.embedding import Vectors
from hrag.models.embedding.vector_checks import unit_rows
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.models.endpoint.openai_endpoint import Endpoint, ErrorMapping, RetryPolicy
from hrag.observe import metrics
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import EmbedderRejected, EmbedderUnavailable

MAX_REQUEST_TEXTS = 512
# The maximum total size of the texts in a request, which is about 100,000 tokens of 3 bytes each. A
# token has at least one byte, so in any language a request has at most 300,000 tokens, which is the
# limit of OpenAI.
MAX_REQUEST_BYTES = 300_000
# A failed request is retried at most this many times. The delays before the four retries are 7.5 s
# in total, so a rate limit that lasts a few seconds has ended before the last retry.
MAX_RETRIES = 4

_MAX_RETRY_DELAY_S = 120.0
_PROBE = "dimension"  # This text is embedded to determine the dimension of the model.
_ERRORS = ErrorMapping(
    EmbedderUnavailable,
    EmbedderRejected,
    partial(EmbedderRejected, every_text=True),
    {
        400: "check HRAG_OPENAI_DIMENSIONS and the model's limit on the length of texts",
        401: "check OPENAI_API_KEY",
        403: "the key in OPENAI_API_KEY may not use this model",
        404: "check OPENAI_BASE_URL and HRAG_OPENAI_EMBEDDING_MODEL",
    },
)


class OpenAIEmbedder:
    """The embedding model of an OpenAI-compatible endpoint. Thread-safe."""

    max_tokens = 8191  # Every OpenAI embedding model has this limit.
    lowest_cosine = -1.0

    def __init__(
        self,
        *,
        model: str,
        access: EndpointAccess,
        dimensions: int | None = None,
        timeout_s: float = 30.0,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """Creates the client; sends no request.

        `dimensions` is the requested length of the vectors; if it is None, the endpoint chooses the
        length. `timeout_s` limits one attempt including its whole reply. A request has at most
        `1 + max_retries` attempts.
        """
        self.name = f"openai/{model}"
        self._model = model
        self._dimensions = dimensions
        retries = RetryPolicy(max_retries, _MAX_RETRY_DELAY_S, after_timeout=True)
        self._endpoint = Endpoint("embedding", access, _ERRORS, retries, timeout_s)
        self._source = self._endpoint.name
        self._probe: Future[int] | None = None
        self._probe_lock = Lock()

    @property
    def dimension(self) -> int:
        """The length of every vector: `dimensions`, or else the length that the endpoint returns.

        Without `dimensions`, the first access sends a request, and raises the errors that `embed`
        raises. After a failure, the next access sends a request again.
        """
        return self._dimension(NEVER)

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        """Returns one unit vector for each text, in order, as `float32[len(texts), dimension]`.

        Raises EmbedderUnavailable if the endpoint is still down, slow, rate-limiting or failing at
        the last attempt. Raises EmbedderRejected if the endpoint refuses the request or if its
        reply is invalid. Raises DeadlineExceeded if the deadline passes, and Cancelled if the
        caller cancels the call.
        """
        dimension = self._dimension(deadline)
        vectors: Vectors = np.empty((len(texts), dimension), np.float32)
        done = 0
        for batch in batches(texts):
            rows = read_reply(self._send(batch, deadline), len(batch), self._source)
            vectors[done : done + len(batch)] = self._unit_vectors(rows, dimension)
            done += len(batch)
        return vectors

    def _unit_vectors(self, rows: list[NDArray[np.floating]], expected: int) -> Vectors:
        for row in rows:
            if len(row) != expected:
                raise EmbedderRejected(
                    f"{self._source} returned a vector of {len(row)} numbers "
                    f"where {expected} are expected"
                )
        return unit_rows(np.stack(rows), self._source)

    def _dimension(self, deadline: Deadline) -> int:
        return self._dimensions or self._probed_dimension(deadline)

    def _probed_dimension(self, deadline: Deadline) -> int:
        # One thread sends the request, and all waiting callers get the same outcome, even if it is
        # an error. If each caller sent its own request while the other callers wait for the lock,
        # the callers would wait one after another for an endpoint that does not answer. Each caller
        # waits at most until its deadline.
        with self._probe_lock:
            probe = self._probe
            if probe is None:
                probe = self._probe = Future()
                Thread(
                    target=self._complete_probe, args=(probe,), name="dimension", daemon=True
                ).start()
        return deadline.result_of(probe, f"requesting the dimension from {self._source}")

    def _complete_probe(self, probe: Future[int]) -> None:
        try:
            (row,) = read_reply(self._send([_PROBE], NEVER), 1, self._source)
            unit_rows(row[np.newaxis], self._source)
            probe.set_result(len(row))
        except BaseException as error:  # Any error must end the callers' wait.
            self._probe = None
            probe.set_exception(error)

    def _send(self, texts: list[str], deadline: Deadline) -> bytes:
        return self._endpoint.send(partial(self._request, texts), deadline)

    def _request(self, texts: list[str], timeout: Timeout) -> bytes:
        # The raw response is used, because the SDK's parser neither limits the size of a reply nor
        # validates the reply.
        with self._endpoint.client.embeddings.with_streaming_response.create(
            input=texts,
            model=self._model,
            dimensions=self._dimensions or omit,
            timeout=timeout,
        ) as reply:
            return self._endpoint.read(reply.http_response)


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yields `texts` in lists, in order; each list contains the texts of one request.

    A list has at most MAX_REQUEST_TEXTS texts with at most MAX_REQUEST_BYTES bytes in total. A text
    with more bytes is alone in its list.
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
    """Returns the `count` vectors of a reply, in the order of their indexes.

    In the reply, vectors may be lists of numbers or base64 of little-endian float32. The lengths
    and the values of the vectors are not checked. If the reply is invalid, raises EmbedderRejected,
    whose message starts with `source`.
    """
    items = _items(content, source)
    if len(items) != count:
        raise EmbedderRejected(f"{source} returned {len(items)} vectors for {count} texts")
    by_index = {_index(item): item for item in items}
    if by_index.keys() != set(range(count)):
        raise EmbedderRejected(
            f"{source} returned {count} vectors; each index from 0 to {count - 1} must occur "
            "exactly once, but some are missing or wrong"
        )
    return [_row(by_index[index].get("embedding"), source) for index in range(count)]


def _items(content: bytes, source: str) -> list[dict[str, Any]]:
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError):
        raise EmbedderRejected(f"{source} returned a reply that is not JSON") from None
    items = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise EmbedderRejected(f"{source} returned JSON without a list `data` of objects")
    metrics.embedder_tokens(_tokens(reply.get("usage")))
    return items


def _tokens(usage: object) -> int:
    """Returns the count of input tokens that the endpoint reports; 0 if it reports no valid count.

    `usage` is the field `usage` of the reply.
    """
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
            f"{source} returned an embedding that is neither a list of numbers "
            "nor base64 of float32"
        )
    return row
