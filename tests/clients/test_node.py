"""A client in JavaScript with another gRPC implementation, @grpc/grpc-js of Node.js, works.

The client uses the .proto files, server reflection, TLS and a key. client.mjs makes the calls and
prints a report. The tests in this file check the report.
"""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients import conftest
from tests.clients.conftest import (
    BLANK,
    DOCUMENTS,
    EXAMPLES,
    MODES,
    UNSAFE_SEQUENCE,
    Secured,
    node,
)
from tests.support.servers.openai_server import SAID
from tests.support.until import until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

Reported = Callable[[str], Any]
_METADATA = {
    "team": "zoo",
    "year": 2026.5,
    "open": True,
    "until": None,
    "of": ["cats", {"dogs": 2}],
}
# The deadline of a call in client.mjs, and a time in which it ends even on a busy machine. Without
# its deadline, the call would take 30 seconds.
_DEADLINE_MS, _ENDED_MS = 300, 20_000


def _reason(failure: Any) -> str:
    reason: str = failure["details"]["ErrorInfo"]["reason"]
    assert failure["details"]["ErrorInfo"]["domain"] == "hrag"
    return reason


def _field(failure: Any) -> str:
    (violation,) = failure["details"]["BadRequest"]["field_violations"]
    assert violation["description"] == failure["message"]
    field: str = violation["field"]
    return field


# These tests run the examples in docs/examples/node.


@pytest.fixture
def example(packages: None, secured: Secured) -> Callable[[str], list[str]]:
    """Runs an example unchanged and returns the lines that it prints."""
    settings = {
        "HRAG_INDEXER_ADDRESS": secured.services.indexer,
        "HRAG_RETRIEVER_ADDRESS": secured.services.retriever,
        "HRAG_CA_FILE": str(secured.ca_file),
        "HRAG_TOKEN": secured.token,
    }
    return lambda name: node(EXAMPLES / name, settings=settings).splitlines()


def test_the_example_stores_a_document_and_finds_it(example: Callable[[str], list[str]]) -> None:
    (line,) = example("search.mjs")
    assert line.endswith(" pets#2.0 Cats sleep. Dogs bark.")


def test_a_client_finds_the_services_and_searches_by_reflection_only(
    example: Callable[[str], list[str]],
) -> None:
    example("search.mjs")
    services, *passages = example("reflect.mjs")
    assert set(services.split()) == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "hrag.v1.RetrieverService",
    }
    assert [line.split(" ", 1)[1] for line in passages] == ["pets#2.0 Cats sleep. Dogs bark."]


# These tests check what client.mjs wrote.


def test_a_collection_is_created_once(reported: Reported) -> None:
    part = reported("collections")
    assert part["collection"]["settings"]["level_sizes"] == [32, 64, 128]
    assert part["collection"]["settings"]["summaries"] == "SUMMARY_UNIT_CHUNK"
    assert int(part["sequence"]) > 0
    assert part["again"]["code"] == "ALREADY_EXISTS"
    assert _reason(part["again"]) == "COLLECTION_EXISTS"


def test_a_document_is_read_as_it_was_sent(reported: Reported) -> None:
    part = reported("documents")
    assert part["first"]["outcome"] == "INGEST_OUTCOME_CREATED"
    unchanged = {"outcome": "INGEST_OUTCOME_UNCHANGED", "report": None}
    assert part["second"] == part["first"] | unchanged
    assert part["same_text"]
    assert part["metadata"] == _METADATA


def test_a_stream_answers_every_document_in_order_with_backpressure(reported: Reported) -> None:
    part = reported("stream")
    assert part["ids"] == [f"d{number}" for number in range(DOCUMENTS)]
    assert part["most_ahead"] < DOCUMENTS / 2
    assert part["error"]["document_id"] == f"d{BLANK}"
    assert part["error"]["error"]["reason"] == "BLANK_DOCUMENT"
    assert part["error"]["error"]["field"] == "text"


def test_a_search_sees_acknowledged_documents(reported: Reported) -> None:
    part = reported("stream")
    assert part["passages"] == 3
    assert isinstance(part["last"], str)
    assert int(part["sequence_of_search"]) >= int(part["last"])


def test_pages_list_every_document_once(reported: Reported) -> None:
    part = reported("listing")
    assert part["pages"] == [300, 300, DOCUMENTS - 1 - 600]
    assert part["distinct"] == DOCUMENTS - 1


def test_a_deleted_document_is_gone_for_the_next_search(reported: Reported) -> None:
    part = reported("deleting")
    assert (part["passages"], part["exhausted"]) == (0, True)
    assert part["again"]["code"] == "NOT_FOUND"
    assert _reason(part["again"]) == "DOCUMENT_NOT_FOUND"


# These tests check what client.mjs read.


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_finds_passages(reported: Reported, mode: str) -> None:
    part = reported("modes")[mode]
    assert part["mode"] == f"SEARCH_MODE_{mode}"
    assert len(part["chunks"]) == 2
    assert all(chunk.startswith("pets#") for chunk in part["chunks"])
    assert all(matched > 0 for matched in part["matched"])


def test_a_search_without_a_mode_uses_small_to_big(reported: Reported) -> None:
    part = reported("modes")
    assert part["UNSPECIFIED"] == part["SMALL_TO_BIG"]
    assert part["SMALL_TO_BIG"]["levels"] == [2, 2]
    assert part["STANDARD"]["levels"] == [0, 0]


def test_each_search_of_a_batch_has_a_separate_outcome(reported: Reported) -> None:
    part, wrong, missing = reported("batch")
    assert part["chunks"] == reported("modes")["SMALL_TO_BIG"]["chunks"][:1]
    assert (wrong["reason"], wrong["field"]) == ("INVALID_ARGUMENT", "limit")
    assert missing["reason"] == "COLLECTION_NOT_FOUND"


def test_a_chunk_and_its_children_can_be_read(reported: Reported) -> None:
    part = reported("browsing")
    assert part["same"]
    assert part["node"] == part["asked"]
    assert part["below"] == part["child_ids"] != []
    assert part["metadata"] == _METADATA


def test_an_answer_streams_passages_text_and_citations(reported: Reported) -> None:
    part = reported("answer")
    assert part["kinds"] == ["passages", *["text"] * len(SAID), "end"]
    assert part["text"] == "".join(SAID)
    assert part["cited"] == [[1, "pets"]]
    assert part["finish_reason"] == "FINISH_REASON_STOP"
    assert part["model"] == "openai/test-model"


def test_a_text_longer_than_a_reply_is_read_in_parts(reported: Reported) -> None:
    part = reported("large")
    assert part["refused"]["code"] == "RESOURCE_EXHAUSTED"
    assert _reason(part["refused"]) == "REPLY_TOO_LARGE"
    assert part["parts"] > 1
    assert part["same_text"]


# These tests check errors, deadlines and cancellations.


def test_errors_carry_field_reason_and_retry_delay(reported: Reported) -> None:
    part = reported("errors")
    assert part["field"]["code"] == "INVALID_ARGUMENT"
    assert _field(part["field"]) == "limit"
    assert _reason(part["missing"]) == "COLLECTION_NOT_FOUND"
    assert part["busy"]["code"] == "RESOURCE_EXHAUSTED"
    assert _reason(part["busy"]) == "TOO_BUSY"
    assert part["busy"]["details"]["RetryInfo"]["retry_delay"] == {"seconds": "1", "nanos": 0}


def test_a_sequence_number_that_javascript_would_round_arrives_exactly(reported: Reported) -> None:
    part = reported("sequences")
    assert _reason(part) == "SEQUENCE_NOT_REACHED"
    assert f"min_sequence is {UNSAFE_SEQUENCE};" in part["message"]


def test_a_deadline_or_a_cancellation_ends_a_call(reported: Reported) -> None:
    part = reported("deadlines")
    assert part["code"] == "DEADLINE_EXCEEDED"
    assert _DEADLINE_MS - 50 < part["took_ms"] < _ENDED_MS
    assert part["cancelled"] == "CANCELLED"


def test_a_model_stops_writing_for_a_client_that_has_left(
    reported: Reported, secured: Secured
) -> None:
    # The client has cancelled each answer that the server did not refuse.
    assert reported("errors")["busy"]["code"] == "RESOURCE_EXHAUSTED"
    until(lambda: secured.chat.streams_left > 0)


def test_the_reply_has_the_request_id_of_the_call(reported: Reported) -> None:
    part = reported("request_ids")
    assert part["sent"] == ["from-node-4711"]
    (generated_id,) = part["generated"]
    assert len(generated_id) == 16


@pytest.mark.parametrize(
    ("caller", "code", "reason"),
    [
        ("no_key", "UNAUTHENTICATED", "UNAUTHENTICATED"),
        ("wrong_key", "UNAUTHENTICATED", "UNAUTHENTICATED"),
        ("other_tenant", "PERMISSION_DENIED", "PERMISSION_DENIED"),
    ],
)
def test_callers_without_access_are_refused(
    reported: Reported, caller: str, code: str, reason: str
) -> None:
    refused = reported("strangers")[caller]
    assert (refused["code"], _reason(refused)) == (code, reason)


@pytest.mark.parametrize(
    ("way", "words"), [("other_authority", "certificate"), ("plaintext", "Failed to connect")]
)
def test_only_tls_with_the_right_authority_connects(
    reported: Reported, way: str, words: str
) -> None:
    refused = reported("strangers")[way]
    assert refused["code"] == "UNAVAILABLE"
    assert words in refused["message"]


# These tests check health and keepalive pings.


def test_health_is_reported_without_a_key(reported: Reported) -> None:
    assert reported("health") == {
        "checked": "SERVING",
        "watched": "SERVING",
        "unknown": "NOT_FOUND",
    }


def test_a_connection_that_pings_more_often_than_every_ten_seconds_stays_open(
    reported: Reported,
) -> None:
    assert reported("idle")["states"] == ["READY"]


# This test checks how the tests in this file fail without Node.js.


def test_without_node_the_tests_fail_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(pytest.fail.Exception, match=r"need Node\.js 20 .* no `node` on the PATH"):
        conftest.node("search.mjs")
