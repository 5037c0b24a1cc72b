"""Answers are streamed as server-sent events or Connect frames.

Documents to ingest and their outcomes are streamed as JSON lines.
"""

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from hrag import errors
from hrag.v1 import indexer_pb2_grpc
from tests.support.servers.fake_services import Fake, addresses_of
from tests.support.servers.gateways import ANSWER, INGEST_MANY, Gateway, Reply, gateway_to

_SEARCH = {"search": {"text": "a"}}
_CONNECT = {"content-type": "application/connect+json"}
# At most this many lines are sent to the indexer before their outcomes have arrived.
_MAX_PENDING_LINES = 512
_JSON_LINES = {"content-type": "application/x-ndjson"}


def _events(reply: Reply) -> list[tuple[str, Any]]:
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = []
    for event in reply.body.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def _frames(reply: Reply) -> list[tuple[int, Any]]:
    frames, raw = [], reply.body
    while raw:
        flags, length = struct.unpack_from(">BI", raw)
        frames.append((flags, json.loads(raw[5 : 5 + length])))
        raw = raw[5 + length :]
    return frames


def _frame(message: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(message)) + message


def _lines(*ids: str) -> bytes:
    return b"".join(map(_line, ids))


def _line(document_id: str) -> bytes:
    return json.dumps({"document": {"documentId": document_id}}).encode() + b"\n"


def _outcomes(reply: Reply) -> list[Any]:
    return [json.loads(line) for line in reply.body.splitlines()]


# The following tests cover answers.


def test_an_answer_comes_as_events_named_for_their_fields(gateway: Gateway) -> None:
    reply = gateway.post(ANSWER, _SEARCH, {"accept": "text/event-stream"})
    assert _events(reply) == [
        ("passages", {"mode": "SEARCH_MODE_STANDARD"}),
        ("text", "Dogs"),
        ("end", {"finishReason": "FINISH_REASON_STOP"}),
    ]


def test_reasoning_comes_as_events_only_if_asked_for(gateway: Gateway) -> None:
    reply = gateway.post(ANSWER, _SEARCH | {"reasoning": True}, {"accept": "text/event-stream"})
    assert _events(reply)[1:3] == [("reasoning", "Hm."), ("text", "Dogs")]


def test_an_answer_comes_as_connect_frames(gateway: Gateway) -> None:
    reply = gateway.post(ANSWER, _frame(json.dumps(_SEARCH).encode()), _CONNECT)
    assert reply.headers["content-type"] == "application/connect+json"
    assert _frames(reply) == [
        (0, {"passages": {"mode": "SEARCH_MODE_STANDARD"}}),
        (0, {"text": "Dogs"}),
        (0, {"end": {"finishReason": "FINISH_REASON_STOP"}}),
        (2, {}),
    ]


def test_an_error_before_the_first_event_is_returned_with_its_http_status(
    gateway: Gateway, fake: Fake
) -> None:
    fake.failures.append(errors.TooBusy("wait"))
    reply = gateway.post(ANSWER, _SEARCH)
    assert (reply.status, reply.reason) == (429, "TOO_BUSY")
    assert gateway.post(ANSWER, {"serach": {}}).field == "serach"


def test_a_later_error_is_the_last_event(gateway: Gateway, fake: Fake) -> None:
    fake.may_answer.clear()
    with gateway.connection() as connection:
        headers = {"content-type": "application/json"}
        connection.request("POST", ANSWER, json.dumps(_SEARCH), headers)
        response = connection.getresponse()
        response.readline()
        fake.failures.append(errors.ServiceUnavailable("stops"))
        fake.may_answer.set()
        remaining_events = response.read()
    assert remaining_events.endswith(b"\n\n")
    name, data = remaining_events.split(b"\n\n")[-2].split(b"\n")
    assert name == b"event: error"
    assert json.loads(data.removeprefix(b"data: "))["code"] == "unavailable"


def test_in_a_connect_stream_every_error_is_in_the_last_frame(gateway: Gateway, fake: Fake) -> None:
    fake.failures.append(errors.TooBusy("wait"))
    reply = gateway.post(ANSWER, _frame(b"{}"), _CONNECT)
    ((flags, end),) = _frames(reply)
    assert (reply.status, flags, end["error"]["code"]) == (200, 2, "resource_exhausted")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", "invalid_argument", "the body has 0 bytes"),
        (_frame(b"{}", flags=1), "unimplemented", "is compressed"),
        (_frame(b"{}") * 2, "invalid_argument", "it must be one frame"),
        (_frame(b"{}")[:-1], "invalid_argument", "it must be one frame"),
        (_frame(b"[]"), "invalid_argument", "it must be an object"),
    ],
)
def test_a_broken_frame_is_an_error_that_names_the_problem(
    gateway: Gateway, body: bytes, code: str, words: str
) -> None:
    ((_, end),) = _frames(gateway.post(ANSWER, body, _CONNECT))
    assert end["error"]["code"] == code
    assert words in end["error"]["message"]


@pytest.mark.parametrize("headers", [{}, _CONNECT])
def test_a_client_that_disconnects_ends_the_call(
    gateway: Gateway, fake: Fake, headers: dict[str, str]
) -> None:
    fake.hung_up.clear()
    fake.may_answer.clear()
    raw = json.dumps(_SEARCH).encode()
    with gateway.connection() as connection:
        body = _frame(raw) if headers else raw
        connection.request("POST", ANSWER, body, {"content-type": "application/json", **headers})
        connection.getresponse().read(8)
    assert fake.hung_up.wait(60)
    fake.may_answer.set()


# The following tests cover documents.


def test_each_line_has_its_outcome(gateway: Gateway) -> None:
    reply = gateway.post(INGEST_MANY, _lines("a", "bad", "c"), _JSON_LINES)
    assert reply.headers["content-type"] == "application/x-ndjson"
    first, second, third = _outcomes(reply)
    assert (first["line"], first["result"]["documentId"]) == (1, "a")
    assert (second["line"], second["error"]["error"]["reason"]) == (2, "BLANK_DOCUMENT")
    assert (third["line"], third["result"]["documentId"]) == (3, "c")


def test_a_line_that_cannot_be_read_has_an_error_in_its_place(gateway: Gateway) -> None:
    invalid_lines = b'{"document": {"titel": "x"}}\n\n{"document": \n'
    body = _lines("a") + invalid_lines + _line("b").rstrip()
    reply = gateway.post(INGEST_MANY, body, _JSON_LINES)
    first, second, fourth, fifth = _outcomes(reply)
    assert first["result"]["documentId"] == "a"
    assert second["line"] == 2
    assert second["error"]["error"]["field"] == "document.titel"
    assert (fourth["line"], fourth["error"]["error"]["field"]) == (4, "request")
    assert (fifth["line"], fifth["result"]["documentId"]) == (5, "b")


def test_outcomes_arrive_while_further_lines_are_sent(gateway: Gateway) -> None:
    with gateway.connection() as connection:
        connection.putrequest("POST", INGEST_MANY)
        connection.putheader("content-type", "application/x-ndjson")
        connection.putheader("transfer-encoding", "chunked")
        connection.endheaders()
        response = None
        for name in ("a", "b"):
            line = _line(name)
            connection.send(b"%x\r\n%b\r\n" % (len(line), line))
            response = response or connection.getresponse()
            assert json.loads(response.readline())["result"]["documentId"] == name
        connection.send(b"0\r\n\r\n")
        assert response is not None
        assert response.read() == b""


def test_without_lines_there_are_no_outcomes(gateway: Gateway) -> None:
    reply = gateway.post(INGEST_MANY, b"\n", _JSON_LINES)
    assert (reply.status, reply.body) == (200, b"")


def test_a_stream_that_fails_before_its_first_outcome_has_an_error_status(
    gateway: Gateway, fake: Fake
) -> None:
    fake.failures.append(errors.Unauthenticated("no"))
    assert gateway.post(INGEST_MANY, _lines("a"), _JSON_LINES).status == 401


class Refusing(indexer_pb2_grpc.IndexerServiceServicer):
    """An indexer without capacity, which ends each stream before it has read a document."""

    def IngestDocuments(self, request_iterator: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")


def test_a_stream_that_the_indexer_ends_while_lines_are_sent_keeps_its_status(fake: Fake) -> None:
    refusing = grpc.server(ThreadPoolExecutor(4))
    indexer_pb2_grpc.add_IndexerServiceServicer_to_server(Refusing(), refusing)
    port = refusing.add_insecure_port("127.0.0.1:0")
    refusing.start()
    with (
        addresses_of(fake) as (_, retriever),
        gateway_to(f"127.0.0.1:{port}", retriever) as gateway,
    ):
        lines = _lines(*("a" * 60_000 for _ in range(5)))
        statuses = [gateway.post(INGEST_MANY, lines, _JSON_LINES).status for _ in range(100)]
    refusing.stop(0)
    assert set(statuses) == {429}


def test_a_stream_that_fails_later_has_the_error_in_its_last_line(
    gateway: Gateway, fake: Fake
) -> None:
    with gateway.connection() as connection:
        connection.putrequest("POST", INGEST_MANY)
        connection.putheader("content-type", "application/x-ndjson")
        connection.putheader("content-length", str(2 * len(_line("a"))))
        connection.endheaders(_line("a"))
        response = connection.getresponse()
        response.readline()
        fake.failures.append(errors.StorageFull("full"))
        connection.send(_line("b"))
        last_line = json.loads(response.read())
    assert last_line["streamError"]["code"] == "resource_exhausted"


def test_many_documents_get_their_outcomes_in_order(gateway: Gateway) -> None:
    ids = [f"d{number}" for number in range(_MAX_PENDING_LINES + 100)]
    outcomes = _outcomes(gateway.post(INGEST_MANY, _lines(*ids), _JSON_LINES))
    assert [outcome["result"]["documentId"] for outcome in outcomes] == ids
