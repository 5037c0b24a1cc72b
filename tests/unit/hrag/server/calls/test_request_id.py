"""Each call has a request id and log fields."""

from contextlib import suppress

import grpc
import pytest

from hrag.server.calls import guard
from hrag.server.calls.rate_limiter import RateLimiter
from hrag.server.calls.request_id import request_id
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from hrag.values.quotas import unlimited
from tests.support.servers.servers import connected


class Context:
    """A fake server context that has only metadata."""

    def __init__(self, *metadata):
        self._metadata = metadata

    def invocation_metadata(self):
        return self._metadata


@pytest.mark.parametrize("client_id", ["a", "4bf92f35-77b3", "x" * 64, "user@host/1=2"])
def test_a_printable_request_id_of_the_client_is_kept(client_id):
    assert request_id(Context(("other", "b"), ("x-request-id", client_id))) == client_id


@pytest.mark.parametrize(
    "client_id", ["", "x" * 65, "two words", "naïve", "a\nb", "\x1b[31m", b"a"]
)
def test_a_request_id_that_is_too_long_or_not_printable_is_replaced(client_id):
    replacement = request_id(Context(("x-request-id", client_id)))
    assert len(replacement) == 16
    assert int(replacement, 16) >= 0


def test_random_request_ids_differ():
    assert len({request_id(Context()) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("method", "request_", "tenant"),
    [
        ("Retriever.Search", rpb.SearchRequest(tenant_id="acme"), "acme"),
        ("Retriever.Answer", rpb.AnswerRequest(search=rpb.SearchRequest(tenant_id="acme")), "acme"),
        (
            "Retriever.BatchSearch",
            rpb.BatchSearchRequest(searches=[rpb.SearchRequest(tenant_id=t) for t in "baa"]),
            "a,b",
        ),
        ("Retriever.BatchSearch", rpb.BatchSearchRequest(), ""),
        ("Indexer.IngestDocument", ipb.IngestDocumentRequest(tenant_id="acme"), "acme"),
        ("Retriever.GetServerInfo", rpb.GetServerInfoRequest(), ""),
        ("Retriever.Search", rpb.SearchRequest(), ""),
        ("Retriever.Search", rpb.SearchRequest(tenant_id="my secret question"), ""),
        ("Retriever.Search", rpb.SearchRequest(tenant_id="x" * 10_000), ""),
    ],
)
def test_log_fields_name_the_tenants_of_a_call(method, request_, tenant):
    service, name = method.split(".")
    call = guard.CallGuard(
        f"/hrag.v1.{service}Service/{name}", None, RateLimiter(unlimited), Context()
    )
    call.check_tenants(None, request_)
    assert call.log_fields() == {"tenant": tenant}


class Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    """Answers all calls except those of the tenant `bad`, which fail."""

    def Search(self, request, context):
        if request.tenant_id == "bad":
            raise RuntimeError("broken")
        return rpb.SearchResponse()

    def Answer(self, request, context):
        yield rpb.AnswerResponse(text="a")
        if request.search.tenant_id == "bad":
            raise RuntimeError("broken")


def _returned_request_id(call) -> str:
    return dict(call.trailing_metadata())["x-request-id"]


@pytest.mark.parametrize("tenant", ["good", "bad"])
@pytest.mark.parametrize("streamed", [True, False])
def test_every_call_returns_its_request_id(tenant, streamed):
    search = rpb.SearchRequest(tenant_id=tenant)
    with connected(Retriever()) as channel:
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        metadata = (("x-request-id", "mine-1"),)
        if streamed:
            call = stub.Answer(rpb.AnswerRequest(search=search), metadata=metadata, timeout=60)
            with suppress(grpc.RpcError):
                list(call)
        else:
            call = stub.Search.future(search, metadata=metadata, timeout=60)
            call.exception()
        assert _returned_request_id(call) == "mine-1"
        assert (call.code() is grpc.StatusCode.OK) == (tenant == "good")
