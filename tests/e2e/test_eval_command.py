"""`hrag eval` compares search modes with real services and a scripted chat endpoint."""

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.evaluation.judge import CRITERIA
from tests.support.servers.openai_server import OpenAIServer, refuse
from tests.support.servers.processes import Running

MINIATURE = Path(__file__).parent.parent / "data" / "quality" / "miniature"
QUESTIONS = 20
# Pseudo-embeddings have no meaning, so dense retrieval finds answers only with large token budgets.
COMPARE = ("--compare", "small_to_big:dense,standard")

Shell = Callable[..., Any]


@pytest.fixture
def shell(services: Running, chat_endpoint: OpenAIServer, tenant: str) -> Shell:
    """A function that runs `hrag eval` for the collection `mini` of the test's tenant.

    The command uses the chat model of `chat_endpoint`.
    """
    env = {
        "NO_COLOR": "1",
        "NO_PROXY": "127.0.0.1",
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
        "HRAG_CHAT_MODEL": "test-model",
        "HRAG_CHAT_BASE_URL": chat_endpoint.base_url,
    }

    def run(*arguments: str, **variables: str) -> Any:
        words = ["eval", *map(str, arguments), "--tenant", tenant, "--collection", "mini"]
        return CliRunner().invoke(app, words, env={**env, **variables})

    return run


@pytest.fixture
def stored(shell: Shell) -> Shell:
    """The function of `shell`, after it has ingested the miniature corpus."""
    done = shell(MINIATURE, "--ingest", MINIATURE, "--compare", "standard", "--sample", "1")
    assert done.exit_code == 0, done.output
    return shell


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def test_modes_are_compared_on_a_corpus_and_a_run_is_resumed(shell: Shell, tmp_path: Path) -> None:
    report, page, journal = (tmp_path / name for name in ("r.json", "r.html", "run.jsonl"))
    options = (*COMPARE, "--budgets", "500,200000", "--json", report, "--resume", journal)
    done = shell(MINIATURE, "--ingest", MINIATURE, *options)
    assert done.exit_code == 2
    assert "each from 1 to" in done.stderr
    options = (*COMPARE, "--budgets", "8000,500", "--json", report, "--resume", journal)
    done = shell(MINIATURE, "--ingest", MINIATURE, *options, "--html", page)
    assert done.exit_code == 0, done.output
    assert "12 of 12 documents: 12 created" in done.stdout
    assert re.search(r"^standard +\d+\.\d \[\d+, \d+\] +100\.0 \[100, 100\]$", done.stdout, re.M)
    assert "20 questions" in done.stdout
    figures = read(report)
    assert figures["retrieval"]["budgets"] == [500, 8000]
    assert figures["retrieval"]["baseline"] == "standard"
    for system in figures["retrieval"]["systems"]:
        # All documents together have about 3,000 tokens.
        assert system["estimates"]["recall@8000"]["mean"] == 1
        assert (system["searches"], system["failures"]) == (QUESTIONS, [])
        assert system["latency_p50_us"] > 0
    by_vectors, by_both = figures["retrieval"]["systems"]
    assert 0 < by_vectors["estimates"]["recall@500"]["mean"] < 0.9
    assert by_vectors["differences"]["recall@500"]["high"] < 0
    assert by_both["estimates"]["recall@500"]["mean"] > 0.9
    assert "<svg" in page.read_text()
    # The journal has all searches, so the second run makes none.
    assert journal.read_text().count("\n") == 1 + 2 * QUESTIONS
    shell(MINIATURE, *options)
    again = read(report)
    assert again["retrieval"] == figures["retrieval"]


def test_blank_documents_of_a_corpus_are_skipped_and_counted(shell: Shell, tmp_path: Path) -> None:
    """BEIR's corpora contain blank documents, which no search can find."""
    corpus = tmp_path / "corpus.jsonl"
    blank = "".join(
        json.dumps({"_id": str(n), "title": "", "text": n * " "}) + "\n" for n in (0, 1)
    )
    corpus.write_text((MINIATURE / "corpus.jsonl").read_text("utf-8") + blank, "utf-8")
    done = shell(MINIATURE, "--ingest", corpus, "--compare", "standard", "--sample", "1")
    assert done.exit_code == 0, done.output
    assert f"warning: 2 documents of {corpus} skipped: no title and no text" in done.stderr
    assert "12 of 12 documents: 12 created" in done.stdout


def test_questions_may_be_a_table_of_document_ids_and_quotes(stored: Shell, tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text(
        "question,document_id,quote\n"
        "What does E-1408 mean?,,E-1408: no water  arrives.\n"
        "How is a lens turned?,nowhere,a bath of mercury\n",
        "utf-8",
    )
    done = stored(path, *COMPARE, "--budgets", "8000", "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    assert "1 expected document not found in the collection mini, such as nowhere" in done.stdout
    assert "the collection does not have 1 expected quote of 1 question" in done.stdout
    assert "counts as missed by every system: line-3" in done.stdout
    figures = read(tmp_path / "r.json")
    assert [
        system["estimates"]["recall@8000"]["mean"] for system in figures["retrieval"]["systems"]
    ] == [
        0.5,
        0.5,
    ]


def reply(prompt: str) -> str:
    """Returns the reply of the chat endpoint to a prompt.

    For the judge's prompt, which has two answers, the reply prefers answer A. For other prompts it
    repeats the first passage.
    """
    if "Answer A:" in prompt:
        return json.dumps(dict.fromkeys(CRITERIA, "A"))
    return prompt.partition("Passages:\n\n")[2][:200]


def test_a_judge_that_always_prefers_the_first_answer_decides_nothing(
    stored: Shell, chat_endpoint: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_endpoint, "script", reply)
    report = tmp_path / "r.json"
    options = (*COMPARE, "--judge", "--judge-sample", "6", "--answer-tokens", "300")
    done = stored(MINIATURE, *options, "--json", report)
    assert done.exit_code == 0, done.output
    judged = read(report)["judged"]
    (pair,) = judged["pairs"]
    for balance in pair["criteria"].values():
        assert (balance["wins"], balance["ties"], balance["losses"]) == (0, 6, 0)
    compared = 6 - pair["identical"]
    assert compared > 0
    assert (pair["first_preferred"], pair["consistent"]) == (1, 0)
    assert "only 6 comparisons of small_to_big:dense" in judged["warnings"][0]
    assert "warning: only 6 comparisons" in done.stdout
    assert judged["with_reference"] == 6
    assert judged["usage"]["calls"] == 12 + 2 * compared
    assert judged["usage"]["prompt_tokens"] == 12 * judged["usage"]["calls"]
    assert "the first answer is preferred in 100 %" in done.stdout


def test_a_failed_call_is_shown_and_changes_the_exit_code(
    stored: Shell, chat_endpoint: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_endpoint, "script", reply)
    chat_endpoint.inject(refuse(400))
    options = (*COMPARE, "--judge", "--judge-sample", "3", "--concurrency", "1")
    journal = ("--resume", tmp_path / "run.jsonl")
    done = stored(MINIATURE, *options, *journal)
    assert done.exit_code == 1
    assert "1 comparison of small_to_big:dense failed:" in done.stdout
    assert re.search(r"^  mini-\d+: the chat endpoint .+ answered 400", done.stdout, re.MULTILINE)
    calls = chat_endpoint.calls
    done = stored(MINIATURE, *options, *journal)
    assert done.exit_code == 0, done.output
    # Only the calls of the failed question are made again.
    assert 1 <= chat_endpoint.calls - calls <= 4


def test_questions_are_written_from_the_collection_and_then_asked(
    stored: Shell, chat_endpoint: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = count()

    def question(prompt: str) -> str:
        if next(replies) < 2:
            return "I have no question."
        text = prompt.partition("<<<\n")[2].partition("\n>>>")[0]
        quote = " ".join(text.split()[3:8])
        return json.dumps({"question": f"What about {quote}?", "quote": quote, "answer": quote})

    monkeypatch.setattr(chat_endpoint, "script", question)
    path, report = tmp_path / "new.jsonl", tmp_path / "r.json"
    done = stored(path, "--generate", "3", *COMPARE, "--budgets", "8000", "--json", report)
    assert done.exit_code == 0, done.output
    assert f"3 questions written to {path}, which has 3" in done.stdout
    assert "openai/test-model: 5 calls, 0 failed, 60 + 15 tokens" in done.stdout
    figures = read(report)
    assert figures["generated"]["added"] == 3
    assert figures["generated"]["rejected"] == {"no JSON in the reply": 2}
    assert len(path.read_text().splitlines()) == 3
    # If the spans of quotes were wrong by one character, some quotes would not be found.
    assert figures["retrieval"]["systems"][1]["estimates"]["recall@8000"]["mean"] == 1


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (("--judge",), {"HRAG_CHAT_MODEL": ""}, "require a chat model: set HRAG_CHAT_MODEL"),
        (("--judge",), {"HRAG_CHAT_BASE_URL": "x"}, "HRAG_CHAT_BASE_URL='x': it must be"),
        (("--compare", "best"), {}, "mode 'best'; it must be one of"),
        (("--baseline", "context", *COMPARE), {}, "baseline is 'context'; it must be one of"),
        (("--resume", MINIATURE / "meta.json"), {}, "it is not a journal"),
        # This tenant has no collection `mini`.
        ((*COMPARE,), {}, "mini"),
    ],
)
def test_errors_are_one_line(
    shell: Shell, arguments: tuple[str, ...], variables: dict[str, str], message: str
) -> None:
    done = shell(MINIATURE, *arguments, **variables)
    assert done.exit_code == (3 if message == "mini" else 2)
    assert message in done.stderr
    assert re.fullmatch(r"error: .+\n", done.stderr)
