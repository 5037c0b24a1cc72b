"""Requests to a model endpoint end in time and use limited memory, however the endpoint replies."""

import gzip
import json
import time
from collections.abc import Callable
from contextlib import closing, suppress
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
LATEST_S = 25.0
INPUT = {"model": "test", "input": ["a text"]}

Read = Callable[[Endpoint, Deadline], bytes]


def endpoint_of(server: OpenAIServer, timeout_s: float = 30.0, retries: int = 4) -> Endpoint:
    return Endpoint(
        "embedding",
        EndpointAccess(server.base_url, "key"),
        ErrorMapping(EmbedderUnavailable, EmbedderRejected, EmbedderRejected, {}),
        RetryPolicy(count=retries, max_delay_s=10.0, after_timeout=True),
        timeout_s,
    )


@pytest.fixture
def endpoint(server: OpenAIServer) -> Endpoint:
    return endpoint_of(server)


def reply_to(endpoint: Endpoint, timeout: Timeout) -> Response:
    """Sends INPUT; returns the reply before any of its content has been read."""
    reply = endpoint.client.post(
        "/embeddings",
        cast_to=object,
        body=INPUT,
        options={"timeout": timeout},
        stream=True,
        stream_cls=Stream[object],
    )
    return reply.response


def read_at_once(endpoint: Endpoint, deadline: Deadline) -> bytes:
    """Returns a reply that was read as a whole, before `send` returned."""

    def request(timeout: Timeout) -> bytes:
        with closing(reply_to(endpoint, timeout)) as response:
            return endpoint.read(response)

    return endpoint.send(request, deadline)


def read_streamed(endpoint: Endpoint, deadline: Deadline) -> bytes:
    """Returns a reply that was read piece by piece."""
    with endpoint.stream(partial(reply_to, endpoint), deadline) as response:
        return b"".join(response.iter_bytes())


SLOW_BYTES = openai_server.events(*[b" ", 0.1] * 400)


def slow_bytes_of_an_error(reply: Reply) -> Reply:
    return replace(SLOW_BYTES(reply), status=500)


def slow_headers(reply: Reply) -> Reply:
    return replace(reply, slow_headers=400, events=())


@pytest.mark.parametrize(
    "fault",
    [
        SLOW_BYTES,
        slow_bytes_of_an_error,
        slow_headers,
        openai_server.events(*[b" ", 0.1] * 5, 30.0),
        lambda reply: replace(reply, delay_s=0.5, events=(b" ", 30.0)),
    ],
    ids=["bytes", "bytes of an error", "headers", "bytes, then stuck", "late, then stuck"],
)
@pytest.mark.parametrize("read", [read_at_once, read_streamed])
def test_a_slow_reply_is_read_only_until_the_deadline(
    read: Read, fault: Fault, server: OpenAIServer, endpoint: Endpoint
) -> None:
    """Bytes that arrive do not extend the deadline. The next request to the endpoint succeeds."""
    server.inject(fault)
    began = time.monotonic()
    with pytest.raises((DeadlineExceeded, EmbedderUnavailable)):
        read(endpoint, Deadline.after(DEADLINE_S))
    assert time.monotonic() - began < LATEST_S
    assert server.calls == 1
    assert "data" in json.loads(read(endpoint, Deadline.after(60)))


@pytest.mark.parametrize(
    "fault",
    [SLOW_BYTES, openai_server.events(*[b" "] * 200_000), slow_bytes_of_an_error, slow_headers],
    ids=["bytes", "bytes without a pause", "bytes of an error", "headers"],
)
def test_an_attempt_ends_at_its_timeout_and_is_retried(fault: Fault, server: OpenAIServer) -> None:
    """The timeout limits the whole attempt and not each pause. The caller has no deadline."""
    server.inject(fault)
    began = time.monotonic()
    assert "data" in json.loads(read_at_once(endpoint_of(server, timeout_s=0.3), NEVER))
    assert time.monotonic() - began < LATEST_S
    assert server.calls >= 2


def test_a_stream_may_last_longer_than_the_timeout_of_an_attempt(server: OpenAIServer) -> None:
    server.inject(openai_server.events(*[b" ", 0.2] * 8, b"{}"))
    assert json.loads(read_streamed(endpoint_of(server, timeout_s=1.5), NEVER)) == {}
    assert server.calls == 1


def test_a_deadline_that_passes_during_the_reply_raises_deadline_exceeded(
    server: OpenAIServer, endpoint: Endpoint
) -> None:
    server.inject(SLOW_BYTES)
    with pytest.raises(DeadlineExceeded, match="waiting for the embedding endpoint"):
        read_at_once(endpoint, Deadline.after(0.3))


def test_reading_a_slow_reply_ends_when_the_caller_leaves(
    server: OpenAIServer, endpoint: Endpoint
) -> None:
    server.inject(SLOW_BYTES)
    began = time.monotonic()
    with pytest.raises(Cancelled, match="waiting for the embedding endpoint"):
        read_at_once(endpoint, Deadline(is_waiting=lambda: time.monotonic() < began + 0.3))
    assert time.monotonic() - began < LATEST_S


@pytest.mark.parametrize("read", [read_at_once, read_streamed])
def test_the_deadline_of_a_request_does_not_affect_later_requests(
    read: Read, server: OpenAIServer, endpoint: Endpoint
) -> None:
    with suppress(DeadlineExceeded):  # On a slow machine.
        read(endpoint, Deadline.after(0.5))
    server.inject(openai_server.events(*[b" ", 0.1] * 8, b"{}"))
    assert json.loads(read(endpoint, NEVER)) == {}


@pytest.mark.parametrize("charset", ["undefined", "base64", "hex", "rot13", "idna"])
@pytest.mark.parametrize(("status", "error"), [(502, EmbedderUnavailable), (400, EmbedderRejected)])
@pytest.mark.parametrize("read", [read_at_once, read_streamed])
def test_the_content_of_a_refusal_is_not_decoded(
    read: Read, status: int, error: type[Exception], charset: str, server: OpenAIServer
) -> None:
    """The charsets name Python codecs that raise various exceptions when they decode a text."""
    server.inject(openai_server.page(status, charset))
    with pytest.raises(error, match=f"answered {status}"):
        read(endpoint_of(server, retries=0), Deadline.after(60))


@pytest.mark.parametrize("read", [read_at_once, read_streamed])
def test_the_content_of_a_refusal_is_read_up_to_its_limit(
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
    """A request whose reply exceeds the limit is not retried."""
    monkeypatch.setattr(endpoint_module, "MAX_REPLY_BYTES", 1000)
    for size, is_read in ((1000, True), (1001, False)):
        content = gzip.compress(b" " * size) if is_compressed else b" " * size
        headers = {"Content-Encoding": "gzip"} if is_compressed else {}
        server.inject(partial(replace, body=content, headers=headers))
        if is_read:
            assert read_at_once(endpoint, NEVER) == b" " * size
        else:
            with pytest.raises(EmbedderUnavailable, match="over 1000 bytes, the limit of a reply"):
                read_at_once(endpoint, NEVER)
    assert server.calls == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("read", [read_at_once, read_streamed])
def test_a_redirect_is_not_followed_and_its_content_is_not_read(
    read: Read, status: int, server: OpenAIServer, endpoint: Endpoint
) -> None:
    """Neither the texts nor the key reach the other host. The request is not retried."""
    with OpenAIServer() as other:
        headers = {"Location": f"http://user:secret@{other.address}/v1/embeddings?key=secret"}
        server.inject(lambda reply: replace(SLOW_BYTES(reply), status=status, headers=headers))
        began = time.monotonic()
        with pytest.raises(EmbedderRejected) as caught:
            read(endpoint, Deadline.after(60))
        assert time.monotonic() - began < LATEST_S
        assert f"answered {status}: it redirects to '127.0.0.1'" in caught.value.message
        assert "secret" not in caught.value.message
        assert (server.calls, other.calls) == (1, 0)


@pytest.mark.parametrize("location", ["/v1/other", "//[", "", "?a", "\xff"])
def test_a_redirect_to_no_other_host_is_not_followed_either(
    location: str, server: OpenAIServer, endpoint: Endpoint
) -> None:
    server.inject(partial(replace, status=307, headers={"Location": location}))
    with pytest.raises(EmbedderRejected, match="answered 307"):
        read_at_once(endpoint, NEVER)
    assert server.calls == 1
