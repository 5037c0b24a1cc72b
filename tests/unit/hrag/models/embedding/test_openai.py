"""The OpenAI embedder handles every known kind of invalid, late or missing reply."""

import json
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import pytest

from hrag.config import MAX_REQUEST_BYTES, MAX_REQUEST_TEXTS
from hrag.errors import Cancelled, DeadlineExceeded, EmbedderRejected, EmbedderUnavailable
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.openai_embedder import OpenAIEmbedder
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.models.endpoint.openai_endpoint import MAX_REPLY_BYTES
from hrag.values.deadline import Deadline
from tests.support.servers import openai_server
from tests.support.servers.openai_server import (
    DEFAULT_DIMENSION,
    Fault,
    OpenAIServer,
    in_base64,
    vectors_of,
)

KEY = "sk-test-4711"
TEXTS = ["first secret", "second secret", "third secret"]
# This value of the header Retry-After, in seconds, makes retries almost immediate.
AT_ONCE = "0.001"
# A reply of which one byte arrives every 0.05 s, for 20 s.
TRICKLING = openai_server.events(*[b" ", 0.05] * 400)


EmbedderFactory = Callable[..., OpenAIEmbedder]


@pytest.fixture
def embedder_with(server: OpenAIServer) -> EmbedderFactory:
    def make(**changes: Any) -> OpenAIEmbedder:
        settings = {
            "model": "test-model",
            "access": EndpointAccess(server.base_url, KEY),
            "dimensions": DEFAULT_DIMENSION,
        }
        return OpenAIEmbedder(**(settings | changes))

    return make


def assert_equal_vectors(vectors: Vectors, expected: Vectors) -> None:
    """Asserts that two arrays are equal except for the rounding errors of scaling."""
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


@pytest.fixture
def embedder(embedder_with: EmbedderFactory) -> OpenAIEmbedder:
    return embedder_with()


# The following tests cover requests.


def test_a_request_contains_model_dimensions_and_key(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    embedder.embed(TEXTS)
    (request,) = server.requests
    assert request["model"] == "test-model"
    assert request["input"] == TEXTS
    assert request["dimensions"] == DEFAULT_DIMENSION
    assert server.authorizations == [f"Bearer {KEY}"]


def test_a_request_has_no_dimensions_by_default(
    server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    """Models with a fixed dimension reject a request with the field `dimensions`."""
    embedder_with(dimensions=None).embed(TEXTS)
    assert all("dimensions" not in request for request in server.requests)


def test_the_embedder_is_named_after_its_model(embedder: OpenAIEmbedder) -> None:
    assert embedder.name == "openai/test-model"
    assert embedder.max_tokens == 8191


def test_no_request_is_sent_if_there_are_no_texts(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    assert embedder.embed([]).shape == (0, DEFAULT_DIMENSION)
    assert server.calls == 0


def test_many_texts_are_split_into_several_requests(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    texts = [f"text {number}" for number in range(2 * MAX_REQUEST_TEXTS + 1)]
    assert_equal_vectors(embedder.embed(texts), vectors_of(texts))
    sizes = [len(request["input"]) for request in server.requests]
    assert sizes == [MAX_REQUEST_TEXTS, MAX_REQUEST_TEXTS, 1]


def test_long_texts_are_split_into_several_requests(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    texts = [str(number) + "字" * (MAX_REQUEST_BYTES // 9 + 1) for number in range(5)]
    assert_equal_vectors(embedder.embed(texts), vectors_of(texts))
    assert [len(request["input"]) for request in server.requests] == [2, 2, 1]


# The following tests cover the probe, which is the request that determines the dimension.


def test_the_dimension_is_requested_once(
    server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    embedder = embedder_with(dimensions=None)
    assert server.calls == 0
    with ThreadPoolExecutor(8) as pool:
        dimensions = list(pool.map(lambda _: embedder.dimension, range(32)))
    assert dimensions == [DEFAULT_DIMENSION] * 32
    embedder.embed(TEXTS)
    assert server.calls == 2


def test_a_failed_probe_is_not_cached(server: OpenAIServer, embedder_with: EmbedderFactory) -> None:
    embedder = embedder_with(dimensions=None, max_retries=0)
    server.inject(openai_server.refuse(503))
    with pytest.raises(EmbedderUnavailable):
        _ = embedder.dimension
    assert embedder.dimension == DEFAULT_DIMENSION


def test_the_error_of_a_probe_is_raised_to_all_waiting_callers(
    server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    """The waiting callers do not repeat the probe one after the other."""
    embedder = embedder_with(dimensions=None, max_retries=0, timeout_s=0.6)
    server.inject(openai_server.slow(30), times=8)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(embedder.embed, TEXTS) for _ in range(8)]
        failures = [call.exception() for call in calls]
    assert all(isinstance(failure, EmbedderUnavailable) for failure in failures)
    assert server.calls < 8


def test_waiting_for_the_dimension_ends_at_the_callers_deadline(
    server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    """A probe continues for other callers when one caller has stopped waiting."""
    embedder = embedder_with(dimensions=None)
    may_answer = Event()
    server.inject(openai_server.held(may_answer))
    with pytest.raises(DeadlineExceeded, match="dimension"):
        embedder.embed(TEXTS, Deadline.after(0.2))
    may_answer.set()
    assert_equal_vectors(embedder.embed(TEXTS), vectors_of(TEXTS))
    assert server.calls == 2


def test_a_probe_whose_reply_arrives_too_slowly_is_repeated(
    server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    embedder = embedder_with(dimensions=None, timeout_s=0.3)
    server.inject(TRICKLING)
    assert_equal_vectors(embedder.embed(TEXTS, Deadline.after(60)), vectors_of(TEXTS))
    assert server.calls >= 3


def test_a_probe_that_returns_an_empty_vector_is_refused(
    server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    server.inject(openai_server.last_vector([]))
    with pytest.raises(EmbedderRejected):
        _ = embedder_with(dimensions=None).dimension


# The following tests cover retries.


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_transient_errors_are_retried(
    status: int, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(openai_server.refuse(status, retry_after=AT_ONCE), times=4)
    assert_equal_vectors(embedder.embed(TEXTS), vectors_of(TEXTS))
    assert server.calls == 5


@pytest.mark.parametrize("fault", [openai_server.hang_up, openai_server.events(b'{"data', None)])
def test_a_lost_connection_is_retried(
    fault: Fault, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(fault)
    assert_equal_vectors(embedder.embed(TEXTS), vectors_of(TEXTS))


@pytest.mark.parametrize("fault", [openai_server.slow(30), TRICKLING])
def test_a_slow_reply_is_retried(
    fault: Fault, server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    server.inject(fault)
    vectors = embedder_with(timeout_s=0.3).embed(TEXTS)
    assert_equal_vectors(vectors, vectors_of(TEXTS))


def test_retry_after_sets_the_delay(server: OpenAIServer, embedder: OpenAIEmbedder) -> None:
    server.inject(openai_server.refuse(429, retry_after="1.2"))
    start = time.monotonic()
    embedder.embed(TEXTS)
    assert 1.2 <= time.monotonic() - start < 30


def test_a_retry_without_retry_after_is_delayed(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    """Immediate retries would exceed the rate limit of the endpoint again."""
    server.inject(openai_server.refuse(429))
    start = time.monotonic()
    embedder.embed(TEXTS)
    assert 0.3 <= time.monotonic() - start < 30


# The following tests cover deadlines.


def test_a_request_whose_retry_would_be_after_the_deadline_fails_immediately(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(openai_server.refuse(429, retry_after="60"))
    began = time.monotonic()
    with pytest.raises(EmbedderUnavailable, match="429"):
        embedder.embed(TEXTS, Deadline.after(50))
    assert time.monotonic() - began < 40
    assert server.calls == 1


def test_the_delay_before_a_retry_ends_when_the_caller_leaves(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(openai_server.refuse(429, retry_after="30"))
    began = time.monotonic()
    with pytest.raises(Cancelled, match="waiting to retry"):
        embedder.embed(TEXTS, Deadline(is_waiting=lambda: time.monotonic() < began + 0.3))
    assert time.monotonic() - began < 25


def test_a_slow_endpoint_is_abandoned_at_the_deadline(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(openai_server.slow(30), times=5)
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="embedding endpoint"):
        embedder.embed(TEXTS, Deadline.after(0.4))
    assert time.monotonic() - began < 25


def test_no_further_request_is_sent_after_the_caller_left(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    texts = ["x" * MAX_REQUEST_BYTES] * 4
    with pytest.raises(Cancelled):
        embedder.embed(texts, Deadline(is_waiting=lambda: server.calls < 2))
    assert server.calls == 2


# The following tests cover persistent errors.


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (openai_server.refuse(429, "rate_limit_exceeded", AT_ONCE), "429 (rate_limit_exceeded)"),
        (openai_server.refuse(500, retry_after=AT_ONCE), "answered 500;"),
        (openai_server.refuse(503, "secret", AT_ONCE), "answered 503;"),
    ],
)
def test_an_error_that_persists_raises_embedder_unavailable(
    fault: Fault, problem: str, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(fault, times=100)
    with pytest.raises(EmbedderUnavailable) as raised:
        embedder.embed(TEXTS)
    assert problem in raised.value.message
    assert server.address in raised.value.message
    assert "at most 5 attempts" in raised.value.message
    assert server.calls == 5


@pytest.mark.parametrize("fault", [openai_server.slow(30), TRICKLING])
def test_a_missing_reply_raises_embedder_unavailable(
    fault: Fault, server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    server.inject(fault, times=2)
    with pytest.raises(EmbedderUnavailable, match=r"did not answer within 0\.2 s"):
        embedder_with(timeout_s=0.2, max_retries=1).embed(TEXTS)
    assert server.calls == 2


def test_an_endpoint_that_does_not_run_raises_embedder_unavailable(
    embedder_with: EmbedderFactory,
) -> None:
    with OpenAIServer() as stopped:
        pass
    with pytest.raises(EmbedderUnavailable, match=r"cannot be reached .*refused") as raised:
        embedder_with(access=EndpointAccess(stopped.base_url, KEY), max_retries=0).embed(TEXTS)
    assert stopped.address in raised.value.message


def test_a_connection_that_is_lost_each_time_raises_embedder_unavailable(
    server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    server.inject(openai_server.hang_up)
    with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
        embedder_with(max_retries=0).embed(TEXTS)


@pytest.mark.parametrize(
    ("status", "code", "problem"),
    [
        (400, None, "answered 400: check HRAG_OPENAI_DIMENSIONS"),
        (401, "invalid_api_key", "answered 401 (invalid_api_key): check OPENAI_API_KEY"),
        (403, None, "answered 403: the key in OPENAI_API_KEY"),
        (404, "model_not_found", "answered 404 (model_not_found): check OPENAI_BASE_URL"),
        (413, None, "answered 413: check the model's limit"),
        (422, "secret", "answered 422: check HRAG_OPENAI_DIMENSIONS"),
    ],
)
def test_a_rejected_request_is_not_retried(
    status: int, code: str | None, problem: str, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(openai_server.refuse(status, code))
    with pytest.raises(EmbedderRejected) as raised:
        embedder.embed(TEXTS[:1])
    assert problem in raised.value.message
    assert server.address in raised.value.message
    assert server.calls == 1


@pytest.mark.parametrize(
    ("status", "requests"),
    # Three texts are refused, then two, then one, and then each text alone.
    [(400, 6), (413, 6), (422, 6), (401, 1), (402, 1), (403, 1), (404, 1)],
)
def test_a_rejected_batch_is_repeated_text_by_text_if_one_text_may_be_the_cause(
    status: int, requests: int, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(openai_server.refuse(status), times=6)
    outcomes = CachedQueries(embedder, 10).embed_each("tenant", TEXTS)
    assert [type(outcome) for outcome in outcomes] == [EmbedderRejected] * 3
    assert all(f"answered {status}" in str(outcome) for outcome in outcomes)
    assert server.calls == requests


def test_a_wrong_path_is_rejected(server: OpenAIServer, embedder_with: EmbedderFactory) -> None:
    with pytest.raises(EmbedderRejected, match="404: check OPENAI_BASE_URL"):
        embedder_with(access=EndpointAccess(f"http://{server.address}/v2", KEY)).embed(TEXTS)


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_errors_repeat_neither_key_nor_texts(
    status: int, server: OpenAIServer, embedder_with: EmbedderFactory
) -> None:
    """Neither the message nor a logged traceback contains the key or a text."""
    words = f"Incorrect API key {KEY} for '{TEXTS[0]}'"
    server.inject(openai_server.refuse(status, TEXTS[1], words=words), times=3)
    base_url = server.base_url.replace("127.0.0.1", "user:password@127.0.0.1")
    with pytest.raises((EmbedderUnavailable, EmbedderRejected)) as raised:
        embedder_with(access=EndpointAccess(base_url, KEY), max_retries=0).embed(TEXTS)
    logged = "".join(traceback.format_exception(raised.value))
    assert KEY not in logged
    assert "secret" not in logged
    assert "password" not in raised.value.message


# The following tests cover invalid replies.


def test_the_largest_batch_fits_into_a_reply() -> None:
    vector = [-sys.float_info.max] * 4096
    assert (len(json.dumps(vector)) + 100) * MAX_REQUEST_TEXTS < MAX_REPLY_BYTES


def test_the_vectors_of_a_reply_are_sorted_by_index(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(openai_server.shuffled)
    assert_equal_vectors(embedder.embed(TEXTS), vectors_of(TEXTS))


ONES = [1.0] * DEFAULT_DIMENSION
NAN = np.array([*ONES[1:], np.nan])
INDEXES = "each index from 0 to 2 must occur exactly once"
NO_LIST = "without a list `data` of objects"
NO_NUMBERS = "neither a list of numbers nor base64 of float32"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        pytest.param(openai_server.without_last, "returned 2 vectors for 3 texts", id="short"),
        pytest.param(openai_server.indexes(0, 1, 1), INDEXES, id="index twice"),
        pytest.param(openai_server.indexes(1, 2, 3), INDEXES, id="indexes from 1"),
        pytest.param(openai_server.indexes(0, 1, -1), INDEXES, id="index negative"),
        pytest.param(openai_server.indexes(0, 1, None), INDEXES, id="index null"),
        pytest.param(openai_server.indexes("0", "1", "2"), INDEXES, id="indexes as text"),
        pytest.param(openai_server.indexes(0, 1, [2]), INDEXES, id="index a list"),
        pytest.param(
            openai_server.last_vector(ONES[1:]),
            "a vector of 31 numbers where 32 are expected",
            id="too few numbers",
        ),
        pytest.param(
            openai_server.last_vector(in_base64(np.ones(33))),
            "a vector of 33 numbers where 32 are expected",
            id="too many numbers",
        ),
        pytest.param(
            openai_server.last_vector(NAN.tolist()), "NaN or infinity: index 2 of 3", id="NaN"
        ),
        pytest.param(
            openai_server.last_vector(in_base64(NAN)), "NaN or infinity", id="NaN in base64"
        ),
        pytest.param(openai_server.last_vector([1e200, *ONES[1:]]), "NaN or infinity", id="huge"),
        pytest.param(
            openai_server.last_vector([0.0] * DEFAULT_DIMENSION), "of zeros: index 2", id="zeros"
        ),
        pytest.param(openai_server.last_vector("%%%"), NO_NUMBERS, id="not base64"),
        pytest.param(openai_server.last_vector("AAAAAAA="), NO_NUMBERS, id="half a float"),
        pytest.param(openai_server.last_vector(None), NO_NUMBERS, id="null"),
        pytest.param(openai_server.last_vector({"a": 1}), NO_NUMBERS, id="object"),
        pytest.param(openai_server.last_vector([ONES, ONES]), NO_NUMBERS, id="nested"),
        pytest.param(openai_server.last_vector([ONES, 1.0]), NO_NUMBERS, id="ragged"),
        pytest.param(openai_server.last_vector(["word"] * 32), NO_NUMBERS, id="words"),
        pytest.param(openai_server.last_vector([10**400] * 32), NO_NUMBERS, id="no float"),
        pytest.param(openai_server.body(b"<html>secret</html>"), "not JSON", id="HTML"),
        pytest.param(openai_server.body(b'{"data": ['), "not JSON", id="truncated"),
        pytest.param(openai_server.body(b"\xff\xfe\xff"), "not JSON", id="not UTF-8"),
        pytest.param(openai_server.body(b"[" * 200_000), "not JSON", id="nested too deep"),
        pytest.param(openai_server.body(b""), "not JSON", id="empty"),
        pytest.param(openai_server.body(b"[]"), NO_LIST, id="list"),
        pytest.param(openai_server.body(b'{"error": "secret"}'), NO_LIST, id="no data"),
        pytest.param(openai_server.body(b'{"data": [1, 2, 3]}'), NO_LIST, id="numbers as data"),
    ],
)
# If the collector closed idle connections of earlier tests deep in a recursion, its warning would
# fail.
@pytest.mark.usefixtures("no_garbage")
def test_an_invalid_reply_is_rejected(
    fault: Fault, problem: str, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    """The request is not retried, and the next request succeeds."""
    server.inject(fault)
    with pytest.raises(EmbedderRejected) as raised:
        embedder.embed(TEXTS)
    assert problem in raised.value.message
    assert server.address in raised.value.message
    assert "secret" not in raised.value.message
    assert server.calls == 1
    assert_equal_vectors(embedder.embed(TEXTS), vectors_of(TEXTS))
