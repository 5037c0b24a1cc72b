"""The interceptor authorizes, logs and ends every call."""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from hrag import errors
from hrag.observe import metrics
from hrag.server.admission.suspension import Suspended
from hrag.server.auth import Role, api_keys
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from hrag.values.deadline import Deadline
from hrag.wire.status_codes import error_from
from tests.support.servers.credentials import TENANT, UNKNOWN_KEY, id_of, new_key
from tests.support.servers.servers import INDEXER, connected
from tests.support.until import until

_SEARCH = "/hrag.v1.RetrieverService/Search"
_INGEST = "/hrag.v1.IndexerService/IngestDocument"
_INGEST_MANY = "/hrag.v1.IndexerService/IngestDocuments"


class Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    """Answers a search with the length of its text, or raises `failure`.

    An answer repeats the question endlessly, or raises `failure` after the first event.
    """

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure
        self.closed = threading.Event()

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        if self._failure is not None:
            raise self._failure
        return rpb.SearchResponse(sequence=len(request.text))

    def Answer(self, request: rpb.AnswerRequest, context: Any) -> Iterator[rpb.AnswerResponse]:
        try:
            while True:
                yield rpb.AnswerResponse(text=request.question)
                if self._failure is not None:
                    raise self._failure
        finally:
            self.closed.set()


class Indexer(indexer_pb2_grpc.IndexerServiceServicer):
    """Answers each document with its id. Raises an error for the document `bad`."""

    def IngestDocuments(
        self, requests: Iterator[ipb.IngestDocumentsRequest], context: Any
    ) -> Iterator[ipb.IngestDocumentsResponse]:
        for request in requests:
            if request.document.document_id == "bad":
                raise errors.StorageFull("the disk is full")
            result = ipb.IngestDocumentResponse(document_id=request.document.document_id)
            yield ipb.IngestDocumentsResponse(outcomes=[ipb.DocumentOutcome(result=result)])


def _search(channel: grpc.Channel) -> rpb.SearchResponse:
    stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
    return stub.Search(rpb.SearchRequest(text="three"), timeout=60)


def _failure(servicer: object) -> grpc.RpcError:
    with connected(servicer) as channel, pytest.raises(grpc.RpcError) as caught:
        _search(channel)
    return caught.value


def _ingest_many(channel: grpc.Channel, *ids: str) -> Any:
    stub = indexer_pb2_grpc.IndexerServiceStub(channel)
    requests = [ipb.IngestDocumentsRequest(document=tpb.Document(document_id=i)) for i in ids]
    return stub.IngestDocuments(iter(requests), timeout=60)


def test_responses_are_sent_unchanged() -> None:
    with connected(Retriever()) as channel:
        assert _search(channel).sequence == len("three")


def test_an_error_becomes_its_grpc_status() -> None:
    failure = _failure(Retriever(errors.InvalidArgument("limit is 0; 1 to 100", field="limit")))
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert failure.details() == "limit is 0; 1 to 100"
    error = error_from(failure)
    assert (type(error), error.field) == (errors.InvalidArgument, "limit")


def test_an_internal_error_has_an_id_that_the_log_repeats_with_the_traceback() -> None:
    with capture_logs() as logs:
        failure = _failure(Retriever(RuntimeError("the secret of /etc/passwd")))
    assert failure.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(failure.trailing_metadata()) + failure.details()
    matched = re.fullmatch(
        r"internal error ([0-9a-f]{12}); the service's log has the details", failure.details()
    )
    assert matched is not None
    (log_line,) = (line for line in logs if line["event"] == "internal_error")
    assert log_line["id"] == matched[1]
    assert str(log_line["exc_info"]) == "the secret of /etc/passwd"


def test_each_call_is_logged_once_with_method_code_and_time() -> None:
    with capture_logs() as logs:
        _failure(Retriever(errors.TooBusy("later")))
        with connected(Retriever()) as channel:
            _search(channel)
    # Lines of other methods are ignored: a stream of an earlier test may end meanwhile.
    calls = [line for line in logs if line["event"] == "call" and line["method"] == _SEARCH]
    assert [(line["method"], line["code"]) for line in calls] == [
        (_SEARCH, "RESOURCE_EXHAUSTED"),
        (_SEARCH, "OK"),
    ]
    assert all(line["ms"] >= 0 for line in calls)


def test_a_client_receives_the_responses_before_the_failure_of_a_stream() -> None:
    with connected(Indexer(), INDEXER) as channel:
        responses = _ingest_many(channel, "a", "bad", "c")
        (outcome,) = next(responses).outcomes
        assert outcome.result.document_id == "a"
        with pytest.raises(grpc.RpcError) as caught:
            next(responses)
    assert isinstance(error_from(caught.value), errors.StorageFull)


def test_a_client_that_leaves_a_stream_causes_no_internal_error() -> None:
    with capture_logs() as logs, connected(Indexer(), INDEXER) as channel:
        responses = _ingest_many(channel, *map(str, range(1000)))
        next(responses)
        responses.cancel()
    assert [line for line in logs if line["event"] == "internal_error"] == []


def _answer(channel: grpc.Channel, question: str = "why?") -> Any:
    stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
    return stub.Answer(rpb.AnswerRequest(question=question), timeout=60)


def test_an_answer_is_streamed_and_fails_like_other_calls() -> None:
    with connected(Retriever(errors.TooBusy("later"))) as channel:
        events = _answer(channel)
        assert next(events).text == "why?"
        with pytest.raises(grpc.RpcError) as caught:
            next(events)
    assert isinstance(error_from(caught.value), errors.TooBusy)
    with (
        capture_logs() as logs,
        connected(Retriever(RuntimeError("secret"))) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        list(_answer(channel))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in caught.value.details()
    assert [line["event"] for line in logs].count("internal_error") == 1


def test_the_handler_of_an_answer_is_closed_when_the_client_leaves() -> None:
    servicer = Retriever()
    with capture_logs() as logs, connected(servicer) as channel:
        events = _answer(channel)
        next(events)
        events.cancel()
        assert servicer.closed.wait(60)
    assert [line for line in logs if line["event"] == "internal_error"] == []


def test_an_answer_ends_when_its_key_is_revoked(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key = new_key(path)
    servicer = Retriever()
    with connected(servicer, HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=path) as channel:
        request = rpb.AnswerRequest(search=rpb.SearchRequest(tenant_id=TENANT), question="why?")
        events = retriever_pb2_grpc.RetrieverServiceStub(channel).Answer(
            request, timeout=60, metadata=(("authorization", f"Bearer {key}"),)
        )
        assert next(events).text == "why?"
        api_keys.revoke(path, id_of(key))
        with pytest.raises(grpc.RpcError) as caught:
            list(events)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert servicer.closed.wait(60)


def test_a_stream_without_messages_ends_when_its_key_is_revoked(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key = new_key(path, role=Role.WRITE)
    has_ended = threading.Event()

    def no_requests() -> Iterator[ipb.IngestDocumentsRequest]:
        has_ended.wait(60)
        yield from ()

    with connected(Indexer(), INDEXER, HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=path) as channel:
        responses = indexer_pb2_grpc.IndexerServiceStub(channel).IngestDocuments(
            no_requests(), timeout=60, metadata=(("authorization", f"Bearer {key}"),)
        )
        responses.initial_metadata()  # The metadata arrives when the call is authorized.
        api_keys.revoke(path, id_of(key))
        with pytest.raises(grpc.RpcError) as caught:
            list(responses)
        has_ended.set()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_suspended_search_is_refused_if_its_key_is_revoked_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    metadata = (("authorization", f"Bearer {(key := new_key(path))}"),)
    waiting, may_continue = threading.Event(), threading.Event()

    class Waiting(Retriever):
        def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
            if not may_continue.is_set():
                waiting.set()
                raise Suspended(may_continue.is_set, Deadline.after(60))
            return rpb.SearchResponse()

    with connected(Waiting(), HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=path) as channel:
        search = retriever_pb2_grpc.RetrieverServiceStub(channel).Search
        request = rpb.SearchRequest(tenant_id=TENANT)
        call = search.future(request, timeout=60, metadata=metadata)
        assert waiting.wait(60)
        api_keys.revoke(path, id_of(key))
        # The server reads a changed key file within about a second.
        until(lambda: _is_unauthenticated(channel, metadata))
        may_continue.set()
        assert call.code() is grpc.StatusCode.UNAUTHENTICATED


def _is_unauthenticated(channel: grpc.Channel, metadata: Any) -> bool:
    """Returns True if the server refuses the credential in `metadata`."""
    call = channel.unary_unary("/hrag.v1.RetrieverService/GetServerInfo").future(
        b"", timeout=60, metadata=metadata
    )
    return call.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_thread_is_counted_as_busy_while_it_runs_a_call() -> None:
    running, may_continue = threading.Event(), threading.Event()

    class Slow(Retriever):
        def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
            running.set()
            may_continue.wait(60)
            return rpb.SearchResponse()

    def busy() -> float | None:
        return metrics.INSTRUMENTS.get_sample_value("hrag_threads_busy")

    with connected(Slow()) as channel:
        search = retriever_pb2_grpc.RetrieverServiceStub(channel).Search
        call = search.future(rpb.SearchRequest(tenant_id=TENANT), timeout=60)
        assert running.wait(60)
        until(lambda: busy() == 1)
        may_continue.set()
        call.result()
        until(lambda: busy() == 0)


def _deeply_nested() -> bytes:
    """Returns a request with deeper nesting than protobuf parsers accept."""
    request = ipb.IngestDocumentRequest()
    value = request.document.metadata.fields["deep"]
    for _ in range(60):
        value = value.list_value.values.add()
    return request.SerializeToString()


_BAD_UTF8 = ipb.IngestDocumentRequest(document=tpb.Document(text="some text"))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"\xff\xff\xff\xff", "corrupt"),
        (_BAD_UTF8.SerializeToString().replace(b"some", b"\xff\xfe\x80\x80"), "UTF-8"),
        (_deeply_nested(), "MaxDepth"),
    ],
)
def test_a_malformed_request_is_an_invalid_argument(message: bytes, problem: str) -> None:
    with connected(Indexer(), INDEXER) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(_INGEST)(message, timeout=60)
        error = error_from(caught.value)
        assert type(error) is errors.InvalidArgument
        assert error.field == "request"
        assert problem in error.message
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream(_INGEST_MANY)(iter([message]), timeout=60))
        assert type(error_from(caught.value)) is errors.InvalidArgument


def test_a_request_is_parsed_only_after_authorization(tmp_path: Path) -> None:
    """Parsing a request of four megabytes may need hundreds of megabytes of memory."""
    keys = tmp_path / "keys.json"
    key = new_key(keys)
    with connected(Retriever(), HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=keys) as channel:
        search = channel.unary_unary(_SEARCH)
        codes = []
        for credential in (UNKNOWN_KEY, key):
            metadata = (("authorization", f"Bearer {credential}"),)
            with pytest.raises(grpc.RpcError) as caught:
                search(b"not a message", timeout=60, metadata=metadata)
            codes.append(caught.value.code())
    assert codes == [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT]


def test_rejections_do_not_flood_the_log(tmp_path: Path) -> None:
    """Anybody may cause many rejections. A log line for each rejection would fill the disk."""
    keys = tmp_path / "keys.json"
    new_key(keys)
    with (
        capture_logs() as logs,
        connected(Retriever(), HRAG_AUTH="api_key", HRAG_API_KEYS_FILE=keys) as channel,
    ):
        search = channel.unary_unary(_SEARCH)
        for _ in range(200):
            with pytest.raises(grpc.RpcError):
                search(b"", timeout=60)
        until(lambda: _rejected_calls(logs) == 200)
    assert len(logs) < 100


def _rejected_calls(logs: Sequence[Mapping[str, Any]]) -> int:
    """Returns the count of rejected calls that the log reports."""
    lines = sum(line["event"] == "call" for line in logs)
    return lines + sum(line["count"] for line in logs if line["event"] == "calls_rejected")
