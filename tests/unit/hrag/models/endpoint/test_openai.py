"""Requests to an endpoint end in time and use limited memory, no matter how it replies."""

import gzip
import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest
from httpx2 import Response
from openai import Stream, Timeout

from hrag.errors import Cancelled, DeadlineExceeded, EmbedderRejected, EmbedderUnavailable
from hrag.models.endpoint import openai_endpoint as endpoint_module
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.models.endpoint.openai_endpoint import (
    MAX_ERROR_BYTES,
    Endpoint,
    ErrorMapping,
    RetryPolicy,
)
from hrag.values.deadline import NEVER, Deadline
from tests.support.servers import openai_server
from tests.support.servers.openai_server import Fault, OpenAIServer, Reply
from tests.support.until import until

DEADLINE_S = 0.6
LATEST_S = 1.0
INPUT = {"model": "test", "input": ["a text"]}

Read = Callable[[Endpoint, Deadline], bytes]


def endpoint_of(server: OpenAIServer, timeout_s: float = 30.0) -> Endpoint:
    return Endpoint(
        "embedding",
        EndpointAccess(server.base_url, "key"),
        ErrorMapping(EmbedderUnavailable, EmbedderRejected, EmbedderRejected, {}),
        RetryPolicy(count=4, max_delay_s=10.0, after_timeout=True),
        timeout_s,
    )


@pytest.fixture
def endpoint(server: OpenAIServer) -> Endpoint:
    return endpoint_of(server)


def reply_to(endpoint: Endpoint, timeout: Timeout) -> Response:
    """Returns the reply to INPUT before any of it has been read."""
    reply = endpoint.client.post(
        "/embeddings",
        cast_to=object,
        body=INPUT,
        options={"timeout": timeout},
        stream=True,
        stream_cls=Stream[object],
    )
    return reply.response


def at_once(endpoint: Endpoint, deadline: Deadline) -> bytes:
    """Returns a reply that was read as a whole, before `send` returned."""

    def request(timeout: Timeout) -> bytes:
        with closing(reply_to(endpoint, timeout)) as response:
            return endpoint.read(response)

    return endpoint.send(request, deadline)


def streamed(endpoint: Endpoint, deadline: Deadline) -> bytes:
    """Returns a reply that was read piece by piece."""
    with endpoint.stream(partial(reply_to, endpoint), deadline) as response:
        return b"".join(response.iter_bytes())


BYTES = openai_server.events(*[b" ", 0.1] * 40)


def bytes_of_an_error(reply: Reply) -> Reply:
    return replace(BYTES(reply), status=500)


def slow_headers(reply: Reply) -> Reply:
    return replace(reply, slow_headers=40, events=())


@pytest.mark.parametrize(
    "fault",
    [
        BYTES,
        bytes_of_an_error,
        slow_headers,
        openai_server.events(*[b" ", 0.1] * 5, 30.0),
        lambda reply: replace(reply, delay_s=0.5, events=(b" ", 30.0)),
    ],
    ids=["bytes", "bytes of an error", "headers", "bytes, then stuck", "late, then stuck"],
)
@pytest.mark.parametrize("read", [at_once, streamed])
def test_a_slow_reply_is_read_only_until_the_deadline(
    read: Read, fault: Fault, server: OpenAIServer, endpoint: Endpoint
) -> None:
    """Each wait is shorter than the deadline. Afterwards the connections can be used again."""
    server.inject(fault)
    began = time.monotonic()
    with pytest.raises((DeadlineExceeded, EmbedderUnavailable)):
        read(endpoint, Deadline.after(DEADLINE_S))
    assert time.monotonic() - began < LATEST_S
    assert server.calls == 1
    assert "data" in json.loads(read(endpoint, Deadline.after(60)))


@pytest.mark.parametrize(
    "fault",
    [BYTES, openai_server.events(*[b" "] * 200_000), bytes_of_an_error, slow_headers],
    ids=["bytes", "bytes without a pause", "bytes of an error", "headers"],
)
def test_an_attempt_ends_at_its_timeout_and_is_retried(fault: Fault, server: OpenAIServer) -> None:
    """Each byte arrives in time, and the caller has no deadline."""
    server.inject(fault)
    began = time.monotonic()
    assert "data" in json.loads(at_once(endpoint_of(server, timeout_s=0.3), NEVER))
    assert time.monotonic() - began < 2
    assert server.calls == 2


def test_a_stream_is_not_bounded_by_the_timeout_of_its_attempt(server: OpenAIServer) -> None:
    server.inject(openai_server.events(*[b" ", 0.1] * 8, b"{}"))
    assert json.loads(streamed(endpoint_of(server, timeout_s=0.3), NEVER)) == {}
    assert server.calls == 1


def test_a_passed_deadline_is_reported_as_such(server: OpenAIServer, endpoint: Endpoint) -> None:
    server.inject(BYTES)
    with pytest.raises(DeadlineExceeded, match="waiting for the embedding endpoint"):
        at_once(endpoint, Deadline.after(0.3))


def test_a_caller_that_leaves_ends_a_slow_reply(server: OpenAIServer, endpoint: Endpoint) -> None:
    server.inject(BYTES)
    began = time.monotonic()
    with pytest.raises(Cancelled, match="waiting for the embedding endpoint"):
        at_once(endpoint, Deadline(is_waiting=lambda: time.monotonic() < began + 0.3))
    assert time.monotonic() - began < LATEST_S


@pytest.mark.parametrize("read", [at_once, streamed])
def test_a_connection_does_not_keep_the_deadline_of_an_earlier_request(
    read: Read, server: OpenAIServer, endpoint: Endpoint
) -> None:
    read(endpoint, Deadline.after(0.5))
    server.inject(openai_server.events(*[b" ", 0.1] * 8, b"{}"))
    assert json.loads(read(endpoint, NEVER)) == {}


@pytest.mark.parametrize("charset", ["undefined", "base64", "hex", "rot13", "idna"])
@pytest.mark.parametrize(("status", "error"), [(502, EmbedderUnavailable), (400, EmbedderRejected)])
@pytest.mark.parametrize("read", [at_once, streamed])
def test_a_refusal_is_not_decoded(
    read: Read, status: int, error: type[Exception], charset: str, server: OpenAIServer
) -> None:
    """The charsets are Python codecs that raise all kinds of exceptions."""
    server.inject(openai_server.page(status, charset))
    with pytest.raises(error, match=f"answered {status}"):
        read(endpoint_of(server), Deadline.after(0.3))


@pytest.mark.parametrize("read", [at_once, streamed])
def test_a_refusal_is_read_up_to_its_limit(
    read: Read, server: OpenAIServer, endpoint: Endpoint
) -> None:
    sent = (b"x" * MAX_ERROR_BYTES,) * 1000
    server.inject(partial(replace, status=400, events=sent))
    with pytest.raises(EmbedderRejected, match="answered 400"):
        read(endpoint, NEVER)
    until(lambda: server.streams_left == 1)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_reply_is_read_up_to_its_limit(
    is_compressed: bool,
    server: OpenAIServer,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request is not repeated."""
    monkeypatch.setattr(endpoint_module, "MAX_REPLY_BYTES", 1000)
    for size, is_read in ((1000, True), (1001, False)):
        content = gzip.compress(b" " * size) if is_compressed else b" " * size
        headers = {"Content-Encoding": "gzip"} if is_compressed else {}
        server.inject(partial(replace, body=content, headers=headers))
        if is_read:
            assert at_once(endpoint, NEVER) == b" " * size
        else:
            with pytest.raises(EmbedderUnavailable, match="over 1000 bytes, the limit of a reply"):
                at_once(endpoint, NEVER)
    assert server.calls == 2


def test_a_redirect_is_followed_without_reading_its_content(
    server: OpenAIServer, endpoint: Endpoint
) -> None:
    elsewhere = {"Location": f"{server.base_url}/embeddings"}
    server.inject(lambda reply: replace(BYTES(reply), status=307, headers=elsewhere))
    assert "data" in json.loads(at_once(endpoint, Deadline.after(DEADLINE_S)))
    assert server.calls == 2
