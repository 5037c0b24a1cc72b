"""`hrag eval` runs with a real model.

The model is too small to judge answers well, so the tests ignore its verdicts.
"""

import json
import subprocess
import sys
from os import environ
from pathlib import Path

import pytest

from tests.models.conftest import Llama
from tests.support.servers.processes import FAST, Running, running

pytestmark = [pytest.mark.models, pytest.mark.timeout(1800)]

HRAG = [sys.executable, "-c", "from hrag.cli import main; main()"]
MINIATURE = Path(__file__).parent.parent / "data" / "quality" / "miniature"


def run_eval(services: Running, llama: Llama, *arguments: object) -> str:
    """Runs `hrag eval`; returns its standard error. Exit code 1 is accepted: some calls failed."""
    done = subprocess.run(
        [*HRAG, "eval", *map(str, arguments), "--tenant", "t", "--concurrency", "1"],
        env={
            **environ,
            "HRAG_INDEXER_ADDRESS": services.indexer.address,
            "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
            "HRAG_CHAT_MODEL": "smollm2",
            "HRAG_CHAT_BASE_URL": llama.base_url,
            "HRAG_CHAT_TIMEOUT_S": "600",
        },
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stderr


def test_answers_are_judged_and_questions_written(llama: Llama, tmp_path: Path) -> None:
    report, new, written = (tmp_path / name for name in ("j.json", "new.jsonl", "w.json"))
    compare = ("--compare", "small_to_big:dense,standard")
    judge = ("--judge", "--judge-sample", "2", "--answer-tokens", "100")
    with running(tmp_path / "store", FAST) as services:
        run_eval(
            services, llama, MINIATURE, "--ingest", MINIATURE, *compare, *judge, "--json", report
        )
        errors = run_eval(services, llama, new, "--generate", "1", *compare, "--json", written)
    document = json.loads(report.read_text("utf-8"))
    answers = [one["systems"]["standard"]["answer"] for one in document["questions"]]
    assert sum(bool(answer and answer["text"] and answer["passages"]) for answer in answers) == 2
    judged = document["judged"]
    (pair,) = judged["pairs"]
    better = pair["criteria"]["better"]
    assert better["wins"] + better["ties"] + better["losses"] + len(pair["failures"]) == 2
    usage = judged["usage"]
    assert usage["calls"] > 0
    assert usage["calls"] + usage["failed"] >= 4
    assert usage["prompt_tokens"] > 100
    assert usage["completion_tokens"] > 0
    # The small model may have written no valid question.
    if "has no questions" not in errors:
        assert json.loads(written.read_text("utf-8"))["generated"]["questions"] == 1
