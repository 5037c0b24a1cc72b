"""A client in another language, with another gRPC implementation: Node's @grpc/grpc-js.

It uses the .proto files and server reflection, TLS and a key. client.mjs makes the calls and
reports; the assertions are here.
"""

import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients import conftest
from tests.clients.conftest import (
    BLANK,
    DOCUMENTS,
    EXAMPLES,
    FAR,
    MODES,
    Secured,
    node,
)
from tests.support.servers.openai_server import SAID

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

Seen = Callable[[str], Any]
_METADATA = {
    "team": "zoo",
    "year": 2026.5,
    "open": True,
    "until": None,
    "of": ["cats", {"dogs": 2}],
}
_DEADLINE_MS = 300


def _reason(failure: Any) -> str:
    reason: str = failure["details"]["ErrorInfo"]["reason"]
    assert failure["details"]["ErrorInfo"]["domain"] == "hrag"
    return reason


def _field(failure: Any) -> str:
    (violation,) = failure["details"]["BadRequest"]["field_violations"]
    assert violation["description"] == failure["message"]
    field: str = violation["field"]
    return field


# The examples


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


def test_by_reflection_alone_a_client_finds_the_services_and_searches(
    example: Callable[[str], list[str]],
) -> None:
    example("search.mjs")
    services, *found = example("reflect.mjs")
    assert set(services.split()) == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "hrag.v1.RetrieverService",
    }
    assert [line.split(" ", 1)[1] for line in found] == ["pets#2.0 Cats sleep. Dogs bark."]


# Writing


def test_a_collection_is_made_once(seen: Seen) -> None:
    found = seen("collections")
    assert found["collection"]["settings"]["level_sizes"] == [32, 64, 128]
    assert found["collection"]["settings"]["summaries"] == "SUMMARY_UNIT_CHUNK"
    assert int(found["sequence"]) > 0
    assert found["again"]["code"] == "ALREADY_EXISTS"
    assert _reason(found["again"]) == "COLLECTION_EXISTS"


def test_a_document_comes_back_as_it_was_sent(seen: Seen) -> None:
    found = seen("documents")
    assert found["first"]["outcome"] == "INGEST_OUTCOME_CREATED"
    assert found["second"] == found["first"] | {"outcome": "INGEST_OUTCOME_UNCHANGED"}
    assert found["same_text"]
    assert found["metadata"] == _METADATA


def test_a_stream_answers_every_document_in_order_and_holds_the_client_up(seen: Seen) -> None:
    found = seen("stream")
    assert found["ids"] == [f"d{number}" for number in range(DOCUMENTS)]
    assert found["most_ahead"] < DOCUMENTS / 2
    assert found["error"]["document_id"] == f"d{BLANK}"
    assert found["error"]["error"]["reason"] == "BLANK_DOCUMENT"
    assert found["error"]["error"]["field"] == "text"


def test_a_search_sees_what_was_acknowledged(seen: Seen) -> None:
    found = seen("stream")
    assert found["passages"] == 3
    assert isinstance(found["last"], str)
    assert int(found["sequence_of_search"]) >= int(found["last"])


def test_pages_list_every_document_once(seen: Seen) -> None:
    found = seen("listing")
    assert found["pages"] == [300, 300, DOCUMENTS - 1 - 600]
    assert found["distinct"] == DOCUMENTS - 1


def test_a_deleted_document_is_gone_for_the_next_search(seen: Seen) -> None:
    found = seen("deleting")
    assert (found["passages"], found["exhausted"]) == (0, True)
    assert found["again"]["code"] == "NOT_FOUND"
    assert _reason(found["again"]) == "DOCUMENT_NOT_FOUND"


# Reading


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_finds_passages(seen: Seen, mode: str) -> None:
    found = seen("modes")[mode]
    assert found["mode"] == f"SEARCH_MODE_{mode}"
    assert len(found["chunks"]) == 2
    assert all(chunk.startswith("pets#") for chunk in found["chunks"])
    assert all(matched > 0 for matched in found["matched"])


def test_no_mode_is_small_to_big(seen: Seen) -> None:
    found = seen("modes")
    assert found["UNSPECIFIED"] == found["SMALL_TO_BIG"]
    assert found["SMALL_TO_BIG"]["levels"] == [2, 2]
    assert found["STANDARD"]["levels"] == [0, 0]


def test_each_search_of_a_batch_has_its_own_outcome(seen: Seen) -> None:
    found, wrong, missing = seen("batch")
    assert found["chunks"] == seen("modes")["SMALL_TO_BIG"]["chunks"][:1]
    assert (wrong["reason"], wrong["field"]) == ("INVALID_ARGUMENT", "limit")
    assert missing["reason"] == "COLLECTION_NOT_FOUND"


def test_a_chunk_and_its_children_can_be_looked_at(seen: Seen) -> None:
    found = seen("browsing")
    assert found["same"]
    assert found["node"] == found["asked"]
    assert found["below"] == found["child_ids"] != []
    assert found["metadata"] == _METADATA


def test_an_answer_streams_passages_text_and_citations(seen: Seen) -> None:
    found = seen("answer")
    assert found["kinds"] == ["passages", *["text"] * len(SAID), "end"]
    assert found["text"] == "".join(SAID)
    assert found["cited"] == [[1, "pets"]]
    assert found["finish_reason"] == "FINISH_REASON_STOP"
    assert found["model"] == "openai/test-model"


def test_a_text_longer_than_a_reply_is_read_in_parts(seen: Seen) -> None:
    found = seen("large")
    assert found["refused"]["code"] == "RESOURCE_EXHAUSTED"
    assert _reason(found["refused"]) == "REPLY_TOO_LARGE"
    assert found["parts"] > 1
    assert found["same_text"]


# What goes wrong


def test_errors_carry_field_reason_and_when_to_try_again(seen: Seen) -> None:
    found = seen("errors")
    assert found["field"]["code"] == "INVALID_ARGUMENT"
    assert _field(found["field"]) == "limit"
    assert _reason(found["missing"]) == "COLLECTION_NOT_FOUND"
    assert found["busy"]["code"] == "RESOURCE_EXHAUSTED"
    assert _reason(found["busy"]) == "TOO_BUSY"
    assert found["busy"]["details"]["RetryInfo"]["retry_delay"] == {"seconds": "1", "nanos": 0}


def test_a_sequence_that_javascript_would_round_arrives_as_it_is(seen: Seen) -> None:
    found = seen("sequences")
    assert _reason(found) == "SEQUENCE_NOT_REACHED"
    assert f"min_sequence is {FAR};" in found["message"]


def test_a_deadline_ends_a_call_and_so_does_its_caller(seen: Seen) -> None:
    found = seen("deadlines")
    assert found["code"] == "DEADLINE_EXCEEDED"
    assert _DEADLINE_MS - 50 < found["took_ms"] < _DEADLINE_MS + 1_000
    assert found["cancelled"] == "CANCELLED"


def test_a_model_stops_writing_for_a_client_that_is_gone(seen: Seen, secured: Secured) -> None:
    assert seen("errors")["busy"]["code"] == "RESOURCE_EXHAUSTED"  # The others are cancelled.
    until = time.monotonic() + 10
    while secured.chat.streams_left == 0:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_request_id_comes_back(seen: Seen) -> None:
    found = seen("request_ids")
    assert found["own"] == ["from-node-4711"]
    (made,) = found["made"]
    assert len(made) == 16


@pytest.mark.parametrize(
    ("stranger", "code", "reason"),
    [
        ("no_key", "UNAUTHENTICATED", "UNAUTHENTICATED"),
        ("wrong_key", "UNAUTHENTICATED", "UNAUTHENTICATED"),
        ("other_tenant", "PERMISSION_DENIED", "PERMISSION_DENIED"),
    ],
)
def test_strangers_are_refused(seen: Seen, stranger: str, code: str, reason: str) -> None:
    refused = seen("strangers")[stranger]
    assert (refused["code"], _reason(refused)) == (code, reason)


@pytest.mark.parametrize(
    ("way", "words"), [("other_authority", "certificate"), ("plaintext", "Failed to connect")]
)
def test_only_tls_with_the_right_authority_connects(seen: Seen, way: str, words: str) -> None:
    refused = seen("strangers")[way]
    assert refused["code"] == "UNAVAILABLE"
    assert words in refused["message"]


# Connections


def test_health_is_told_without_a_key(seen: Seen) -> None:
    assert seen("health") == {"checked": "SERVING", "watched": "SERVING", "unknown": "NOT_FOUND"}


def test_a_connection_that_pings_more_often_than_every_ten_seconds_stays(seen: Seen) -> None:
    assert seen("idle")["states"] == ["READY"]


# The tests themselves


def test_without_node_the_tests_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(pytest.fail.Exception, match=r"need Node\.js 20 .* no `node` on the PATH"):
        conftest.node("search.mjs")
