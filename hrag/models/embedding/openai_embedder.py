"""Requests embeddings from any endpoint with OpenAI's `POST /embeddings`.

Requests are retried, also after timeouts. If the endpoint asks for a delay in `Retry-After`, the
request is retried after this delay. If the delay is longer than two minutes or does not end before
the deadline, the request is not retried. The SDK does not detect a reply with missing vectors, a
different order or a wrong dimension, so this module parses and validates the reply.

If the endpoint refuses a request with several texts, its texts are sent in smaller requests, and
what the endpoint accepts is remembered (`request_limits`).
"""

import base64
import json
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock, Thread
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray
from openai import APIStatusError, Timeout, omit

from hrag.config import MAX_REQUEST_BYTES, MAX_REQUEST_TEXTS
from hrag.models.embedding import Vectors
from hrag.models.embedding.request_limits import RequestLimits
from hrag.models.embedding.vector_checks import unit_rows
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.models.endpoint.openai_endpoint import (
    Endpoint,
    ErrorMapping,
    RetryPolicy,
    refused_content,
)
from hrag.models.endpoint.refused_parameters import refused_parameters
from hrag.observe import metrics
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import EmbedderRejected, EmbedderUnavailable

_log = structlog.get_logger()

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
        413: "check the model's limit on the length of texts",
        422: "check HRAG_OPENAI_DIMENSIONS and the model's limit on the length of texts",
        401: "check OPENAI_API_KEY",
        403: "the key in OPENAI_API_KEY may not use this model",
        404: "check OPENAI_BASE_URL and HRAG_OPENAI_EMBEDDING_MODEL",
    },
)


class _RequestTooLarge(Exception):
    """The endpoint refuses a request with several texts."""


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
        max_texts: int = MAX_REQUEST_TEXTS,
        max_bytes: int = MAX_REQUEST_BYTES,
    ) -> None:
        """Creates the client; sends no request.

        `dimensions` is the requested length of the vectors; if it is None, the endpoint chooses the
        length. `timeout_s` limits one attempt including its whole reply. A request has at most
        `1 + max_retries` attempts, and at most `max_texts` texts with `max_bytes` bytes together.
        """
        self.name = f"openai/{model}"
        self._model = model
        self._dimensions = dimensions
        retries = RetryPolicy(max_retries, _MAX_RETRY_DELAY_S, after_timeout=True)
        self._endpoint = Endpoint("embedding", access, _ERRORS, retries, timeout_s)
        self._source = self._endpoint.name
        self._probe: Future[int] | None = None
        self._probe_lock = Lock()
        self._limits = RequestLimits(max_texts, max_bytes)
        self._limits_lock = Lock()
        self._accepts_base64 = True

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
        the last attempt. Raises EmbedderRejected if the endpoint refuses a text or if its reply is
        invalid. Raises DeadlineExceeded if the deadline passes, and Cancelled if the caller cancels
        the call.
        """
        dimension = self._dimension(deadline)
        vectors: Vectors = np.empty((len(texts), dimension), np.float32)
        sizes = [len(text.encode()) for text in texts]
        limits = self._limits
        start = 0
        while start < len(texts):
            end = limits.batch_end(sizes, start)
            count, size_bytes = end - start, sum(sizes[start:end])
            reply = self._send_batch(texts, start, end, deadline)
            if reply is None:
                limits = limits.after_refusal(count, size_bytes)
                continue
            rows = read_reply(reply, count, self._source)
            vectors[start:end] = self._unit_vectors(rows, dimension)
            limits = limits.after_acceptance(count, size_bytes)
            start = end
        self._remember(limits)
        return vectors

    def _send_batch(
        self, texts: Sequence[str], start: int, end: int, deadline: Deadline
    ) -> bytes | None:
        """Returns the reply to a request with the texts from `start` to `end`.

        Returns None if the endpoint refuses several texts together. If it refuses a single text,
        raises EmbedderRejected, which says which text it is.
        """
        try:
            return self._send(list(texts[start:end]), deadline)
        except _RequestTooLarge:
            return None
        except EmbedderRejected as error:
            if error.every_text or len(texts) == 1:
                raise
            size = len(texts[start].encode())
            raise EmbedderRejected(
                f"{error.message}; this is about text {end} of {len(texts)}, which was sent alone "
                f"and has {size} bytes"
            ) from None

    def _remember(self, learned: RequestLimits) -> None:
        """Stores what a call has learned, all of whose texts the endpoint has accepted.

        After a refusal of a single text, nothing is stored: the text was the cause, not the number
        of texts or of bytes.
        """
        with self._limits_lock:
            before = self._limits
            limits = self._limits = before.combined(learned)
        if (limits.max_texts, limits.max_bytes) != (before.max_texts, before.max_bytes):
            _log.warning(
                "embedding_request_limits_learned",
                endpoint=self._source,
                max_texts=limits.max_texts,
                max_bytes=limits.max_bytes,
            )

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
        """Returns the content of the reply. Raises _RequestTooLarge if several texts are refused.

        Asks for vectors in base64, which are a third as large as lists of numbers, unless the
        endpoint has refused that.
        """
        accepts_base64 = self._accepts_base64
        try:
            # The raw response is used, because the SDK's parser neither limits the size of a reply
            # nor validates the reply.
            with self._endpoint.client.embeddings.with_streaming_response.create(
                input=texts,
                model=self._model,
                dimensions=self._dimensions or omit,
                encoding_format="base64" if accepts_base64 else "float",
                timeout=timeout,
            ) as reply:
                return self._endpoint.read(reply.http_response)
        except APIStatusError as error:
            content = refused_content(error)
            if content is None:
                raise
            if not (accepts_base64 and refused_parameters(content, ("encoding_format",))):
                if len(texts) > 1:
                    raise _RequestTooLarge from None
                raise
        self._accepts_base64 = False
        return self._request(texts, timeout)


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
