"""The reranker handles every known kind of invalid, late or missing reply of both request forms."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from hrag.errors import Cancelled, DeadlineExceeded, RerankerRejected, RerankerUnavailable
from hrag.models.endpoint import openai_endpoint as endpoint
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.models.rerank.endpoint_reranker import EndpointReranker
from hrag.models.rerank.request_forms import FORMS
from hrag.observe.metrics import INSTRUMENTS
from hrag.values.deadline import NEVER, Deadline
from tests.support.servers import openai_server
from tests.support.servers.openai_server import Fault
from tests.support.servers.rerank_server import TOKENS, RerankServer

KEY = "sk-test-4711"
QUERY = "secret cats and dogs"
TEXTS = ["Birds fly.", "Cats and dogs.", "Cats sleep."]
SCORES = [0.0, 3.0, 1.0]
# This value of the header Retry-After, in seconds, makes retries almost immediate.
AT_ONCE = "0.001"

RerankerFactory = Callable[..., EndpointReranker]


@pytest.fixture
def reranker_with(server: RerankServer) -> RerankerFactory:
    def make(form: str = "cohere", **changes: Any) -> EndpointReranker:
        settings = {"model": "m", "access": EndpointAccess(server.base_url, KEY), "timeout_s": 20.0}
        return EndpointReranker(form=FORMS[form], **(settings | changes))

    return make


@pytest.fixture(params=["cohere", "tei"])
def reranker(request: pytest.FixtureRequest, reranker_with: RerankerFactory) -> EndpointReranker:
    return reranker_with(request.param)


# The following tests cover requests.


def test_a_request_in_the_form_of_cohere(
    server: RerankServer, reranker_with: RerankerFactory
) -> None:
    reranker = reranker_with("cohere")
    assert reranker.name == "cohere/m"
    assert reranker.rerank(QUERY, TEXTS, NEVER) == SCORES
    assert server.requests == [{"model": "m", "query": QUERY, "documents": TEXTS, "top_n": 3}]
    assert server.authorizations == [f"Bearer {KEY}"]


def test_a_request_in_the_form_of_tei(server: RerankServer, reranker_with: RerankerFactory) -> None:
    """TEI serves only one model, so the request names none. It asks TEI to truncate long texts."""
    assert reranker_with("tei").rerank(QUERY, TEXTS, NEVER) == SCORES
    fields = {"query": QUERY, "texts": TEXTS, "raw_scores": False, "truncate": True}
    assert server.requests == [fields]


@pytest.mark.parametrize(("form", "sizes"), [("tei", [32, 32, 6]), ("cohere", [70])])
def test_many_texts_are_sent_in_requests_that_the_form_allows(
    server: RerankServer, reranker_with: RerankerFactory, form: str, sizes: list[int]
) -> None:
    texts = [" ".join(QUERY.split()[: number % 5]) for number in range(70)]
    expected = [float(number % 5) for number in range(70)]
    assert reranker_with(form).rerank(QUERY, texts, NEVER) == expected
    sent = [request.get("texts") or request["documents"] for request in server.requests]
    assert list(map(len, sent)) == sizes
    assert [text for part in sent for text in part] == texts


def test_the_timeout_limits_all_requests_of_a_call_together(
    server: RerankServer, reranker_with: RerankerFactory
) -> None:
    server.inject(openai_server.slow(0.2), times=40)
    with pytest.raises(RerankerUnavailable, match=r"did not answer within 0.3 s"):
        reranker_with("tei", timeout_s=0.3).rerank(QUERY, TEXTS * 400, NEVER)
    assert server.calls < 10
    server.forget_faults()


def test_a_model_is_optional_and_the_version_is_part_of_the_url(
    server: RerankServer, reranker_with: RerankerFactory
) -> None:
    reranker = reranker_with(model="", access=EndpointAccess(f"{server.base_url}/v1/", KEY))
    assert reranker.name == "cohere"
    assert reranker.rerank(QUERY, TEXTS, NEVER) == SCORES
    assert "model" not in server.requests[0]


def test_reported_tokens_are_counted(reranker_with: RerankerFactory) -> None:
    def counted() -> float:
        return INSTRUMENTS.get_sample_value("hrag_reranker_tokens_total") or 0.0

    tokens_before = counted()
    reranker_with("cohere").rerank(QUERY, TEXTS, NEVER)
    reranker_with("tei").rerank(QUERY, TEXTS, NEVER)
    assert counted() - tokens_before == TOKENS


# The following tests cover replies.


def test_the_scores_of_a_reply_may_be_in_any_order(
    server: RerankServer, reranker: EndpointReranker
) -> None:
    server.inject(openai_server.shuffled)
    assert reranker.rerank(QUERY, TEXTS, NEVER) == SCORES


def test_an_invalid_reply_is_refused_and_not_retried(
    server: RerankServer, reranker: EndpointReranker
) -> None:
    for fault in (openai_server.without_last, openai_server.body(b"<html>")):
        server.inject(fault)
        with pytest.raises(RerankerRejected, match=server.address):
            reranker.rerank(QUERY, TEXTS, NEVER)
    assert server.calls == 2


def test_a_reply_over_the_size_limit_raises_reranker_unavailable(
    server: RerankServer, reranker: EndpointReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MAX_REPLY_BYTES", 100)
    server.inject(openai_server.body(b" " * 101))
    with pytest.raises(RerankerUnavailable, match="over 100 bytes"):
        reranker.rerank(QUERY, TEXTS, NEVER)


# The following tests cover failures and timeouts.


def test_a_lost_connection_or_a_temporary_refusal_is_retried_once(
    server: RerankServer, reranker: EndpointReranker
) -> None:
    for fault in (openai_server.hang_up, openai_server.events(b"[", None)):
        server.inject(fault)
        assert reranker.rerank(QUERY, TEXTS, NEVER) == SCORES
    server.inject(openai_server.refuse(429, None, AT_ONCE), times=2)
    with pytest.raises(RerankerUnavailable, match="at most 2 attempts"):
        reranker.rerank(QUERY, TEXTS, NEVER)


def test_an_endpoint_that_does_not_run_raises_reranker_unavailable(
    reranker_with: RerankerFactory,
) -> None:
    with RerankServer() as stopped:
        pass
    with pytest.raises(RerankerUnavailable, match=r"cannot be reached .*refused"):
        reranker_with(access=EndpointAccess(stopped.base_url, KEY)).rerank(QUERY, TEXTS, NEVER)


@pytest.mark.parametrize(
    "fault",
    [
        openai_server.slow(30),
        openai_server.events(b'{"results": [', 30.0),
        openai_server.events(*[b" ", 0.02] * 1000),
    ],
    ids=["silent", "stuck", "byte by byte"],
)
def test_a_slow_reply_raises_reranker_unavailable_without_a_retry(
    fault: Fault, server: RerankServer, reranker_with: RerankerFactory
) -> None:
    server.inject(fault, times=2)
    with pytest.raises(RerankerUnavailable, match=r"did not answer within 0\.2 s"):
        reranker_with(timeout_s=0.2).rerank(QUERY, TEXTS, NEVER)
    assert server.calls == 1


def test_the_deadline_of_the_caller_ends_a_call_before_its_timeout(
    server: RerankServer, reranker_with: RerankerFactory
) -> None:
    server.inject(openai_server.slow(30))
    with pytest.raises(DeadlineExceeded):
        reranker_with().rerank(QUERY, TEXTS, Deadline.after(0.1))
    with pytest.raises(Cancelled):
        reranker_with().rerank(QUERY, TEXTS, Deadline(is_waiting=lambda: False))


def test_an_incomplete_reply_raises_reranker_unavailable(
    server: RerankServer, reranker_with: RerankerFactory
) -> None:
    server.inject(openai_server.events(b'{"results": [', None), times=2)
    with pytest.raises(RerankerUnavailable, match="ended the reply early"):
        reranker_with().rerank(QUERY, TEXTS, NEVER)


def test_a_refusal_says_what_to_check_and_repeats_neither_key_nor_texts(
    server: RerankServer, reranker_with: RerankerFactory
) -> None:
    hints = {
        400: "answered 400: check HRAG_RERANK_FORM",
        401: "answered 401: check HRAG_RERANK_API_KEY",
        403: "answered 403: the key in HRAG_RERANK_API_KEY",
        404: "answered 404: check HRAG_RERANK_BASE_URL",
        413: "answered 413: the endpoint accepts fewer texts than HRAG_RERANK_TOP",
        422: "answered 422: check HRAG_RERANK_FORM",
        424: "answered 424: the model of the endpoint is not a reranker",
    }
    reranker = reranker_with()
    for status, hint in hints.items():
        server.inject(openai_server.refuse(status, words=f"{KEY} {QUERY} {TEXTS[0]}"))
        with pytest.raises(RerankerRejected, match=hint) as raised:
            reranker.rerank(QUERY, TEXTS, NEVER)
        logged = "".join(traceback.format_exception(raised.value))
        assert not any(secret in logged for secret in (KEY, QUERY, TEXTS[0]))
    assert server.calls == len(hints)
