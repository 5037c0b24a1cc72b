"""`hrag answer` shows the answers of real services, whose chat endpoint is scripted."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.types import Document
from tests.e2e.conftest import DOGS, MAX_TOKENS
from tests.support.servers.openai_server import (
    SAID,
    OpenAIServer,
    before_event,
    events,
    piece,
    says,
)
from tests.support.servers.processes import Running
from tests.support.until import GROWING_S

Shell = Callable[..., Any]


@pytest.fixture
def shell(answering: Running, stored: str) -> Shell:
    """A function that runs `hrag answer` for the tenant that has documents."""
    address = answering.retriever.address
    env = {"NO_COLOR": "1", "COLUMNS": "100", "HRAG_RETRIEVER_ADDRESS": address}

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["answer", *arguments, "--tenant", stored], env=env)

    return run


def test_the_command_shows_the_text_and_numbered_sources(
    shell: Shell, chat_endpoint: OpenAIServer
) -> None:
    chat_endpoint.inject(says("They dig holes in gardens. ", "[1]", " Yes\x1b[31m [9]."))
    done = shell(DOGS, "--limit", "2")
    assert done.exit_code == 0, done.output
    text, _, sources = done.output.partition("\n\n")
    assert text == "They dig holes in gardens. [1] Yes[31m."
    lines = sources.strip().splitlines()
    cited = [line for line in lines if line.startswith("[1] ")]
    assert lines.index(cited[0]) == 0
    assert lines[1].startswith("   ")
    assert lines[1].endswith("»")
    assert lines[2] == "1 passage not cited"
    assert lines[3].startswith("openai/test-model; 12 + 3 tokens; first text after ")
    assert {"[1] Dogs · dogs#0.0", "[1] Cats · p. 1-2 · cats#0.0"} & set(cited)


def test_the_command_prints_one_json_document(shell: Shell) -> None:
    answer = json.loads(shell("dogs?", "--question", "why?", "--max-tokens", "9", "--json").output)
    assert answer["text"] == "".join(SAID)
    assert len(answer["passages"]["passages"]) == 2
    assert answer["end"]["finish_reason"] == "stop"
    assert answer["end"]["error"] is None
    assert answer["end"]["citations"][0]["marker"] == 1


def test_the_command_shows_reasoning_only_if_asked(
    shell: Shell, chat_endpoint: OpenAIServer
) -> None:
    chat_endpoint.inject(says("<think>Hm\x1b[2J.</think>", *SAID), times=4)
    assert shell("dogs?").output.startswith("".join(SAID))
    shown = shell("dogs?", "--reasoning").output
    assert shown.startswith("Hm[2J.\n\n" + "".join(SAID))
    assert "reasoning" not in json.loads(shell("dogs?", "--json").output)
    answer = json.loads(shell("dogs?", "--json", "--reasoning").output)
    assert (answer["text"], answer["reasoning"]) == ("".join(SAID), "Hm[2J.")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_failed_model_still_shows_passages_and_text(
    shell: Shell, chat_endpoint: OpenAIServer, options: tuple[str, ...]
) -> None:
    chat_endpoint.inject(before_event(1, None))
    done = shell("dogs?", *options)
    assert done.exit_code == 4
    assert done.stderr.startswith('{"error": ' if options else "error: the chat endpoint ")
    assert "ended the reply early" in done.stderr
    if options:
        answer = json.loads(done.stdout)
        assert (answer["text"], answer["end"]["finish_reason"]) == ("Dogs ", "failed")
        assert "ended the reply early" in answer["end"]["error"]
    else:
        assert done.stdout.startswith("Dogs ")
        assert "[2] " in done.stdout
        assert "the model failed; openai/test-model" in done.stdout


def test_interrupted_call_still_shows_passages_and_text(
    shell: Shell, chat_endpoint: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for timeout_s in GROWING_S:
        monkeypatch.setattr("hrag.client.calls.ANSWER_TIMEOUT_S", timeout_s)
        chat_endpoint.inject(events(*(piece("狗会叫。" * 10), 0.5) * 200))
        done = shell("dogs?")
        assert done.exit_code == 4
        if done.stdout.startswith("狗会叫。"):
            break
    assert done.stdout.startswith("狗会叫。")
    assert "[2] " in done.stdout
    assert done.stderr.startswith("error: ")


def test_a_long_sentence_is_shown_in_any_script(
    answering: Running, chat_endpoint: OpenAIServer, tenant: str
) -> None:
    answering.client.ingest(tenant, Document("狗" * 400, "long"))
    chat_endpoint.inject(says("狗 [1]"))
    env = {"NO_COLOR": "1", "HRAG_RETRIEVER_ADDRESS": answering.retriever.address}
    done = CliRunner().invoke(app, ["answer", "狗?", "--tenant", tenant], env=env)
    assert f"   «{'狗' * 400}»" in done.stdout


def test_empty_result_is_reported(shell: Shell) -> None:
    done = shell("dogs?", "--min-score", "2")
    assert (done.exit_code, done.output) == (0, "nothing found: no passage matches\n")


def test_errors_are_one_line(shell: Shell) -> None:
    done = shell("dogs?", "--max-tokens", "9999")
    assert done.exit_code == 2
    assert done.stderr == f"error: max_tokens is 9999; it must be from 1 to {MAX_TOKENS}\n"
