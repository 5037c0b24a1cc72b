"""Requests to an endpoint end at the deadline, however slowly it replies."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from openai import Stream, Timeout

from hrag.deadline import NEVER, Deadline
from hrag.endpoint.access import Access
from hrag.endpoint.openai import Endpoint, ErrorMapping, RetryPolicy
from hrag.errors import Cancelled, DeadlineExceeded, EmbedderRejected, EmbedderUnavailable
from tests import openai_server
from tests.openai_server import Fault, OpenAIServer

DEADLINE_S = 0.6
LATEST_S = 1.0
INPUT = {"model": "test", "input": ["a text"]}

Read = Callable[[Endpoint, Deadline], bytes]


@pytest.fixture
def endpoint(server: OpenAIServer) -> Endpoint:
    return Endpoint(
        "embedding",
        Access(server.base_url, "key"),
        ErrorMapping(EmbedderUnavailable, EmbedderRejected, {}),
        RetryPolicy(count=4, max_delay_s=10.0, after_timeout=True),
        timeout_s=30.0,
    )


def at_once(endpoint: Endpoint, deadline: Deadline) -> bytes:
    """Returns a reply that was read as a whole, before `send` returned."""

    def request(timeout: Timeout) -> bytes:
        create = endpoint.client.embeddings.with_raw_response.create
        return create(input="a text", model="test", timeout=timeout).content

    return endpoint.send(request, deadline)


def streamed(endpoint: Endpoint, deadline: Deadline) -> bytes:
    """Returns a reply that was read after `send` had returned."""

    def request(timeout: Timeout) -> Stream[object]:
        return endpoint.client.post(
            "/embeddings",
            cast_to=object,
            body=INPUT,
            options={"timeout": timeout},
            stream=True,
            stream_cls=Stream[object],
        )

    reply = endpoint.send(request, deadline)
    with closing(reply.response), endpoint.translated_errors():
        return b"".join(reply.response.iter_bytes())


BYTES = openai_server.events(*[b" ", 0.1] * 40)


@pytest.mark.parametrize(
    "fault",
    [
        BYTES,
        lambda reply: replace(BYTES(reply), status=500),
        lambda reply: replace(reply, slow_headers=40, events=()),
        openai_server.events(*[b" ", 0.1] * 5, 30.0),
        lambda reply: replace(reply, delay_s=0.5, events=(b" ", 30.0)),
    ],
    ids=["bytes", "bytes of an error", "headers", "bytes, then stuck", "late, then stuck"],
)
@pytest.mark.parametrize("read", [at_once, streamed])
def test_a_slow_reply_is_read_until_the_deadline_only(
    read: Read, fault: Fault, server: OpenAIServer, endpoint: Endpoint
) -> None:
    """Each wait is shorter than the deadline; the connections afterwards are as good as new."""
    server.inject(fault)
    began = time.monotonic()
    with pytest.raises((DeadlineExceeded, EmbedderUnavailable)):
        read(endpoint, Deadline.after(DEADLINE_S))
    assert time.monotonic() - began < LATEST_S
    assert server.calls == 1
    assert "data" in json.loads(read(endpoint, Deadline.after(60)))


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
