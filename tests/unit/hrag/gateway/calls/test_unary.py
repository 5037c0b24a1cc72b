"""Unary calls pass through the gateway, with their headers, errors and limits."""

import gzip
import json
import time

import pytest

from hrag import errors
from hrag.gateway.services.methods import METHODS
from tests.support.servers.fake_services import Fake
from tests.support.servers.gateways import INGEST, JSON, SEARCH, Gateway

_UNARY = [
    method.path
    for method in METHODS
    if not (method.descriptor.client_streaming or method.descriptor.server_streaming)
]


@pytest.mark.parametrize("path", _UNARY)
def test_every_unary_method_is_served(gateway: Gateway, fake: Fake, path: str) -> None:
    name = path.rpartition("/")[2]
    calls_before = fake.calls[name]
    assert gateway.post(path, {}).status == 200
    assert fake.calls[name] == calls_before + 1


def test_a_reply_is_json_that_must_not_be_cached(gateway: Gateway) -> None:
    reply = gateway.post(SEARCH, {"text": "a"})
    assert reply.json == {"sequence": "7"}
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_protobuf_messages_pass_unchanged(gateway: Gateway) -> None:
    reply = gateway.post(SEARCH, b"", {"content-type": "application/proto"})
    assert (reply.status, reply.body) == (200, b"\x38\x07")
    assert reply.headers["content-type"] == "application/proto"


def test_a_request_may_be_compressed(gateway: Gateway) -> None:
    headers = {"content-encoding": "gzip"}
    assert gateway.post(SEARCH, gzip.compress(b'{"text": "a"}'), headers).status == 200
    assert gateway.post(SEARCH, gzip.compress(b'{"text": 5}'), headers).field == "text"


@pytest.mark.parametrize(
    ("encoding", "body", "code", "words"),
    [
        ("br", b"{}", "unimplemented", "'br'; supported are gzip, identity"),
        ("gzip", b"{}", "invalid_argument", "the body is not gzip"),
        ("gzip", gzip.compress(b"{}")[:-4], "invalid_argument", "is incomplete"),
        ("gzip", gzip.compress(b"{}") + b"x", "invalid_argument", "data after the end of its gzip"),
        ("gzip", gzip.compress(b" " * (17 << 20)), "invalid_argument", "larger than the 16,777"),
    ],
    ids=["of another kind", "not compressed", "cut", "longer", "a bomb"],
)
def test_a_body_with_broken_compression_is_refused_with_the_problem(
    gateway: Gateway, encoding: str, body: bytes, code: str, words: str
) -> None:
    reply = gateway.post(SEARCH, body, {"content-encoding": encoding})
    assert reply.json["code"] == code
    assert words in reply.json["message"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/hrag.v1.RetrieverService/Nothing", {}, 404),
        ("POST", SEARCH + "/", {}, 404),
        ("POST", "/" + SEARCH, JSON, 404),
        ("POST", SEARCH.replace("S", "%53"), JSON, 404),
        ("POST", "/hrag.v1.RetrieverService%2FSearch", JSON, 404),
        ("POST", "http://localhost" + SEARCH, JSON, 404),
        ("POST", SEARCH + "%0d%0aset-cookie:a", JSON, 404),
        ("GET", SEARCH, {}, 405),
        ("PUT", SEARCH, {}, 405),
        ("POST", SEARCH, {"content-type": "text/plain"}, 415),
        ("POST", SEARCH, {}, 415),
        ("POST", SEARCH, {"content-type": "application/connect+json"}, 415),
    ],
)
def test_the_status_of_a_request_that_is_not_served_shows_the_reason(
    gateway: Gateway, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    reply = gateway.send(method, path, b"{}", headers)
    assert reply.status == status
    assert reply.json["code"] == "unimplemented"
    assert ("allow" in reply.headers) == (status == 405)
    assert ("accept-post" in reply.headers) == (status == 415)
    assert ("/docs lists what it serves" in reply.json["message"]) == (status == 404)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connect-protocol-version", "2"),
        ("connect-timeout-ms", "1s"),
        ("connect-timeout-ms", "12345678901"),
        ("connect-timeout-ms", "-1"),
        ("traceparent", "\xe4"),
        ("authorization", "Bearer a\tb"),
    ],
)
def test_an_invalid_header_is_refused_by_name(gateway: Gateway, name: str, value: str) -> None:
    assert gateway.post(SEARCH, {}, {name: value}).field == name


def test_a_request_with_two_credentials_is_refused(gateway: Gateway) -> None:
    """Otherwise a proxy could check one credential and the service another."""
    with gateway.connection() as connection:
        connection.putrequest("POST", SEARCH)
        for name, value in {**JSON, "content-length": "2", "authorization": "Bearer a"}.items():
            connection.putheader(name, value)
        connection.putheader("Authorization", "Bearer b")
        connection.endheaders(b"{}")
        response = connection.getresponse()
        assert response.status == 400
        assert (
            json.loads(response.read())["message"]
            == "the header authorization occurs twice; send it once"
        )


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "CONNECT"])
def test_other_http_methods_call_no_service(gateway: Gateway, fake: Fake, method: str) -> None:
    calls_before = fake.calls["Search"]
    assert gateway.send(method, SEARCH).status == 405
    assert fake.calls["Search"] == calls_before


def test_the_deadline_reaches_the_service(gateway: Gateway, fake: Fake) -> None:
    assert gateway.post(SEARCH, {}, {"connect-timeout-ms": "60000"}).status == 200
    assert 30 < fake.remaining_s < 61
    assert gateway.post(SEARCH, {}, {"connect-timeout-ms": "9999999999"}).status == 200
    assert gateway.post(SEARCH, {}, {"connect-timeout-ms": "000"}).status == 504
    fake.may_answer.clear()
    late_reply = gateway.post(SEARCH, {}, {"connect-timeout-ms": "50"})
    fake.may_answer.set()
    assert (late_reply.status, late_reply.json["code"]) == (504, "deadline_exceeded")


def test_the_timeout_of_a_call_begins_when_its_headers_arrive(gateway: Gateway, fake: Fake) -> None:
    calls_before = fake.calls["Search"]
    with gateway.connection() as connection:
        connection.putrequest("POST", SEARCH)
        for header in ("content-type: application/json", "connect-timeout-ms: 100"):
            connection.putheader(*header.split(": "))
        connection.putheader("content-length", "2")
        connection.endheaders(b"{")
        time.sleep(0.3)  # The client sends the rest of its body later than its timeout allows.
        connection.send(b"}")
        response = connection.getresponse()
        assert response.status == 504
        assert "connect-timeout-ms" in json.loads(response.read())["message"]
    assert fake.calls["Search"] == calls_before


def test_a_request_id_comes_back_and_reaches_the_service(gateway: Gateway) -> None:
    assert gateway.post(SEARCH, {}, {"x-request-id": "mine"}).headers["x-request-id"] == "mine"
    replacement = gateway.post(SEARCH, {}, {"x-request-id": "not mine"}).headers["x-request-id"]
    assert len(replacement) == 16


@pytest.mark.parametrize(
    ("error", "status", "code", "reason"),
    [
        (errors.CollectionNotFound("no"), 404, "not_found", "COLLECTION_NOT_FOUND"),
        (errors.CollectionExists("no"), 409, "already_exists", "COLLECTION_EXISTS"),
        (errors.PermissionDenied("no"), 403, "permission_denied", "PERMISSION_DENIED"),
        (errors.NoVectors("no"), 400, "failed_precondition", "NO_VECTORS"),
        (errors.ReplyTooLarge("no"), 429, "resource_exhausted", "REPLY_TOO_LARGE"),
        (errors.DataLoss("no"), 500, "data_loss", "DATA_LOSS"),
        (errors.EmbedderUnavailable("no"), 503, "unavailable", "EMBEDDER_UNAVAILABLE"),
    ],
)
def test_an_error_of_a_service_keeps_code_message_and_reason(
    gateway: Gateway, fake: Fake, error: Exception, status: int, code: str, reason: str
) -> None:
    fake.failures.append(error)
    reply = gateway.post(SEARCH, {})
    assert (reply.status, reply.json["code"], reply.json["message"]) == (status, code, "no")
    assert reply.reason == reason


def test_the_delay_before_a_retry_is_in_a_header(gateway: Gateway, fake: Fake) -> None:
    fake.failures.append(errors.TooBusy("wait", retry_s=2.5))
    assert gateway.post(SEARCH, {}).headers["retry-after"] == "3"


def test_a_reply_without_a_credential_names_the_kind_that_is_needed(
    gateway: Gateway, fake: Fake
) -> None:
    fake.failures.append(errors.Unauthenticated("no"))
    assert gateway.post(SEARCH, {}).headers["www-authenticate"] == "Bearer"


def test_a_large_body_is_read_only_for_a_valid_credential(gateway: Gateway, fake: Fake) -> None:
    fake.failures.append(errors.Unauthenticated("no"))
    calls_before = fake.calls["IngestDocument"]
    large = {"document": {"text": "a" * 100_000}}
    assert gateway.post(INGEST, large).status == 401
    assert fake.calls["IngestDocument"] == calls_before
    assert gateway.post(INGEST, large).status == 200


def test_a_body_larger_than_a_message_may_be_is_refused(gateway: Gateway) -> None:
    reply = gateway.post(SEARCH, b" " * (16 << 20) + b"x")
    assert reply.reason == "TOO_LARGE"
