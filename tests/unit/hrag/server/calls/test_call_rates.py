"""Every method has a rate limit: above it, unary calls are refused and streams are throttled."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from structlog.testing import capture_logs

from hrag.client import AsyncClient, Client
from hrag.errors import RateQuotaExceeded
from hrag.observe.log import call_fields
from hrag.observe.metrics import INSTRUMENTS
from hrag.server.auth import Role
from hrag.server.calls.guard import PAGE_IMAGE_CALLS
from hrag.server.calls.rate_limiter import MAX_TENANTS, RateLimiter
from hrag.types import SearchQuery
from hrag.v1 import indexer_pb2 as ipb
from hrag.wire.status_codes import error_from
from tests.support.methods import METHODS, code_of, request_of, servicer_of
from tests.support.servers.credentials import new_key
from tests.support.servers.servers import INDEXER, RETRIEVER, connected, serving
from tests.support.until import until

SLOW = {"HRAG_TENANT_CALLS_PER_S": 0.001, "HRAG_TENANT_BURST": 2}
_SEARCH = "/hrag.v1.RetrieverService/Search"
_BATCH = "/hrag.v1.RetrieverService/BatchSearch"
_STREAM = "/hrag.v1.IndexerService/IngestDocuments"
_PAGE_IMAGE = "/hrag.v1.IndexerService/GetPageImage"
_WITHOUT_TENANT = {
    "/hrag.v1.RetrieverService/GetServerInfo",
    "/hrag.v1.IndexerService/ListTenants",
}
_OK = grpc.StatusCode.OK
_REFUSED = grpc.StatusCode.RESOURCE_EXHAUSTED


class _CountingServicer:
    """Counts the calls that reach the handlers of a servicer."""

    def __init__(self, servicer: Any) -> None:
        self.calls = 0
        self._servicer = servicer

    def __getattr__(self, name: str) -> Any:
        def handle(request: Any, context: Any) -> Any:
            self.calls += 1
            return getattr(self._servicer, name)(request, context)

        return handle


@pytest.mark.parametrize("path", sorted(set(METHODS) - _WITHOUT_TENANT - {_STREAM, _PAGE_IMAGE}))
def test_a_tenant_above_its_rate_is_refused_before_the_handler_and_other_tenants_are_served(path):
    method = METHODS[path]
    service = method.containing_service.full_name
    servicer = _CountingServicer(servicer_of(service))
    with connected(servicer, service, **SLOW) as channel:
        codes = [code_of(channel, path, [request_of(method, "acme")]) for _ in range(4)]
        assert codes == [_OK, _OK, _REFUSED, _REFUSED]
        assert servicer.calls == 2
        assert code_of(channel, path, [request_of(method, "globex")]) is _OK


def test_an_image_of_a_page_counts_as_several_calls():
    """A burst of eight calls allows two images of pages, each of which counts as four calls."""
    burst = {**SLOW, "HRAG_TENANT_BURST": 2 * PAGE_IMAGE_CALLS}
    method = METHODS[_PAGE_IMAGE]
    with connected(servicer_of(INDEXER), INDEXER, **burst) as channel:
        requests = [[request_of(method, tenant)] for tenant in ("acme", "acme", "acme", "globex")]
        codes = [code_of(channel, _PAGE_IMAGE, request) for request in requests]
    assert codes == [_OK, _OK, _REFUSED, _OK]


@pytest.mark.parametrize("path", sorted(_WITHOUT_TENANT))
def test_calls_without_a_tenant_are_not_counted(path):
    service = METHODS[path].containing_service.full_name
    with connected(servicer_of(service), service, **SLOW) as channel:
        assert {code_of(channel, path, [request_of(METHODS[path])]) for _ in range(9)} == {_OK}


def test_the_calls_of_all_methods_of_a_service_count_together():
    others = (_STREAM, *_WITHOUT_TENANT)
    unary = [path for path in METHODS if "IndexerService" in path and path not in others]
    with connected(servicer_of(INDEXER), INDEXER, **SLOW) as channel:
        codes = [code_of(channel, path, [request_of(METHODS[path], "acme")]) for path in unary]
    assert codes == [_OK, _OK] + [_REFUSED] * (len(unary) - 2)


def test_each_search_of_a_batch_counts():
    variables = {"HRAG_TENANT_CALLS_PER_S": 0.001, "HRAG_TENANT_BURST": 5}
    with connected(servicer_of(RETRIEVER), **variables) as channel:

        def code(*tenants: str) -> grpc.StatusCode:
            return code_of(channel, _BATCH, [request_of(METHODS[_BATCH], *tenants)])

        assert code(*["acme"] * 3, *["globex"] * 5) is _OK
        assert code(*["acme"] * 3) is _REFUSED
        assert code("acme", "globex") is _REFUSED
        assert code(*["acme"] * 2) is _OK


def test_a_batch_that_is_too_long_is_refused_and_not_counted():
    variables = {"HRAG_TENANT_CALLS_PER_S": 0.001, "HRAG_TENANT_BURST": 1}
    with connected(servicer_of(RETRIEVER), **variables) as channel:
        batch = [request_of(METHODS[_BATCH], *["acme"] * 5000)]
        assert code_of(channel, _BATCH, batch) is grpc.StatusCode.INVALID_ARGUMENT
        assert _send(channel, _SEARCH, "acme") == b""  # The response is empty.


def test_calls_without_a_valid_key_do_not_count_for_the_tenant(tmp_path):
    file = tmp_path / "keys.json"
    key, other_key = new_key(file, role=Role.READ), new_key(file, "globex", role=Role.ADMIN)
    auth = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": file}
    request = request_of(METHODS[_SEARCH], "acme")
    with connected(servicer_of(RETRIEVER), **SLOW, **auth) as channel:
        for header in ((), (("authorization", f"Bearer {other_key}"),)):
            codes = {code_of(channel, _SEARCH, [request], *header) for _ in range(5)}
            assert codes <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
        header_of_tenant = ("authorization", f"Bearer {key}")
        codes = [code_of(channel, _SEARCH, [request], header_of_tenant) for _ in range(3)]
    assert codes == [_OK, _OK, _REFUSED]


@pytest.mark.parametrize("tenant", ["", "a b", "x" * 10_000])
def test_an_invalid_tenant_id_is_refused_by_the_handler(tenant):
    with connected(servicer_of(RETRIEVER), **SLOW) as channel:
        request = request_of(METHODS[_SEARCH], tenant)
        assert {code_of(channel, _SEARCH, [request]) for _ in range(5)} == {_OK}


def _send(channel: grpc.Channel, path: str, tenant: str) -> Any:
    send = channel.unary_unary(path, lambda message: message.SerializeToString())
    return send(request_of(METHODS[path], tenant), timeout=60)


def _refusals() -> float:
    """Returns the count of calls that were refused because of the rate limit."""
    count = INSTRUMENTS.get_sample_value("hrag_quota_refusals_total", {"quota": "calls"})
    return count or 0.0


def test_a_refusal_has_all_details_and_comes_immediately():
    variables = {"HRAG_TENANT_CALLS_PER_S": 0.001, "HRAG_TENANT_BURST": 1}
    refusals_before = _refusals()
    with (
        connected(servicer_of(RETRIEVER), **variables) as channel,
        capture_logs([call_fields]) as logs,
    ):
        _send(channel, _SEARCH, "acme")
        began = time.perf_counter()
        with pytest.raises(grpc.RpcError) as caught:
            _send(channel, _SEARCH, "acme")
        assert time.perf_counter() - began < 30
    refusal = rpc_status.from_call(caught.value)
    details = {
        kind.DESCRIPTOR.name: kind
        for kind in (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.RetryInfo(),
            error_details_pb2.QuotaFailure(),
        )
        if any(detail.Unpack(kind) for detail in refusal.details)
    }
    assert details["ErrorInfo"].reason == "RATE_QUOTA_EXCEEDED"
    assert 900 < details["RetryInfo"].retry_delay.ToMilliseconds() / 1e3 <= 1000
    (violation,) = details["QuotaFailure"].violations
    assert (violation.subject, violation.quota_metric) == ("tenant:acme", "calls")
    assert "HRAG_TENANT_CALLS_PER_S" in refusal.message
    line = next(line for line in logs if line.get("code") == "RESOURCE_EXHAUSTED")
    assert (line["reason"], line["tenant"]) == ("RATE_QUOTA_EXCEEDED", "acme")
    assert _refusals() - refusals_before == 1


def _use_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float]) -> None:
    """Gives later rate limiters a clock in seconds, instead of the clock of the machine."""
    defaults = (lambda: round(clock() * 1e9), MAX_TENANTS)
    monkeypatch.setattr(RateLimiter.__init__, "__defaults__", defaults)


def test_a_retry_after_the_reported_wait_is_admitted(monkeypatch):
    now_s = 0.0
    _use_clock(monkeypatch, lambda: now_s)
    variables = {"HRAG_TENANT_CALLS_PER_S": 1, "HRAG_TENANT_BURST": 1}
    with connected(servicer_of(RETRIEVER), **variables) as channel:
        for _ in range(2):
            _send(channel, _SEARCH, "acme")
            with pytest.raises(grpc.RpcError) as caught:
                _send(channel, _SEARCH, "acme")
            # The next call must be admitted after exactly this wait.
            now_s += error_from(caught.value).retry_s


def _documents(count: int, tenant: str = "acme") -> Iterator[ipb.IngestDocumentsRequest]:
    return iter([ipb.IngestDocumentsRequest(tenant_id=tenant)] * count)


def _stream(channel: grpc.Channel, requests: Any, timeout: float = 60) -> Any:
    send = channel.stream_stream(
        _STREAM, lambda message: message.SerializeToString(), ipb.IngestDocumentsResponse.FromString
    )
    return send(requests, timeout=timeout)


def test_a_stream_above_its_rate_is_throttled():
    variables = {"HRAG_TENANT_CALLS_PER_S": 20, "HRAG_TENANT_BURST": 5}
    with connected(servicer_of(INDEXER), INDEXER, **variables) as channel:
        began = time.perf_counter()
        assert len(list(_stream(channel, _documents(15)))) == 15
        assert time.perf_counter() - began >= 10 / 20
    assert _throttled_documents() >= 5


def test_a_throttled_stream_continues_when_the_wall_clock_jumps(monkeypatch):
    now, variables = time.time, {"HRAG_TENANT_CALLS_PER_S": 50, "HRAG_TENANT_BURST": 1}
    has_begun = threading.Event()

    def requests() -> Iterator[ipb.IngestDocumentsRequest]:
        yield from _documents(2)
        # The call reads its deadline from the wall clock when it begins.
        assert has_begun.wait(30)
        monkeypatch.setattr(time, "time", lambda: now() + 365 * 24 * 3600)
        yield from _documents(4)

    with connected(servicer_of(INDEXER), INDEXER, **variables) as channel:
        responses = _stream(channel, requests())
        assert next(responses)
        has_begun.set()
        assert len(list(responses)) == 5


def _throttled_documents() -> float:
    """Returns the count of documents that waited because of the rate limit of their tenant."""
    return INSTRUMENTS.get_sample_value("hrag_throttled_total") or 0.0


def test_the_server_reads_no_requests_ahead_from_a_throttled_stream():
    """The client stops sending when the buffers of its connection are full."""
    sent = []

    def requests() -> Iterator[ipb.IngestDocumentsRequest]:
        for number in range(5000):
            sent.append(number)
            yield ipb.IngestDocumentsRequest(tenant_id="acme", collection="x" * 60_000)

    throttled_before = _throttled_documents()
    tenants = count()
    with connected(servicer_of(INDEXER), INDEXER, **SLOW) as channel:

        def has_stopped() -> bool:
            """Returns True if nothing is sent while the server completes twenty other streams."""
            sent_before = len(sent)
            for _ in range(20):
                assert len(list(_stream(channel, _documents(2, f"other{next(tenants)}")))) == 2
            return len(sent) == sent_before

        responses = _stream(channel, requests(), 2000)
        assert [next(responses), next(responses)]
        until(lambda: _throttled_documents() > throttled_before)
        until(has_stopped)
        responses.cancel()
    assert len(sent) < 1000


def test_a_stream_that_would_wait_beyond_its_deadline_is_refused_immediately():
    with connected(servicer_of(INDEXER), INDEXER, **SLOW) as channel:
        responses = _stream(channel, _documents(5))
        assert [next(responses), next(responses)]
        began = time.perf_counter()
        with pytest.raises(grpc.RpcError) as caught:
            next(responses)
    assert time.perf_counter() - began < 30
    error = error_from(caught.value)
    assert isinstance(error, RateQuotaExceeded)
    assert 900 < error.retry_s <= 1000


def test_a_client_that_leaves_a_throttled_stream_frees_the_thread():
    with connected(servicer_of(INDEXER), INDEXER, **SLOW, HRAG_THREADS=1) as channel:
        responses = _stream(channel, _documents(5), 2000)
        assert [next(responses), next(responses)]
        responses.cancel()
        assert code_of(channel, _STREAM, [*_documents(1, "globex")]) is _OK


def test_streams_of_other_tenants_are_not_throttled():
    with connected(servicer_of(INDEXER), INDEXER, **SLOW) as channel:
        waiting = _stream(channel, _documents(5), 2000)
        assert [next(waiting), next(waiting)]
        assert len(list(_stream(channel, _documents(2, "globex")))) == 2
        waiting.cancel()


def test_no_more_concurrent_calls_are_admitted_than_the_burst_allows():
    variables = {"HRAG_TENANT_CALLS_PER_S": 0.001, "HRAG_TENANT_BURST": 25, "HRAG_THREADS": 8}
    codes = []
    with connected(servicer_of(RETRIEVER), **variables) as channel:

        def search() -> None:
            for _ in range(10):
                codes.append(code_of(channel, _SEARCH, [request_of(METHODS[_SEARCH], "acme")]))

        threads = [threading.Thread(target=search) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (codes.count(_OK), codes.count(_REFUSED)) == (25, 55)


def test_the_sdk_does_not_retry_and_reports_when_to_retry():
    servicer = _CountingServicer(servicer_of(RETRIEVER))
    with serving(servicer, **SLOW) as address, Client(address, address) as client:
        for _ in range(2):
            client.server_info()
            client.batch_search([SearchQuery("acme", "x")])
        refusals_before = _refusals()
        with pytest.raises(RateQuotaExceeded) as caught:
            client.search("acme", "x")
    assert _refusals() - refusals_before == 1
    assert caught.value.tenant_id == "acme"
    assert 900 < caught.value.retry_s <= 1000


async def test_the_asyncio_sdk_does_not_retry_either():
    with serving(servicer_of(RETRIEVER), **SLOW) as address:
        async with AsyncClient(address, address) as client:
            for _ in range(2):
                await client.batch_search([SearchQuery("acme", "x")])
            refusals_before = _refusals()
            with pytest.raises(RateQuotaExceeded) as caught:
                await client.search("acme", "x")
    assert _refusals() - refusals_before == 1
    assert 900 < caught.value.retry_s <= 1000


def test_a_client_with_a_retry_policy_retries_after_the_pushback(monkeypatch):
    """Clients in other languages may have a retry policy in their service config.

    The clock of the server moves by a second when the server has refused a call.
    """
    refusals_before = _refusals()
    _use_clock(monkeypatch, lambda: _refusals() - refusals_before)
    policy = {
        "maxAttempts": 2,
        "initialBackoff": "60s",
        "maxBackoff": "60s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
    variables = {"HRAG_TENANT_CALLS_PER_S": 4, "HRAG_TENANT_BURST": 1}
    with serving(servicer_of(RETRIEVER), **variables) as address:
        options = [("grpc.service_config", config)]
        with grpc.insecure_channel(address, options) as channel:
            _send(channel, _SEARCH, "acme")
            began = time.perf_counter()
            _send(channel, _SEARCH, "acme")
    assert 0.2 <= time.perf_counter() - began < 50
    assert _refusals() - refusals_before == 1
