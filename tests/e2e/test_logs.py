"""The logs of running services contain every call with its request id, and no secrets."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from hrag.errors import HragError
from hrag.filters import Match
from hrag.types import (
    ConversationTurn,
    Document,
    SearchMode,
    SearchQuery,
    SettingsRequest,
    SummaryUnit,
    TurnRole,
)
from hrag.v1 import retriever_pb2 as rpb
from hrag.values.answers import AnswerEnd
from tests.support.manuals import ROOT, blocks
from tests.support.servers.openai_server import OpenAIServer, hang_up, refuse
from tests.support.servers.processes import FAST, Process, Running, running
from tests.support.shown_output import matches
from tests.support.until import PATIENCE_S

_SECRET = "Zyzzyva"
_KEY = f"sk-{_SECRET}"
_TEXT = f"{_SECRET} sleeps in the garden. It barks at night, as {_SECRET} always did."


def _settings(endpoint: OpenAIServer) -> dict[str, str]:
    return {
        "HRAG_LOG_FORMAT": "json",
        "HRAG_LOG_LEVEL": "debug",
        "HRAG_EMBEDDER": "openai",
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": _KEY,
        "HRAG_CHAT_MODEL": "m",
        "HRAG_INDEXER_METRICS_ADDRESS": "0",
    }


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Both services with an embedding and a chat model. They log JSON at level debug."""
    with (
        OpenAIServer() as endpoint,
        running(tmp_path_factory.mktemp("logs") / "store", _settings(endpoint)) as services,
    ):
        _use(services, endpoint)
        yield services


def _use(services: Running, endpoint: OpenAIServer) -> None:
    """Makes many kinds of calls, valid and invalid, with a secret word in every text field."""
    client = services.client
    client.create_collection("t", "default", SettingsRequest(summaries=SummaryUnit.CHUNK))
    document = Document(_TEXT, "a", title=_SECRET, source=_SECRET, metadata={"k": _SECRET})
    client.ingest("t", document)
    list(client.ingest_many("t", [document, Document(_TEXT * 2, "b"), Document("", "c")]))
    for mode in SearchMode:
        with suppress(HragError):
            client.search("t", f"{_SECRET}?", mode=mode, filter=Match("metadata.k", (_SECRET,)))
    history = [ConversationTurn(TurnRole.USER, _TEXT), ConversationTurn(TurnRole.ASSISTANT, _TEXT)]
    for said in ([], history, [ConversationTurn(TurnRole.USER, _SECRET * 10_000)]):
        with suppress(HragError):
            events = list(client.answer(SearchQuery("t", f"{_SECRET}?"), history=said))
            assert isinstance(events[-1], AnswerEnd)
    client.batch_search([SearchQuery("t", f"{_SECRET}!"), SearchQuery("t", "")])
    for fault in (refuse(400, words=_SECRET), hang_up):
        # Background work of the indexer may consume one of the two faults.
        endpoint.inject(fault, times=2)
        with suppress(HragError):
            client.search("t", f"{_SECRET} in trouble")
    for wrong in (
        lambda: client.search(f"{_SECRET} as a tenant", "x"),
        lambda: client.search("t", "x", collection=f"{_SECRET} as a collection"),
        lambda: client.search("t", _SECRET * 100_000),
        lambda: client.search("t", "x", filter=Match(f"{_SECRET} as a field", (1,))),
        lambda: client.ingest(
            "t", Document(b"%PDF-" + _SECRET.encode(), mime_type="application/pdf")
        ),
        lambda: client.ingest("t", Document(_TEXT, f"{_SECRET} as an id")),
        lambda: client.ingest("t", Document(_TEXT, mime_type=_SECRET)),
        lambda: client.get_chunk("t", f"{_SECRET} as a chunk"),
    ):
        with pytest.raises(HragError):
            wrong()
    raw = (
        rpb.SearchRequest(tenant_id="t", text="plain").SerializeToString() + b"\xff" + _KEY.encode()
    )
    with grpc.insecure_channel(services.retriever.address) as channel:
        send = channel.unary_unary("/hrag.v1.RetrieverService/Search")
        with pytest.raises(grpc.RpcError):
            send(raw, timeout=PATIENCE_S, metadata=(("x-request-id", f"{_SECRET} in an id"),))


def _lines(process: Process) -> list[dict[str, Any]]:
    """Returns the lines of the log, without a line that the process is writing in this moment."""
    whole, _, _ = process.log.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def test_no_text_query_or_key_is_ever_logged(services: Running) -> None:
    for process in (services.indexer, services.retriever):
        assert len(_lines(process)) > 3
        assert _SECRET.lower() not in process.log.lower()


def test_every_call_is_logged_with_method_tenant_and_code(services: Running) -> None:
    metadata = (("x-request-id", "mine-17"),)
    request = rpb.SearchRequest(tenant_id="t", text="cats", limit=1000)
    with pytest.raises(grpc.RpcError):
        services.raw_retriever.Search(request, metadata=metadata, timeout=PATIENCE_S)
    services.raw_retriever.Search(
        rpb.SearchRequest(tenant_id="t", text="cats"), metadata=metadata, timeout=PATIENCE_S
    )
    calls = [line for line in _lines(services.retriever) if line.get("request_id") == "mine-17"]
    logged = [(c["event"], c["level"], c["tenant"], c["code"]) for c in calls]
    assert logged == [("call", "info", "t", "INVALID_ARGUMENT"), ("call", "debug", "t", "OK")]
    assert all(call["ms"] > 0 and call["method"].endswith("/Search") for call in calls)
    assert all(call["service"] == "retriever" for call in calls)


def test_a_line_of_the_log_is_like_the_one_that_the_manual_shows(services: Running) -> None:
    (block,) = blocks(ROOT / "docs" / "operations" / "monitoring.md", "json")
    shown = json.loads(block.text)
    request = rpb.SearchRequest(tenant_id="t", text="cats", collection="missing")
    with pytest.raises(grpc.RpcError):
        services.raw_retriever.Search(
            request, metadata=(("x-request-id", shown["request_id"]),), timeout=PATIENCE_S
        )
    (line,) = (
        line for line in _lines(services.retriever) if line.get("request_id") == shown["request_id"]
    )
    assert matches({**shown, "tenant": "t"}, line), line


@pytest.mark.parametrize("service", ["indexer", "retriever"])
def test_all_calls_have_different_request_ids(services: Running, service: str) -> None:
    calls = [line for line in _lines(getattr(services, service)) if line["event"] == "call"]
    request_ids = [call["request_id"] for call in calls if call["request_id"] != "mine-17"]
    assert len(request_ids) > 3
    assert len(set(request_ids)) == len(request_ids)
    assert {call["tenant"] for call in calls} <= {"t", ""}


def test_lines_outside_of_calls_have_no_request_id(services: Running) -> None:
    for line in _lines(services.retriever):
        if line["event"] in ("serving", "stopping"):
            assert "request_id" not in line


def test_the_console_format_has_the_same_fields(data_dir: Path) -> None:
    with running(data_dir, FAST) as services:
        services.client.ingest("t", Document(_TEXT, "a"))
        services.client.search("t", f"{_SECRET}?")
        with suppress(HragError):
            services.client.search("nobody", _SECRET)
        logs = services.indexer.log + services.retriever.log
    assert "request_id=" in logs
    assert "tenant=nobody" in logs
    assert _SECRET not in logs
