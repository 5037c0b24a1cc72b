"""A call of every method with every kind of credential ends with the right status code.

The guard checks the credentials of calls, and no method may bypass it.
"""

import threading
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
_UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
_DENIED = grpc.StatusCode.PERMISSION_DENIED
_NO_TENANT = "/hrag.v1.RetrieverService/GetServerInfo"
_STREAM = "/hrag.v1.IndexerService/IngestDocuments"
# The call is about all tenants, so a credential for some tenants does not suffice.
_STORE_WIDE = "/hrag.v1.IndexerService/ListTenants"

# The roles are listed here and not derived from RULES, because the tests check RULES.
_NEEDS_ADMIN = {"DeleteCollection", "ReembedCollection", "ListTenants"}
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


def _required_role(path: str) -> Role:
    name = path.rpartition("/")[2]
    if name in _NEEDS_ADMIN:
        return Role.ADMIN
    return Role.WRITE if name in _NEEDS_WRITE else Role.READ


def _expected(path: str, kind: str) -> grpc.StatusCode:
    """Returns the status code that a caller of this kind must receive for TENANT."""
    if path == _STORE_WIDE and kind in ("read", "write", "admin", "other tenant"):
        return _DENIED
    if kind in ("read", "write", "admin", "everybody"):
        role = Role.ADMIN if kind == "everybody" else Role(kind)
        ranks = list(Role)
        return _OK if ranks.index(role) >= ranks.index(_required_role(path)) else _DENIED
    if kind == "other tenant":
        return _OK if path == _NO_TENANT else _DENIED
    return _UNAUTHENTICATED


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def key_headers(key_file: Path) -> dict[str, list[tuple[str, str]]]:
    """Returns the headers of each kind of caller with an API key."""
    read = new_key(key_file)
    revoked = new_key(key_file, role=Role.ADMIN)
    revoke(key_file, id_of(revoked))
    expired_key = expired(key_file, new_key(key_file, role=Role.ADMIN))
    callers = {
        "read": read,
        "write": new_key(key_file, role=Role.WRITE),
        "admin": new_key(key_file, role=Role.ADMIN),
        "everybody": new_key(key_file, "*", role=Role.ADMIN),
        "other tenant": new_key(key_file, OTHER, role=Role.ADMIN),
        "wrong secret": altered(read),
        "unknown id": UNKNOWN_KEY,
        "revoked": revoked,
        "expired": expired_key,
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
def token_headers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Returns the file with the signing keys, and the headers of each kind of caller."""
    issuer, stranger = new_issuer(), new_issuer()
    file = write_jwks(tmp_path_factory.mktemp("jwks") / "jwks.json", issuer)
    public = file.read_bytes()
    admin_token = issuer.token(role="admin")
    callers = {
        "read": issuer.token(),
        "write": issuer.token(role="write"),
        "admin": admin_token,
        "everybody": issuer.token(role="admin", tenants="*"),
        "other tenant": issuer.token(role="admin", tenants=[OTHER]),
        "expired": issuer.token(role="admin", exp=time.time() - 3600),
        "not yet": issuer.token(role="admin", nbf=time.time() + 3600),
        "unending": issuer.token(role="admin", exp=None),
        "other issuer": issuer.token(role="admin", iss="https://evil.test"),
        "other audience": issuer.token(role="admin", aud="mail"),
        "stranger's signature": stranger.token(role="admin"),
        "unsigned": forged(admin_token, "none"),
        "public key as secret": forged(admin_token, "HS256", public),
        "no role": issuer.token(role=None),
        "unknown role": issuer.token(role="root"),
        "no tenants": issuer.token(tenants=[]),
        "tenants of another kind": issuer.token(tenants={"acme": 1}),
        "cut off": admin_token[:-10],
        "an API key": UNKNOWN_KEY,
    }
    return file, {kind: [_bearer(token)] for kind, token in callers.items()} | {"none": []}


@pytest.fixture(scope="module")
def key_channels(key_file: Path, key_headers: Any) -> Iterator[dict[str, grpc.Channel]]:
    """Yields a channel to each service, by the name of the service. Both require API keys."""
    with ExitStack() as closing:
        variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": key_file}
        yield {
            name: closing.enter_context(connected(servicer_of(name), name, **variables))
            for name in SERVICES
        }


@pytest.fixture(scope="module")
def token_channels(token_headers: tuple[Path, Any]) -> Iterator[dict[str, grpc.Channel]]:
    """Yields a channel to each service, by the name of the service. Both require tokens."""
    with ExitStack() as closing:
        variables = {
            "HRAG_AUTH": "jwt",
            "HRAG_JWT_JWKS_FILE": token_headers[0],
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
def test_a_call_with_each_kind_of_key_ends_with_the_right_code(
    path: str, key_channels: dict[str, grpc.Channel], key_headers: dict[str, Any]
) -> None:
    expected = {kind: _expected(path, kind) for kind in key_headers}
    assert _codes(key_channels, path, key_headers) == expected


@pytest.mark.parametrize("path", METHODS)
def test_a_call_with_each_kind_of_token_ends_with_the_right_code(
    path: str,
    token_channels: dict[str, grpc.Channel],
    token_headers: tuple[Path, dict[str, Any]],
) -> None:
    callers = token_headers[1]
    expected = {kind: _expected(path, kind) for kind in callers}
    assert _codes(token_channels, path, callers) == expected


def test_every_method_has_a_rule_and_every_rule_has_a_method() -> None:
    extra = {path for path in RULES if path not in METHODS}
    assert set(METHODS) <= set(RULES)
    assert extra == {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}
    assert {f"/grpc.health.v1.Health/{name}" for name in ("Check", "Watch")} <= OPEN
    assert not OPEN & set(RULES)


@pytest.mark.parametrize("path", METHODS)
def test_the_guard_checks_every_tenant_that_a_request_names(path: str) -> None:
    message, tenants = marked(METHODS[path])
    assert set(RULES[path].tenants(message)) == tenants
    assert bool(tenants) is (path not in (_NO_TENANT, _STORE_WIDE))


@pytest.mark.parametrize("kind", ["none", "everybody"])
def test_a_method_without_a_rule_is_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch, key_channels: Any, key_headers: Any
) -> None:
    path = "/hrag.v1.RetrieverService/Search"
    requests = [request_of(METHODS[path], TENANT)]
    monkeypatch.delitem(RULES, path)
    assert code_of(key_channels[RETRIEVER], path, requests, *key_headers[kind]) is _DENIED
    with connected(servicer_of(RETRIEVER)) as open_to_all:
        assert code_of(open_to_all, path, requests) is _DENIED


def test_a_batch_is_refused_for_one_search_of_another_tenant(
    key_channels: Any, key_headers: Any
) -> None:
    path = "/hrag.v1.RetrieverService/BatchSearch"
    for tenants, code in (
        ((TENANT, TENANT), _OK),
        ((TENANT, OTHER), _DENIED),
        ((), _OK),
    ):
        request = request_of(METHODS[path], *tenants)
        assert code_of(key_channels[RETRIEVER], path, [request], *key_headers["read"]) is code


def test_a_batch_of_too_many_searches_is_refused_before_any_is_read() -> None:
    """A message of two million empty searches has 4 MB. Parsing it took 3 GB of memory."""

    class Searches(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("a search was read")

    request = SimpleNamespace(searches=Searches([None] * (MAX_BATCH_SEARCHES + 1)))
    with pytest.raises(InvalidArgument, match="has 33 entries; it must have 1 to 32"):
        RULES["/hrag.v1.RetrieverService/BatchSearch"].tenants(request)


def test_the_refusal_of_an_administrator_of_one_tenant_says_what_is_needed(
    key_channels: Any, key_headers: Any
) -> None:
    send = key_channels[INDEXER].unary_unary(_STORE_WIDE)
    with pytest.raises(grpc.RpcError) as caught:
        send(b"", timeout=60, metadata=key_headers["admin"])
    message = error_from(caught.value).message
    assert message == (
        f"{_STORE_WIDE} is about all tenants; it needs a credential for the tenant *, which means "
        "all of them"
    )


@pytest.mark.parametrize("tenant", ["", "*", "x" * 100_000, "acme ", "ACME", "acme\0"])
def test_no_credential_allows_an_invalid_tenant_id(
    tenant: str, key_channels: Any, key_headers: Any
) -> None:
    path = "/hrag.v1.RetrieverService/Search"
    request = request_of(METHODS[path], tenant)
    assert code_of(key_channels[RETRIEVER], path, [request], *key_headers["read"]) is _DENIED


def _stream_of(channel: grpc.Channel, requests: Any, headers: Any) -> Any:
    send = channel.stream_stream(
        _STREAM,
        lambda message: message.SerializeToString(),
        ipb.IngestDocumentsResponse.FromString,
    )
    return send(requests, timeout=60, metadata=headers)


def test_each_message_of_a_stream_is_checked(key_channels: Any, key_headers: Any) -> None:
    tenants = (TENANT, TENANT, OTHER, TENANT)
    requests = [ipb.IngestDocumentsRequest(tenant_id=tenant) for tenant in tenants]
    responses = _stream_of(key_channels[INDEXER], iter(requests), key_headers["write"])
    assert [next(responses), next(responses)] == [ipb.IngestDocumentsResponse()] * 2
    with pytest.raises(grpc.RpcError) as caught:
        next(responses)
    assert caught.value.code() is _DENIED


def test_a_stream_without_messages_needs_a_credential_too(
    key_channels: Any, key_headers: Any
) -> None:
    assert code_of(key_channels[INDEXER], _STREAM, []) is _UNAUTHENTICATED
    assert code_of(key_channels[INDEXER], _STREAM, [], *key_headers["read"]) is _DENIED
    assert code_of(key_channels[INDEXER], _STREAM, [], *key_headers["write"]) is _OK


def test_a_stream_ends_when_its_key_is_revoked(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = new_key(file, role=Role.WRITE)

    may_send = threading.Semaphore(0)

    def requests() -> Iterator[Any]:
        yield ipb.IngestDocumentsRequest(tenant_id=TENANT)
        revoke(file, id_of(key))
        while may_send.acquire(timeout=60):
            yield ipb.IngestDocumentsRequest(tenant_id=TENANT)

    variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": file}
    with connected(servicer_of(INDEXER), INDEXER, **variables) as channel:
        began = time.monotonic()
        responses = _stream_of(channel, requests(), [_bearer(key)])
        with pytest.raises(grpc.RpcError) as caught:
            _ = [may_send.release() for _response in responses]
        may_send.release()
    assert caught.value.code() is _UNAUTHENTICATED
    assert time.monotonic() - began < 30


def _refusal(channel: grpc.Channel, headers: Any, tenant: str = TENANT) -> str:
    path = "/hrag.v1.RetrieverService/Search"
    send = channel.unary_unary(path, lambda message: message.SerializeToString())
    with pytest.raises(grpc.RpcError) as caught:
        send(request_of(METHODS[path], tenant), timeout=60, metadata=headers)
    return error_from(caught.value).message


def test_refusals_do_not_reveal_which_keys_exist(key_channels: Any, key_headers: Any) -> None:
    kinds = ("none", "wrong secret", "unknown id", "revoked", "expired", "no key at all")
    assert len({_refusal(key_channels[RETRIEVER], key_headers[kind]) for kind in kinds}) == 1


def test_a_request_without_a_credential_is_not_parsed(key_channels: Any) -> None:
    send = key_channels[RETRIEVER].unary_unary("/hrag.v1.RetrieverService/Search")
    with pytest.raises(grpc.RpcError) as caught:
        send(b"\xff\xff\xff", timeout=60)
    assert caught.value.code() is _UNAUTHENTICATED


def test_health_checks_need_no_credential_but_reflection_does(
    key_channels: Any, key_headers: Any
) -> None:
    stub = health_pb2_grpc.HealthStub(key_channels[RETRIEVER])
    request = health_pb2.HealthCheckRequest(service=RETRIEVER)
    assert stub.Check(request, timeout=60).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        ProtoReflectionDescriptorDatabase(key_channels[RETRIEVER]).get_services()
    assert caught.value.code() is _UNAUTHENTICATED
    authorized = grpc.intercept_channel(
        key_channels[RETRIEVER], _Bearer(key_headers["other tenant"])
    )
    assert RETRIEVER in ProtoReflectionDescriptorDatabase(authorized).get_services()


class _Bearer(grpc.StreamStreamClientInterceptor):
    """Adds headers to reflection calls, because the reflection client has no option for headers."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details._replace(metadata=self._headers), requests)


def test_the_log_contains_tenant_and_credential_id_but_no_key(
    key_channels: Any, key_headers: Any
) -> None:
    path = "/hrag.v1.RetrieverService/Search"
    key = key_headers["read"][0][1].removeprefix("Bearer ")
    with capture_logs([call_fields]) as logs:
        code_of(key_channels[RETRIEVER], path, [request_of(METHODS[path], TENANT)], _bearer(key))
        code_of(key_channels[RETRIEVER], path, [request_of(METHODS[path], OTHER)], _bearer(key))
        code_of(key_channels[RETRIEVER], path, [request_of(METHODS[path], "a\nb")], _bearer(key))
    # Lines of other methods are ignored: a stream of an earlier test may be cancelled meanwhile.
    calls = [line for line in logs if line.get("method") == path]
    assert [(line["tenant"], line["credential"], line["code"]) for line in calls] == [
        (TENANT, id_of(key), "OK"),
        (OTHER, id_of(key), "PERMISSION_DENIED"),
        ("", id_of(key), "PERMISSION_DENIED"),
    ]
    assert key.split("_", 2)[2] not in str(logs)  # The secret may contain underscores.
