"""The client of the official MCP SDK calls `hrag mcp`, which runs as a process."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.types import CallToolResult
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.cli.processes import RETRIEVER, free_addresses
from hrag.text.plain_text import quoted_lines
from hrag.types import Document, Page
from tests.e2e.mcp_servers import agent, http, mcp_process, text
from tests.support.parameters import slow
from tests.support.servers.processes import FAST, Running, running, started
from tests.support.until import PATIENCE_S

TOOL = "search_knowledge_base"
_PAGES = (Page("Cats sleep all day."), Page("Dogs bark at night."))
_GUIDE = "# Guide\n\n## Keys\n\n" + "Rotate every key once a month. " * 400
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Refusal = Callable[..., tuple[int, str]]


def _passages(result: CallToolResult) -> list[dict[str, Any]]:
    assert not result.is_error, text(result)
    assert result.structured_content is not None
    assert result.structured_content["error"] == ""
    return result.structured_content["passages"]


@pytest.mark.parametrize(
    ("transport", "mode"),
    [
        ("stdio", "legacy"),
        ("http", "auto"),
        pytest.param("stdio", "auto", marks=pytest.mark.slow),
        pytest.param("http", "legacy", marks=pytest.mark.slow),
    ],
)
async def test_an_agent_lists_the_tool_calls_it_and_reads_citations(
    services: Running, tenant: str, transport: str, mode: str
) -> None:
    """With the mode `legacy`, the client uses the handshake of clients before 2026."""
    services.client.ingest(tenant, Document(_PAGES, "pets", title="Pets", source="pets.pdf"))
    options = ("--tenant", tenant, "--description", "All about pets.", "--limit", "7")
    async with agent(transport, services, *options, mode=mode) as client:
        assert client.server_info.name == "hrag"
        assert TOOL in client.instructions
        tool, *others = (await client.list_tools()).tools
        result = await client.call_tool(TOOL, {"query": "what do dogs do?"})
    assert [listed.name for listed in (tool, *others)] == [TOOL, "expand_chunk", "get_document"]
    assert "The documents: All about pets." in tool.description
    for hints in (listed.annotations for listed in (tool, *others)):
        assert (hints.read_only_hint, hints.idempotent_hint) == (True, True)
        assert not hints.destructive_hint
    properties = tool.input_schema["properties"]
    assert set(properties) == {"query", "limit", "earlier_questions"}
    assert tool.input_schema["required"] == ["query"]
    assert (properties["query"]["type"], properties["limit"]["type"]) == ("string", "integer")
    limit = properties["limit"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 100, 7)
    assert "heading" in tool.output_schema["$defs"]["CitedPassage"]["required"]
    (passage,) = _passages(result)
    assert passage["heading"] == "[Pets, pages 1-2]"
    assert "Dogs bark at night." in passage["text"]
    assert (passage["document_id"], passage["chunk_id"]) == ("pets", "pets#0.0")
    assert (passage["source"], passage["first_page"], passage["last_page"]) == ("pets.pdf", 1, 2)
    assert text(result) == f"{passage['heading']}\n{quoted_lines(passage['text'])}"


async def test_options_control_the_search(services: Running, tenant: str) -> None:
    for language in ("en", "de"):
        document = Document(
            _GUIDE, language, "Guide", mime_type="text/markdown", metadata={"lang": language}
        )
        services.client.ingest(tenant, document)
    options = ("--tenant", tenant, "--filter", "lang=de", "--limit", "3")
    leaves = ("--mode", "standard", "--token-budget", "1000")
    async with agent("stdio", services, *options, *leaves) as client:
        three = _passages(await client.call_tool(TOOL, {"query": "keys"}))
        more = _passages(await client.call_tool(TOOL, {"query": "keys", "limit": 5}))
    assert (len(three), len(more)) == (3, 4), "four leaves fit the budget"
    assert {passage["document_id"] for passage in more} == {"de"}
    assert all(re.fullmatch(r"de#0\.\d+", passage["chunk_id"]) for passage in more)
    assert {passage["heading"] for passage in more} == {"[Guide - Keys]"}


@pytest.fixture(scope="module")
def url(services: Running) -> Iterator[str]:
    """The URL of a server for the tenant `mcp`. Tests share it, because calls are independent."""
    services.client.ingest("mcp", Document("Cats sleep.", "cats"))
    services.client.ingest("mcp-other", Document("Secret.", "secret"))
    with http(services, "--tenant", "mcp") as url:
        yield url


_BAD_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({}, "Field required"),
    ({"query": ""}, "query is blank"),
    ({"query": " \n\t\u3000"}, "query is blank"),
    ({"query": "x" * 32_769}, "query has 32769 bytes; at most 32768"),
    ({"query": None}, "valid string"),
    ({"query": 5}, "valid string"),
    ({"query": ["cats"]}, "valid string"),
    ({"query": [0.5] * 64}, "valid string"),
    ({"query": "cats", "limit": 0}, "greater than or equal to 1"),
    ({"query": "cats", "limit": -1}, "greater than or equal to 1"),
    ({"query": "cats", "limit": 101}, "less than or equal to 100"),
    ({"query": "cats", "limit": 1 << 70}, "less than or equal to 100"),
    ({"query": "cats", "limit": "many"}, "valid integer"),
    ({"query": "cats", "limit": 2.5}, "valid integer"),
    ({"query": "cats", "limit": None}, "valid integer"),
]


async def test_bad_arguments_are_reported_to_the_model(url: str) -> None:
    """All calls are made in one session, which continues after each error."""
    async with Client(url) as client:
        for arguments, says in _BAD_ARGUMENTS:
            result = await client.call_tool(TOOL, arguments)
            assert result.is_error, arguments
            assert says in text(result)
            assert "Traceback" not in text(result)
        assert len(_passages(await client.call_tool(TOOL, {"query": "cats"}))) == 1


async def test_unknown_tool_is_refused(url: str) -> None:
    async with Client(url) as client:
        result = await client.call_tool("delete_everything", {})
    assert result.is_error
    assert "delete_everything" in text(result)


async def test_no_argument_reaches_another_tenants_documents(url: str) -> None:
    foreign = {"tenant_id": "mcp-other", "tenant": "mcp-other", "collection": "default"}
    async with Client(url) as client:
        result = await client.call_tool(TOOL, {"query": "secret", "limit": 100, **foreign})
    assert [passage["document_id"] for passage in _passages(result)] == ["cats"]


@pytest.mark.slow
async def test_tenant_without_documents_is_reported(services: Running, tenant: str) -> None:
    async with agent("stdio", services, "--tenant", tenant) as client:
        result = await client.call_tool(TOOL, {"query": "cats"})
        assert result.is_error
        assert "collection" in text(result)
        services.client.ingest(tenant, Document("Cats sleep.", "cats"))
        assert _passages(await client.call_tool(TOOL, {"query": "cats"}))


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"host": "evil.example"}, b"{}", 421),
        ({"origin": "http://evil.example"}, b"{}", 403),
        ({"content-type": "text/plain"}, b"{}", 400),
        ({}, b"nonsense", 400),
        ({}, b"\xff\xfe", 400),
        ({}, b'{"jsonrpc": "2.0", "id": 1, "method": "a\\ud800"}', 400),
        ({}, b" " * 5_000_000, 413),
    ],
    ids=["host", "origin", "type", "nonsense", "not UTF-8", "surrogate", "huge"],
)
async def test_bad_http_requests_are_refused(
    url: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    """The wrong Host header is that of a DNS rebinding attack: it names the site of a web page."""
    usual = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    options = {"headers": {**usual, **headers}, "trust_env": False, "timeout": PATIENCE_S}
    response = httpx2.post(url, content=body, **options)
    assert response.status_code == status
    async with Client(url) as client:
        assert _passages(await client.call_tool(TOOL, {"query": "cats"}))


@pytest.mark.slow
async def test_unavailable_retriever_is_reported_and_used_again_later(data_dir) -> None:
    with running(data_dir) as services:
        services.client.ingest("acme", Document("Cats sleep.", "cats"))
        async with agent("stdio", services, "--tenant", "acme") as client:
            assert _passages(await client.call_tool(TOOL, {"query": "cats"}))
            assert services.retriever.stop() == 0
            down = await client.call_tool(TOOL, {"query": "cats"})
            assert down.is_error
            assert text(down).startswith("The search failed: ")
            assert text(down).endswith("Trying again later may help.")
            expected = {"passages": [], "error": text(down), "searched_for": ""}
            assert down.structured_content == expected
            with started(RETRIEVER, data_dir, FAST, services.retriever.address) as back:
                back.wait_until_serving()
                end = time.monotonic() + PATIENCE_S
                while (await client.call_tool(TOOL, {"query": "cats"})).is_error:
                    assert time.monotonic() < end


def _write_line(process: subprocess.Popen[str], message: str) -> None:
    assert process.stdin is not None
    process.stdin.write(message + "\n")
    process.stdin.flush()


def _request(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def _call(number: int, **arguments: Any) -> str:
    return _request(number, "tools/call", name=TOOL, arguments=arguments)


_HANDSHAKE = _request(
    0,
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
)


def test_standard_output_has_only_the_protocol_and_end_of_input_ends_the_server(
    services: Running, tenant: str
) -> None:
    """Lines that are not messages are ignored; errors go to standard error."""
    bad = ("garbage", "{}", "[]", "\udcff\udcfe", _call(1, query="\ud800"))
    with mcp_process(services, "--tenant", tenant) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.reconfigure(errors="surrogateescape")  # type: ignore[attr-defined]
        for line in (_HANDSHAKE, *bad, _call(2, query=" ")):
            _write_line(process, line)
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        out, err = process.communicate(timeout=PATIENCE_S)
    assert [answer["id"] for answer in answers] == [0, 2]
    assert "query is blank" in answers[1]["result"]["content"][0]["text"]
    assert (process.returncode, out) == (0, "")
    assert err == "error: The search failed: query is blank; a query must say something.\n"


@pytest.mark.slow
def test_death_of_the_host_during_a_call_ends_the_server_quietly(services: Running) -> None:
    # A call to an address without a server takes a second, in which the host closes its pipes.
    (nobody,) = free_addresses(1)
    with mcp_process(services, "--retriever", nobody) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        _write_line(process, _HANDSHAKE)
        process.stdout.readline()
        _write_line(process, _call(1, query="cats"))
        process.stdout.close()
        process.stdin.close()
        assert process.wait(timeout=PATIENCE_S) == 0
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *slow(*_STOPS[1:])],
)
def test_signal_ends_the_server_while_its_input_is_open(services: Running, number: int) -> None:
    with mcp_process(services) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        _write_line(process, _HANDSHAKE)
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE_S) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_on_a_terminal_a_note_says_who_talks_to_the_command() -> None:
    """No service is called before the first search."""
    terminal, standard_input = pty.openpty()
    command = [sys.executable, "-m", "hrag", "mcp"]
    with subprocess.Popen(
        command, stdin=standard_input, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("an agent's host starts this command")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
    os.close(terminal)
    os.close(standard_input)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_an_http_server(services: Running, number: int) -> None:
    with mcp_process(services, "--http", "localhost:0") as process:
        assert process.stderr is not None
        assert "serves at http://127.0.0.1:" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE_S) == 0
        assert process.stderr.read() == ""


@pytest.fixture
def refusal() -> Iterator[Refusal]:
    """A function that runs `hrag mcp` and returns its exit code and message.

    The command must fail before it serves.
    """

    def run(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["mcp", *options], env={"NO_COLOR": "1", "COLUMNS": "300"})
        assert done.stdout == ""
        return done.exit_code, done.stderr

    handlers = {number: signal.getsignal(number) for number in _STOPS}
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "address",
    ["8000", ":8000", "localhost", "localhost:", "127.0.0.1:x", "127.0.0.1:65536", "[::1]:-1"],
)
def test_an_address_must_be_host_and_port(refusal: Refusal, address: str) -> None:
    code, says = refusal("--http", address)
    assert code == 2
    assert "HOST:PORT" in says
    assert address in says


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8000", "example.org:80"])
def test_address_reachable_by_others_requires_expose(refusal: Refusal, address: str) -> None:
    code, says = refusal("--http", address)
    assert code == 2
    assert "without a credential" in says
    assert "--expose" in says


@pytest.mark.slow
def test_exposed_address_is_served(services: Running) -> None:
    with mcp_process(services, "--http", "0.0.0.0:0", "--expose") as process:
        assert process.stderr is not None
        assert "serves at http://0.0.0.0:" in process.stderr.readline()


def test_address_in_use_is_reported(refusal: Refusal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        code, says = refusal("--http", address)
    assert code == 1
    assert says.startswith(f"error: cannot listen on {address}: Address already in use")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tenant", "no tenant"), "tenant_id is 'no tenant'"),
        (("--tenant", ""), "tenant_id is ''"),
        (("--collection", "x" * 65), "collection is 'xxx"),
        (("--description", "x" * 2001), "description has 2001 characters"),
        (("--description", "a\udcff"), "description has a lone surrogate at offset 1"),
        (("--limit", "0"), "--limit"),
        (("--limit", "101"), "--limit"),
        (("--token-budget", "-1"), "--token-budget"),
        (("--mode", "nonsense"), "--mode"),
        (("--filter", "year>x"), "neither a number nor a date"),
    ],
)
def test_invalid_options_are_refused_at_once(
    refusal: Refusal, options: tuple[str, ...], says: str
) -> None:
    code, error = refusal(*options)
    assert code in (1, 2)
    assert says in error


def test_missing_sdk_is_reported_with_the_package_to_install(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "hrag.cli.mcp_server", raising=False)
    code, says = refusal()
    assert code == 6
    assert says.startswith("error: ")
    assert "pip install '.[mcp]'" in says
