"""`hrag demo` on a few files runs all its steps and leaves no files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_HRAG = [sys.executable, "-c", "from hrag.cli import main; main()"]
_TEXTS = {
    "bees.md": "# Bees\n\nBees dance to tell where flowers are. " + "They fly far. " * 200,
    "tea.txt": "Tea tastes best with water just below boiling. Let it draw for three minutes.",
    "猫.md": "# 猫\n\n猫喜欢在温暖的地方睡觉。它们晚上很活跃。",
}


def _demo(tmp_path: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "300", "TMPDIR": str(temporary), **settings}
    done = subprocess.run(
        [*_HRAG, "demo", *arguments],
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert list(temporary.iterdir()) == []
    return done


@pytest.fixture
def files(tmp_path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in _TEXTS.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.slow  # `make demo` also runs all steps.
def test_demo_on_files_runs_all_steps_and_cleans_up(tmp_path, files):
    done = _demo(tmp_path, str(files), "--searches", "10")
    assert done.returncode == 0, done.stderr
    assert "3 of 3 documents: 3 created" in done.stdout
    assert "Bees dance to tell where flowers are." in done.stdout
    assert "small to big" in done.stdout
    assert "4 summaries, made of the documents' sentences\n" in done.stdout
    assert "summary first" in done.stdout
    assert "difference" in done.stdout
    assert "The services are stopped" in done.stdout


@pytest.mark.slow
def test_demo_asks_the_question_of_its_option(tmp_path, files):
    done = _demo(tmp_path, str(files), "--ask", "How long should tea draw?", "--searches", "1")
    assert done.returncode == 0, done.stderr
    before, _, after = done.stdout.partition("1. How long should tea draw?")
    assert before
    assert "tea.txt" in after.splitlines()[1]


@pytest.mark.slow
def test_demo_ignores_the_chat_model_setting(tmp_path, files):
    """The demo must not call a chat model, because that may cost money.

    Nothing listens at the address of this test's chat model, so a call would fail.
    """
    model = {"HRAG_CHAT_MODEL": "m", "HRAG_CHAT_BASE_URL": "http://127.0.0.1:9/v1"}
    done = _demo(tmp_path, str(files), "--searches", "1", **model)
    assert done.returncode == 0, done.stderr
    assert "summaries, made of the documents' sentences\n" in done.stdout


def test_demo_shows_the_log_of_services_that_fail(tmp_path, files):
    """Only a service compares its embedders."""
    done = _demo(tmp_path, str(files), HRAG_PREVIOUS_EMBEDDER="builtin")
    assert done.returncode == 2
    assert "HRAG_EMBEDDER and HRAG_PREVIOUS_EMBEDDER both name" in done.stderr
    assert "exit code 2" in done.stderr
