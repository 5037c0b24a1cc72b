"""`hrag chat` asks the questions of a conversation, from a pipe and at a terminal."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from select import select
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.types import Document
from tests.support.servers.openai_server import OpenAIServer, events, piece, refuse, says
from tests.support.servers.processes import Running
from tests.support.until import PATIENCE_S, until

Shell = Callable[..., Any]
NO_QUESTION = "the chat model openai/test-model wrote no question about the conversation"
LAST = "The last question:\n\n> "


def scripted(prompt: str) -> str:
    """Returns the standalone form of "and when?", or an answer that names the question."""
    if LAST in prompt:
        return "When do dogs bark?" if f"{LAST}and when" in prompt else "I do not know."
    return f"About {prompt.strip().rpartition('Question: ')[2]} [1]"


@pytest.fixture
def env(answering: Running) -> dict[str, str]:
    return {
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "HRAG_RETRIEVER_ADDRESS": answering.retriever.address,
    }


@pytest.fixture
def shell(
    answering: Running, chat_endpoint: OpenAIServer, env: dict[str, str], tenant: str
) -> Iterator[Shell]:
    """A function that runs `hrag chat` with lines of standard input. The tenant has a document."""
    answering.client.ingest(tenant, Document("Dogs bark at night.", "dogs"))
    script, chat_endpoint.script = chat_endpoint.script, scripted

    def run(lines: str | bytes, *options: str) -> Any:
        arguments = ["chat", "--tenant", tenant, *options]
        return CliRunner().invoke(app, arguments, input=lines, env=env)

    yield run
    chat_endpoint.script = script


def test_each_line_of_a_pipe_is_a_question_that_may_refer_to_those_before(shell: Shell) -> None:
    done = shell("what do dogs do?\n\n  and when?\nwhy?\n")
    assert done.exit_code == 0, done.output
    shown = [
        line for line in done.stdout.splitlines() if not line.startswith(("openai/", " ", "["))
    ]
    assert shown == [
        *("About what do dogs do? [1]", "", ""),
        *("searched for: When do dogs bark?", "About and when? [1]", "", ""),
        "searched for: why? dogs",
        f"words of the last turns were added: {NO_QUESTION}",
        *("About why? [1]", "", ""),
    ]


def test_a_new_conversation_forgets_the_turns(shell: Shell) -> None:
    done = shell("what do dogs do?\n/new\nand when?", "--json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["question"] for answer in answers] == ["what do dogs do?", "and when?"]
    assert [answer["passages"]["standalone_question"] for answer in answers] == [None, None]


def test_json_has_a_line_for_each_question(shell: Shell) -> None:
    done = shell("what do dogs do?\nand when?\n", "--json", "--limit", "1")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["text"] == "About what do dogs do? [1]"
    assert second["passages"]["standalone_question"] == {
        "text": "When do dogs bark?",
        "method": "model",
        "failure": "",
    }
    assert second["end"]["finish_reason"] == "stop"


def test_a_pipe_ends_with_the_first_question_that_fails(
    shell: Shell, chat_endpoint: OpenAIServer
) -> None:
    chat_endpoint.inject(refuse(401))
    done = shell("what do dogs do?\nand when?\n")
    assert done.exit_code == 1
    assert "check HRAG_CHAT_API_KEY" in done.stderr
    assert "searched for" not in done.stdout
    done = shell("what do dogs do?\n", "--limit", "1", "--min-score", "nan")
    assert done.exit_code == 2
    assert "min_score" in done.stderr
    done = shell(b"what\xff?\n")
    assert (done.exit_code, done.stderr) == (2, "error: standard input is not UTF-8\n")


def test_without_questions_nothing_is_asked(shell: Shell, chat_endpoint: OpenAIServer) -> None:
    calls = chat_endpoint.calls
    assert shell("\n \n/new\n").stdout == ""
    assert chat_endpoint.calls == calls


def test_at_a_terminal_a_conversation_goes_on_after_errors_and_interruptions(
    shell: Shell, chat_endpoint: OpenAIServer, env: dict[str, str], tenant: str
) -> None:
    """`shell` has stored the document, and its script answers."""
    chat_endpoint.inject(refuse(401))
    # The command controls its terminal, as a command of a shell does, so Ctrl-C interrupts it.
    program = "import os; os.login_tty(0); from hrag.cli import main; main()"
    command = [sys.executable, "-c", program, "chat"]
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [*command, "--tenant", tenant],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=os.environ | env,
    )
    os.close(theirs)
    try:
        assert "check HRAG_CHAT_API_KEY" in _said(terminal, "one?\n", "> ", after="error:")
        assert "About what do dogs do?" in _said(terminal, "what do dogs do?\n", "> ")
        assert "searched for: When do dogs bark?" in _said(terminal, "and when?\n", "> ")
        chat_endpoint.inject(says("When do dogs bark?"))
        chat_endpoint.inject(events(piece("Never"), *(piece(" ends"), 0.05) * 2000))
        assert "Never" in _said(terminal, "and when else?\n", " ends ends")
        assert "stopped" in _said(terminal, "\x03", "> ", after="stopped")
        # An interrupted answer may still occupy the tenant's share for a moment.
        until(lambda: "About and now?" in _said(terminal, "and now?\n", "> "))
        os.write(terminal, b"\x04")
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def _said(terminal: int, typed: str, end: str, after: str = "") -> str:
    """Types a text at a terminal; returns what it shows up to `end`, which follows `after`."""
    os.write(terminal, typed.encode())
    shown = ""
    while end not in shown[shown.find(after) :] or after not in shown:
        assert select([terminal], [], [], PATIENCE_S)[0], f"nothing follows {shown!r}"
        shown += os.read(terminal, 4096).decode()
    return shown
