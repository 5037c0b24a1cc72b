"""Calls every method with every kind of credential and checks its status code.

No method may bypass the guard.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from structlog.testing import capture_logs

from hrag.errors import InvalidArgument
from hrag.observe.log import call_fields
from hrag.server.auth import Role
from hrag.server.auth.api_keys import revoke
from hrag.server.calls.guard import OPEN, RULES
from hrag.types import MAX_BATCH_SEARCHES
from hrag.v1 import indexer_pb2 as ipb
from hrag.wire.status_codes import error_from
from tests.support.methods import METHODS, SERVICES, code_of, marked, request_of, servicer_of
from tests.support.servers.credentials import (
    AUDIENCE,
    ISSUER,
    OTHER,
    TENANT,
    UNKNOWN_KEY,
    altered,
    expired,
    forged,
    id_of,
    new_issuer,
    new_key,
    write_jwks,
)
from tests.support.servers.servers import INDEXER, RETRIEVER, connected

_OK = grpc.StatusCode.OK
_NO_CREDENTIAL = grpc.StatusCode.UNAUTHENTICATED
_DENIED = grpc.StatusCode.PERMISSION_DENIED
_NO_TENANT = "/hrag.v1.RetrieverService/GetServerInfo"
_STREAM = "/hrag.v1.IndexerService/IngestDocuments"

# These names are not derived from RULES, which is under test.
_NEEDS_ADMIN = {"DeleteCollection"}
_NEEDS_WRITE = {
    "CreateCollection",
    "IngestDocument",
    "IngestDocuments",
    "DeleteDocument",
    "DeleteDocuments",
    "UpdateMetadata",
    "SetAlias",
    "DeleteAlias",
}


def _bearer(credential: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {credential}")


def _needed(path: str) -> Role:
    name = path.rpartition("/")[2]
    if name in _NEEDS_ADMIN:
        return Role.ADMIN
    return Role.WRITE if name in _NEEDS_WRITE else Role.READ


def _expected(path: str, kind: str) -> grpc.StatusCode:
    """Returns the code with which a call for TENANT must end."""
    if kind in ("read", "write", "admin", "everybody"):
        role = Role.ADMIN if kind == "everybody" else Role(kind)
        ranks = list(Role)
        return _OK if ranks.index(role) >= ranks.index(_needed(path)) else _DENIED
    if kind == "other tenant":
        return _OK if path == _NO_TENANT else _DENIED
    return _NO_CREDENTIAL


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def api_keys(key_file: Path) -> dict[str, list[tuple[str, str]]]:
    """Returns the headers of each kind of caller."""
    read = new_key(key_file)
    revoked = new_key(key_file, role=Role.ADMIN)
    revoke(key_file, id_of(revoked))
    over = expired(key_file, new_key(key_file, role=Role.ADMIN))
    callers = {
        "read": read,
        "write": new_key(key_file, role=Role.WRITE),
        "admin": new_key(key_file, role=Role.ADMIN),
        "everybody": new_key(key_file, "*", role=Role.ADMIN),
        "other tenant": new_key(key_file, OTHER, role=Role.ADMIN),
        "wrong secret": altered(read),
        "unknown id": UNKNOWN_KEY,
        "revoked": revoked,
        "expired": over,
        "empty": "",
        "no key at all": "x" * 5000,
    }
    return {
        **{kind: [_bearer(key)] for kind, key in callers.items()},
        "none": [],
        "two": [_bearer(read), _bearer(read)],
        "basic": [("authorization", f"Basic {read}")],
        "no scheme": [("authorization", read)],
        "elsewhere": [("x-api-key", read)],
    }


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    issuer, stranger = new_issuer(), new_issuer()
    file = write_jwks(tmp_path_factory.mktemp("jwks") / "jwks.json", issuer)
    public = file.read_bytes()
    good = issuer.token(role="admin")
    callers = {
        "read": issuer.token(),
        "write": issuer.token(role="write"),
        "admin": good,
        "everybody": issuer.token(role="admin", tenants="*"),
        "other tenant": issuer.token(role="admin", tenants=[OTHER]),
        "expired": issuer.token(role="admin", exp=time.time() - 3600),
        "not yet": issuer.token(role="admin", nbf=time.time() + 3600),
        "unending": issuer.token(role="admin", exp=None),
        "other issuer": issuer.token(role="admin", iss="https://evil.test"),
        "other audience": issuer.token(role="admin", aud="mail"),
        "stranger's signature": stranger.token(role="admin"),
        "unsigned": forged(good, "none"),
        "public key as secret": forged(good, "HS256", public),
        "no role": issuer.token(role=None),
        "unknown role": issuer.token(role="root"),
        "no tenants": issuer.token(tenants=[]),
        "tenants of another kind": issuer.token(tenants={"acme": 1}),
        "cut off": good[:-10],
        "an API key": UNKNOWN_KEY,
    }
    return file, {kind: [_bearer(token)] for kind, token in callers.items()} | {"none": []}


@pytest.fixture(scope="module")
def keyed(key_file: Path, api_keys: Any) -> Iterator[dict[str, grpc.Channel]]:
    """Yields channels to both services, by name; the services require keys."""
    with ExitStack() as closing:
        variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": key_file}
        yield {
            name: closing.enter_context(connected(servicer_of(name), name, **variables))
            for name in SERVICES
        }


@pytest.fixture(scope="module")
def tokened(tokens: tuple[Path, Any]) -> Iterator[dict[str, grpc.Channel]]:
    """Yields channels to both services, by name; the services require tokens."""
    with ExitStack() as closing:
        variables = {
            "HRAG_AUTH": "jwt",
            "HRAG_JWT_JWKS_FILE": tokens[0],
            "HRAG_JWT_ISSUER": ISSUER,
            "HRAG_JWT_AUDIENCE": AUDIENCE,
        }
        yield {
            name: closing.enter_context(connected(servicer_of(name), name, **variables))
            for name in SERVICES
        }


def _codes(channels: dict[str, grpc.Channel], path: str, callers: dict[str, Any]) -> dict[str, Any]:
    channel = channels[path.split("/")[1]]
    requests = [request_of(METHODS[path], TENANT)]
    return {kind: code_of(channel, path, requests, *headers) for kind, headers in callers.items()}


@pytest.mark.parametrize("path", METHODS)
def test_each_kind_of_key_gets_its_code(
    path: str, keyed: dict[str, grpc.Channel], api_keys: dict[str, Any]
) -> None:
    assert _codes(keyed, path, api_keys) == {kind: _expected(path, kind) for kind in api_keys}


@pytest.mark.parametrize("path", METHODS)
def test_each_kind_of_token_gets_its_code(
    path: str, tokened: dict[str, grpc.Channel], tokens: tuple[Path, dict[str, Any]]
) -> None:
    callers = tokens[1]
    assert _codes(tokened, path, callers) == {kind: _expected(path, kind) for kind in callers}


def test_every_method_has_a_rule_and_every_rule_a_method() -> None:
    extra = {path for path in RULES if path not in METHODS}
    assert set(METHODS) <= set(RULES)
    assert extra == {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}
    assert {f"/grpc.health.v1.Health/{name}" for name in ("Check", "Watch")} <= OPEN
    assert not OPEN & set(RULES)


@pytest.mark.parametrize("path", METHODS)
def test_the_guard_checks_every_tenant_that_a_request_names(path: str) -> None:
    message, tenants = marked(METHODS[path])
    assert set(RULES[path].tenants(message)) == tenants
    assert bool(tenants) is (path != _NO_TENANT)


@pytest.mark.parametrize("kind", ["none", "everybody"])
def test_a_method_without_a_rule_is_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch, keyed: Any, api_keys: Any
) -> None:
    path = "/hrag.v1.RetrieverService/Search"
    requests = [request_of(METHODS[path], TENANT)]
    monkeypatch.delitem(RULES, path)
    assert code_of(keyed[RETRIEVER], path, requests, *api_keys[kind]) is _DENIED
    with connected(servicer_of(RETRIEVER)) as open_to_all:
        assert code_of(open_to_all, path, requests) is _DENIED


def test_a_batch_is_refused_for_one_search_of_another_tenant(keyed: Any, api_keys: Any) -> None:
    path = "/hrag.v1.RetrieverService/BatchSearch"
    for tenants, code in (((TENANT, TENANT), _OK), ((TENANT, OTHER), _DENIED), ((), _OK)):
        request = request_of(METHODS[path], *tenants)
        assert code_of(keyed[RETRIEVER], path, [request], *api_keys["read"]) is code


def test_a_batch_of_too_many_searches_is_refused_before_any_is_read() -> None:
    """Two million empty searches have 4 MB on the wire; parsing them took a minute and 3 GB."""

    class Searches(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("looked at")

    request = SimpleNamespace(searches=Searches([None] * (MAX_BATCH_SEARCHES + 1)))
    with pytest.raises(InvalidArgument, match="has 33 entries; it must have 1 to 32"):
        RULES["/hrag.v1.RetrieverService/BatchSearch"].tenants(request)


@pytest.mark.parametrize("tenant", ["", "*", "x" * 100_000, "acme ", "ACME", "acme\0"])
def test_an_invalid_tenant_id_is_not_covered_by_a_credential(
    tenant: str, keyed: Any, api_keys: Any
) -> None:
    path = "/hrag.v1.RetrieverService/Search"
    request = request_of(METHODS[path], tenant)
    assert code_of(keyed[RETRIEVER], path, [request], *api_keys["read"]) is _DENIED


def _stream_of(channel: grpc.Channel, requests: Any, headers: Any) -> Any:
    send = channel.stream_stream(
        _STREAM,
        lambda message: message.SerializeToString(),
        ipb.IngestDocumentsResponse.FromString,
    )
    return send(requests, timeout=10, metadata=headers)


def test_each_message_of_a_stream_is_checked(keyed: Any, api_keys: Any) -> None:
    tenants = (TENANT, TENANT, OTHER, TENANT)
    requests = [ipb.IngestDocumentsRequest(tenant_id=tenant) for tenant in tenants]
    responses = _stream_of(keyed[INDEXER], iter(requests), api_keys["write"])
    assert [next(responses), next(responses)] == [ipb.IngestDocumentsResponse()] * 2
    with pytest.raises(grpc.RpcError) as caught:
        next(responses)
    assert caught.value.code() is _DENIED


def test_a_stream_without_messages_needs_a_credential_too(keyed: Any, api_keys: Any) -> None:
    assert code_of(keyed[INDEXER], _STREAM, []) is _NO_CREDENTIAL
    assert code_of(keyed[INDEXER], _STREAM, [], *api_keys["read"]) is _DENIED
    assert code_of(keyed[INDEXER], _STREAM, [], *api_keys["write"]) is _OK


def test_revoking_a_key_ends_the_stream_it_opened(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = new_key(file, role=Role.WRITE)

    def requests() -> Iterator[Any]:
        yield ipb.IngestDocumentsRequest(tenant_id=TENANT)
        revoke(file, id_of(key))
        while True:
            time.sleep(0.05)
            yield ipb.IngestDocumentsRequest(tenant_id=TENANT)

    variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": file}
    with connected(servicer_of(INDEXER), INDEXER, **variables) as channel:
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            list(_stream_of(channel, requests(), [_bearer(key)]))
    assert caught.value.code() is _NO_CREDENTIAL
    assert time.monotonic() - began < 2.5


def _refusal(channel: grpc.Channel, headers: Any, tenant: str = TENANT) -> str:
    path = "/hrag.v1.RetrieverService/Search"
    send = channel.unary_unary(path, lambda message: message.SerializeToString())
    with pytest.raises(grpc.RpcError) as caught:
        send(request_of(METHODS[path], tenant), timeout=10, metadata=headers)
    return error_from(caught.value).message


def test_refusals_do_not_reveal_which_keys_exist(keyed: Any, api_keys: Any) -> None:
    kinds = ("none", "wrong secret", "unknown id", "revoked", "expired", "no key at all")
    assert len({_refusal(keyed[RETRIEVER], api_keys[kind]) for kind in kinds}) == 1


def test_a_request_is_not_parsed_for_strangers(keyed: Any) -> None:
    send = keyed[RETRIEVER].unary_unary("/hrag.v1.RetrieverService/Search")
    with pytest.raises(grpc.RpcError) as caught:
        send(b"\xff\xff\xff", timeout=10)
    assert caught.value.code() is _NO_CREDENTIAL


def test_health_is_open_and_reflection_is_not(keyed: Any, api_keys: Any) -> None:
    stub = health_pb2_grpc.HealthStub(keyed[RETRIEVER])
    request = health_pb2.HealthCheckRequest(service=RETRIEVER)
    assert stub.Check(request, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        ProtoReflectionDescriptorDatabase(keyed[RETRIEVER]).get_services()
    assert caught.value.code() is _NO_CREDENTIAL
    authorized = grpc.intercept_channel(keyed[RETRIEVER], _Bearer(api_keys["other tenant"]))
    assert RETRIEVER in ProtoReflectionDescriptorDatabase(authorized).get_services()


class _Bearer(grpc.StreamStreamClientInterceptor):
    """Adds headers to reflection calls, because the reflection client has no option for headers."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details._replace(metadata=self._headers), requests)


def test_the_log_names_tenant_and_credential_and_no_key(keyed: Any, api_keys: Any) -> None:
    path = "/hrag.v1.RetrieverService/Search"
    key = api_keys["read"][0][1].removeprefix("Bearer ")
    with capture_logs([call_fields]) as logs:
        code_of(keyed[RETRIEVER], path, [request_of(METHODS[path], TENANT)], _bearer(key))
        code_of(keyed[RETRIEVER], path, [request_of(METHODS[path], OTHER)], _bearer(key))
        code_of(keyed[RETRIEVER], path, [request_of(METHODS[path], "a\nb")], _bearer(key))
    # Another test's stream, which is cancelled with its channel, may end meanwhile.
    calls = [line for line in logs if line.get("method") == path]
    assert [(line["tenant"], line["credential"], line["code"]) for line in calls] == [
        (TENANT, id_of(key), "OK"),
        (OTHER, id_of(key), "PERMISSION_DENIED"),
        ("", id_of(key), "PERMISSION_DENIED"),
    ]
    assert key.split("_", 2)[2] not in str(logs)  # The secret may contain underscores.
