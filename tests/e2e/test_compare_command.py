"""`hrag compare` stores documents, compares two systems on them, and leaves only its report."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hrag.evaluation.judge import CRITERIA
from tests.support.servers.openai_server import OpenAIServer
from tests.support.servers.processes import FAST
from tests.support.until import until

_HRAG = [sys.executable, "-c", "from hrag.cli import main; main()"]
MINIATURE = Path(__file__).parent.parent / "data" / "quality" / "miniature"
QUESTIONS = 20


def environment(tmp_path: Path, **settings: str) -> dict[str, str]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("HRAG_CHAT")}
    changed = {"NO_COLOR": "1", "NO_PROXY": "127.0.0.1", "TMPDIR": str(temporary)}
    return {**env, **FAST, **changed, **settings}


def reply(prompt: str) -> str:
    """Answers with the first passage; as a judge, prefers the answer that is longer."""
    if "Answer A:" not in prompt:
        return prompt.partition("Passages:\n\n")[2][:200]
    first, second = (part.partition("\n>>>")[0] for part in prompt.split("<<<\n")[1:])
    better = "A" if len(first) > len(second) else "B"
    return json.dumps({"reason": "It says more.", **dict.fromkeys(CRITERIA, better)})


def test_a_comparison_writes_its_report_and_leaves_nothing_else(
    tmp_path: Path, chat_endpoint: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_endpoint, "script", reply)
    settings = environment(
        tmp_path,
        HRAG_CHAT_MODEL="test-model",
        HRAG_CHAT_BASE_URL=chat_endpoint.base_url,
        # These settings are those of other services, which the comparison must not touch.
        HRAG_AUDIT_FILE=str(tmp_path / "audit.log"),
        HRAG_INDEXER_METRICS_ADDRESS=chat_endpoint.base_url.split("/")[2],
        HRAG_ENGINE="postgres",
        HRAG_POSTGRES_DSN="host=nowhere.invalid",
        HRAG_AUTH="api_key",
    )
    questions = tmp_path / "questions.jsonl"
    lines = (MINIATURE / "queries.jsonl").read_text("utf-8").splitlines()
    nowhere = {"qid": "typo", "query": "What?", "gold": [{"quote": "no such words"}]}
    questions.write_text("\n".join([*lines, json.dumps(nowhere)]), "utf-8")
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7 broken")
    names = ("--questions", questions, "--judge-sample", "4", "-o", tmp_path / "result")
    done = subprocess.run(
        [*_HRAG, "compare", MINIATURE / "corpus.jsonl", broken, *map(str, names)],
        env=settings,
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    # The broken document makes the exit code 1, and the others are compared.
    assert done.returncode == 1, done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "audit.log").exists()
    sentence = r"^context finds [\d.]+ points more of the gold text than .+$"
    first = re.search(sentence, done.stdout, re.MULTILINE)
    assert first, done.stdout
    report = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert report["findings"]["first"] == first[0]
    assert len(report["questions"]) == QUESTIONS + 1
    assert "the collection does not have" in report["retrieval"]["warnings"][0]
    assert report["retrieval"]["warnings"][0].endswith(": typo")
    assert report["unstored"] == [str(broken)]
    assert report["where"] is None  # The store that was searched is removed.
    judged = [one for one in report["questions"] if one["verdicts"]]
    assert len(judged) == 4
    compared = next(one for one in judged if one["verdicts"]["context"]["reasons"])
    assert compared["verdicts"]["context"]["reasons"] == ["It says more."] * 2
    assert compared["systems"]["context"]["answer"]["citations"] == [1]
    assert compared["gold"][0]["text"]
    with (tmp_path / "result.csv").open(encoding="utf-8-sig", newline="") as file:
        assert len(list(csv.DictReader(file))) == QUESTIONS + 1
    assert first[0].split(" [")[0] in (tmp_path / "result.html").read_text("utf-8")


def test_an_interrupted_comparison_leaves_nothing_behind(tmp_path: Path) -> None:
    target = ("--questions", MINIATURE, "-o", tmp_path / "result")
    process = subprocess.Popen(
        [*_HRAG, "compare", str(MINIATURE / "corpus.jsonl"), *map(str, target)],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    folder = tmp_path / "tmp"
    until(lambda: any(folder.glob("hrag-compare-*/indexer.log")))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: nothing was written; with --resume FILE" in errors
    assert list(folder.iterdir()) == []
    assert not list(tmp_path.glob("result.*"))


def test_a_wrong_setting_is_shown_with_the_services_log(tmp_path: Path) -> None:
    done: Any = subprocess.run(
        [*_HRAG, "compare", str(MINIATURE / "corpus.jsonl"), "--questions", str(MINIATURE)],
        env=environment(tmp_path, HIERARCHICAL_OVERLAP_RATIO="7"),
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2
    assert "HIERARCHICAL_OVERLAP_RATIO" in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
