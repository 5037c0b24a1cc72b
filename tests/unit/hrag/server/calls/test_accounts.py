"""The account of a request, a tenant or a credential, is determined without parsing the request."""

import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import PermissionDenied, TooBusy
from hrag.server.auth import Identity, Role
from hrag.server.calls.guard import RULES, CallGuard
from hrag.server.calls.rate_limiter import RateLimiter
from hrag.v1 import retriever_pb2 as pb
from hrag.values.quotas import unlimited
from hrag.wire.status_codes import error_from
from tests.support.methods import METHODS, request_of, servicer_of
from tests.support.servers.credentials import new_key
from tests.support.servers.servers import RETRIEVER, connected

_SEARCH = "/hrag.v1.RetrieverService/Search"
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_METADATA = (("authorization", "Bearer key"),)


def _guard(method: str, *tenants: str) -> CallGuard:
    identity = Identity("credential", frozenset(tenants), Role.ADMIN)
    guard = CallGuard(method, lambda _: identity, RateLimiter(unlimited), _METADATA)
    guard.authorize()
    return guard


@pytest.mark.parametrize("method", METHODS)
def test_a_request_of_every_method_counts_for_its_tenant(method: str) -> None:
    guard = _guard(method, "*")
    request = request_of(METHODS[method], "acme")
    expected = "acme" if RULES[method].tenants(request) else "credential"
    assert guard.account_of(request.SerializeToString()) == expected


@pytest.mark.parametrize(
    ("tenants", "expected"),
    [(["acme"], "acme"), (["globex", "acme"], "acme"), (["*"], "credential")],
)
@pytest.mark.parametrize("method", METHODS)
def test_all_credentials_of_a_tenant_share_one_account(
    method: str, tenants: list[str], expected: str
) -> None:
    if RULES[method].is_store_wide and "*" not in tenants:
        with pytest.raises(PermissionDenied, match="about all tenants"):
            _guard(method, *tenants)
    else:
        assert _guard(method, *tenants).account == expected


@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_tenant_is_refused_before_the_request_is_parsed(method: str) -> None:
    request = request_of(METHODS[method], "acme")
    if RULES[method].tenants(request):
        with pytest.raises(PermissionDenied, match="acme"):
            _guard(method, "other").account_of(request.SerializeToString())


def test_two_keys_of_a_tenant_share_its_limit_of_open_streams(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first, second, other = new_key(path, "acme"), new_key(path, "acme"), new_key(path, "globex")
    variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": path, "HRAG_MAX_STREAMS": 4}
    with connected(servicer_of(RETRIEVER), **variables) as channel:
        streams = [_open_reflection(channel, key) for key in (first, second)]
        with pytest.raises(grpc.RpcError) as caught:
            next(_open_reflection(channel, second))
        error = error_from(caught.value)
        assert type(error) is TooBusy
        assert "acme has 2 open streams" in error.message
        assert next(_open_reflection(channel, other, b"\x3a\x00"))
        for stream in streams:
            stream.cancel()


def _open_reflection(channel: grpc.Channel, key: str, *messages: bytes) -> Any:
    """Opens a reflection stream. Without messages it stays open until it is cancelled."""
    ended = threading.Event()
    requests = iter(messages) if messages else (b"" for _ in iter(ended.wait, True))
    stream = channel.stream_stream(_REFLECTION)(
        requests, metadata=(("authorization", f"Bearer {key}"),), timeout=60
    )
    stream.add_callback(ended.set)
    stream.initial_metadata()
    return stream


@given(st.binary(max_size=60))
def test_a_request_of_any_bytes_counts_for_an_account(message: bytes) -> None:
    for method in (_SEARCH, "/hrag.v1.RetrieverService/BatchSearch"):
        assert _guard(method, "*").account_of(message)


@pytest.mark.parametrize(
    ("tenants", "expected"),
    [
        (["acme"], "acme"),
        (["b", "acme"], "acme"),
        (["*"], "credential"),
        (["*", "a"], "credential"),
    ],
)
def test_a_tenant_that_is_not_the_first_field_does_not_change_the_account(
    tenants, expected
) -> None:
    message = pb.SearchRequest(text="x").SerializeToString()
    tenant = pb.SearchRequest(tenant_id="acme").SerializeToString()
    assert _guard(_SEARCH, *tenants).account_of(message + tenant) == expected


def test_a_tenant_id_that_is_too_long_is_not_decoded() -> None:
    message = pb.SearchRequest(tenant_id="a" * 65).SerializeToString()
    assert _guard(_SEARCH, "acme").account_of(message) == "acme"
