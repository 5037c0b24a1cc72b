"""Whose limits an encoded request counts against, read without parsing it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.auth import Identity, Role
from hrag.errors import PermissionDenied
from hrag.quota.quotas import unlimited
from hrag.rpc.guard import RULES, CallGuard
from hrag.rpc.rate_limiter import RateLimiter
from hrag.v1 import retriever_pb2 as pb
from tests.methods import METHODS, request_of

_SEARCH = "/hrag.v1.RetrieverService/Search"
_METADATA = (("authorization", "Bearer key"),)


def _guard(method: str, *tenants: str) -> CallGuard:
    identity = Identity("credential", frozenset(tenants), Role.ADMIN)
    guard = CallGuard(method, lambda _: identity, RateLimiter(unlimited), _METADATA)
    guard.authorize()
    return guard


@pytest.mark.parametrize("method", METHODS)
def test_every_method_counts_for_the_tenant_of_its_request(method: str) -> None:
    guard = _guard(method, "*")
    request = request_of(METHODS[method], "acme")
    expected = "acme" if RULES[method].tenants(request) else "credential"
    assert guard.account_of(request.SerializeToString()) == expected


@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_tenant_is_refused_before_the_request_is_parsed(method: str) -> None:
    request = request_of(METHODS[method], "acme")
    if RULES[method].tenants(request):
        with pytest.raises(PermissionDenied, match="acme"):
            _guard(method, "other").account_of(request.SerializeToString())


@given(st.binary(max_size=60))
def test_any_bytes_count_for_somebody(message: bytes) -> None:
    for depth_of in (_SEARCH, "/hrag.v1.RetrieverService/BatchSearch"):
        assert _guard(depth_of, "*").account_of(message)


@pytest.mark.parametrize(
    ("tenants", "expected"),
    [
        (["acme"], "acme"),
        (["b", "acme"], "acme"),
        (["*"], "credential"),
        (["*", "a"], "credential"),
    ],
)
def test_a_message_that_begins_otherwise_gives_no_second_account(tenants, expected) -> None:
    message = pb.SearchRequest(text="x").SerializeToString()
    tenant = pb.SearchRequest(tenant_id="acme").SerializeToString()
    assert _guard(_SEARCH, *tenants).account_of(message + tenant) == expected


def test_a_tenant_that_is_too_long_is_not_decoded() -> None:
    message = pb.SearchRequest(tenant_id="a" * 65).SerializeToString()
    assert _guard(_SEARCH, "acme").account_of(message) == "acme"
