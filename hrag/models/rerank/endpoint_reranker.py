"""Reranks texts with any endpoint that has `POST /rerank`, in Cohere's or Hugging Face's format.

A search waits for the reranker, so a failed request is retried at most once: if the connection was
lost, or if the endpoint refused the request with a retryable status. A request that timed out is
not retried. The whole reply must arrive within the timeout, and the size of the reply is limited.
"""

from collections.abc import Sequence
from contextlib import closing
from functools import partial

from openai import Stream, Timeout

from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.models.endpoint.openai_endpoint import Endpoint, ErrorMapping, RetryPolicy
from hrag.models.rerank.request_forms import Request, RerankForm
from hrag.values.deadline import Deadline
from hrag.values.errors import DeadlineExceeded, RerankerRejected, RerankerUnavailable

_RETRIES = RetryPolicy(count=1, max_delay_s=1.0, after_timeout=False)
_CHECK_REQUEST = (
    "check HRAG_RERANK_FORM and HRAG_RERANK_MODEL, and whether the model accepts texts of "
    "HRAG_RERANK_TEXT_TOKENS"
)
_ERRORS = ErrorMapping(
    RerankerUnavailable,
    RerankerRejected,
    RerankerRejected,
    {
        400: _CHECK_REQUEST,
        401: "check HRAG_RERANK_API_KEY",
        403: "the key in HRAG_RERANK_API_KEY may not use this model",
        404: "check HRAG_RERANK_BASE_URL, to which /rerank is appended, and HRAG_RERANK_MODEL",
        413: "the endpoint accepts fewer texts than HRAG_RERANK_TOP or HRAG_RERANK_LEAVES, or only "
        "shorter texts",
        422: _CHECK_REQUEST,
        424: "the model of the endpoint is not a reranker",
    },
)


class EndpointReranker:
    """The reranking model of an endpoint. Thread-safe. Implements `hrag.models.rerank.Reranker`."""

    def __init__(
        self, *, form: RerankForm, model: str, access: EndpointAccess, timeout_s: float
    ) -> None:
        """Creates the client; sends no request.

        `timeout_s` limits the whole call, with all requests and retries. `model` may be empty if
        the endpoint has only one model.
        """
        self.name = f"{form.name}/{model}" if model else form.name
        self._form = form
        self._model = model
        self._timeout_s = timeout_s
        self._endpoint = Endpoint("reranking", access, _ERRORS, _RETRIES, timeout_s)

    def rerank(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
        """Returns one score for each text. Implements `Reranker.rerank`."""
        limited = deadline.within(self._timeout_s)
        scores: list[float] = []
        while len(scores) < len(texts):
            part = texts[len(scores) : len(scores) + self._form.max_texts]
            scores += self._scores(query, part, deadline, limited)
        return scores

    def _scores(
        self, query: str, texts: Sequence[str], deadline: Deadline, limited: Deadline
    ) -> list[float]:
        """Returns one score for each text, with a single request.

        `limited` is the caller's `deadline`, limited to the time that the whole call may take.
        """
        request = partial(self._send, self._form.request(self._model, query, texts))
        try:
            content = self._endpoint.send(request, limited)
        except DeadlineExceeded:
            # If the caller's deadline has passed, this raises DeadlineExceeded. Otherwise only the
            # reranker's time limit has passed.
            deadline.check("reranking")
            self._endpoint.raise_unavailable(f"did not answer within {self._timeout_s:g} s")
        return self._form.scores(content, len(texts), self._endpoint.name)

    def _send(self, request: Request, timeout: Timeout) -> bytes:
        # The SDK has no method for reranking, so `post` is called. The reply is requested as a
        # stream, so that its bytes can be read and counted as they arrive.
        reply = self._endpoint.client.post(
            "/rerank",
            cast_to=object,
            body=request,
            options={"timeout": timeout},
            stream=True,
            stream_cls=Stream[object],
        )
        with closing(reply.response):
            return self._endpoint.read(reply.response)
