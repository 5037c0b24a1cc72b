"""The command line works with real services that `hrag serve` has started."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.parameters import slow
from tests.support.servers.forked import HRAG, ran
from tests.support.until import until

_HRAG = [sys.executable, *HRAG]
_SETTINGS = {"HRAG_EMBEDDER": "hash:64", "NO_COLOR": "1", "COLUMNS": "100"}
_START_S = 60
_GUIDE = "# The guide\n\n## Keys\n\n" + "Rotate every key once a month. " * 150


@dataclass
class Serving:
    """A running `hrag serve`. The method `hrag` runs other commands against its services."""

    process: subprocess.Popen[str]
    env: dict[str, str]

    def hrag(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return ran(*HRAG, *arguments, environment=self.env)

    def children(self) -> dict[str, int]:
        """Returns the process id of each service by the name of its module."""
        pid = self.process.pid
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        commands = {
            int(child_pid): Path(f"/proc/{child_pid}/cmdline").read_text().split("\0")
            for child_pid in pids
        }
        return {
            command[command.index("-m") + 1]: child_pid for child_pid, command in commands.items()
        }


@contextmanager
def _serve(folder: Path) -> Iterator[Serving]:
    env = {**os.environ, **_SETTINGS, "HRAG_DATA_DIR": str(folder / "data")}
    for name in ("INDEXER", "RETRIEVER"):
        env[f"HRAG_{name}_ADDRESS"] = "127.0.0.1:0"
    process = subprocess.Popen(
        [*_HRAG, "serve"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    alarm = threading.Timer(_START_S, process.kill)
    alarm.start()
    try:
        assert process.stdout is not None
        for name in ("INDEXER", "RETRIEVER"):
            line = next(line for line in process.stdout if "serves at" in line)
            env[f"HRAG_{name}_ADDRESS"] = re.findall(r"127\.0\.0\.1:\d+", line)[0]
        alarm.cancel()
        yield Serving(process, env)
    finally:
        alarm.cancel()
        process.terminate()
        process.communicate(timeout=_START_S)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "sub").mkdir()
    (folder / "guide.md").write_text(_GUIDE)
    (folder / "sub" / "notes.txt").write_text("Short notes about nothing much.")
    return folder


@pytest.fixture(scope="module")
def serving(tmp_path_factory, files) -> Iterator[Serving]:
    with _serve(tmp_path_factory.mktemp("store")) as serving:
        done = serving.hrag("ingest", str(files))
        assert done.returncode == 0, done.stderr
        assert "2 of 2 documents: 2 created, 0 updated, 0 unchanged, 0 failed" in done.stdout
        yield serving


def test_exit_code_reports_health(serving):
    def reports(code: int, pattern: str, *arguments: str) -> bool:
        """Returns True if `hrag health` ends so. It waits for a service only for two seconds."""
        done = serving.hrag("health", *arguments)
        return done.returncode == code and re.search(pattern, done.stdout) is not None

    both = r"^indexer serves at .+\nretriever serves at .+\n$"
    until(lambda: reports(0, both))
    # A service does not answer for the health of the other service.
    wrong = ("--retriever", serving.env["HRAG_INDEXER_ADDRESS"])
    problem = "the other service of hrag listens there"
    expected = rf"^indexer serves at .+\nretriever does not serve at .+: {problem}\n$"
    until(lambda: reports(1, expected, *wrong))
    until(lambda: reports(0, "", "indexer", *wrong))


def test_second_ingest_reports_all_documents_unchanged(serving, files):
    done = serving.hrag("ingest", str(files))
    assert done.returncode == 0
    assert "0 created, 0 updated, 2 unchanged" in done.stdout


def test_failed_files_are_listed_and_the_other_files_stored(serving, tmp_path):
    (tmp_path / "broken.docx").write_bytes(b"no archive")
    (tmp_path / "fine.txt").write_text("fine")
    done = serving.hrag("ingest", "--tenant", "mixed", str(tmp_path), str(tmp_path / "none.md"))
    assert done.returncode == 1
    assert re.search(r"broken\.docx: .+\n", done.stdout)
    assert "none.md: No such file or directory" in done.stdout
    assert "1 created, 0 updated, 0 unchanged, 2 failed" in done.stdout


def test_missing_collection_fails_without_create(serving, files):
    arguments = ("ingest", "--collection", "other", str(files))
    assert serving.hrag(*arguments).returncode == 3
    assert serving.hrag(*arguments, "--create").returncode == 0
    assert serving.hrag(*arguments, "--create").returncode == 0


def test_search_shows_citations_and_marks_matches(serving):
    done = serving.hrag("search", "keys", "--limit", "1", "--full")
    assert done.returncode == 0
    scores = r"\d\.\d{3} \(lexical \d\.\d{3}, dense -?\d\.\d{3}\)"
    assert re.search(rf"^1\. {scores}  .*#2\.\d+$", done.stdout, re.MULTILINE)
    assert re.search("«keys?»", done.stdout, re.IGNORECASE)
    assert "leaves considered, hybrid" in done.stdout
    assert "in the service" in done.stdout


def test_search_shows_a_sentence_of_each_passage(serving, files):
    done = serving.hrag("search", "keys", "--limit", "1")
    place, sentence, _, summary = done.stdout.splitlines()
    assert re.fullmatch(rf"1\. .*{re.escape(str(files))}/\S+  -?\d\.\d{{3}}", place)
    assert re.match("   .*«keys?»", sentence, re.IGNORECASE)
    assert summary.startswith("1 passage")


def test_a_document_is_cited_by_its_title_or_else_by_its_file(serving, files):
    done = serving.hrag("search", "notes", "--limit", "9", "--full")
    assert f"  The guide · Keys · {files}/guide.md · guide.md#2." in done.stdout
    assert f"  {files}/sub/notes.txt · sub:notes.txt#2.0" in done.stdout


def test_search_as_json_prints_exactly_one_document(serving):
    done = serving.hrag("search", "keys", "--json", "--mode", "standard", "--limit", "3")
    result = json.loads(done.stdout)
    assert (result["mode"], len(result["passages"])) == ("standard", 3)
    for passage in result["passages"]:
        span = passage["chunk"]["span"]
        assert len(passage["chunk"]["content"]) == span["char_end"] - span["char_start"]


def test_search_applies_filters(serving):
    done = serving.hrag("search", "keys", "--json", "--filter", "title=Nobody's")
    result = json.loads(done.stdout)
    assert (result["passages"], result["eligible_leaves"]) == ([], 0)
    done = serving.hrag("search", "keys", "--filter", "title", "--filter", "!lang", "--full")
    assert "by exact scan" in done.stdout
    assert "filter " in done.stdout
    done = serving.hrag("search", "keys", "--filter", "year>x")
    assert done.returncode == 2
    assert "neither a number nor a date" in done.stderr


def _until_summarised(serving: Serving, tenant: str) -> str:
    """Waits until all documents have summaries; then returns the output of `hrag status`."""

    def is_summarised() -> bool:
        status = json.loads(serving.hrag("status", "--tenant", tenant, "--json").stdout)
        return not any(
            collection["status"]["unsummarised_documents"] for collection in status["collections"]
        )

    until(is_summarised, _START_S)
    return serving.hrag("status", "--tenant", tenant).stdout


@pytest.mark.slow
def test_a_collection_with_summaries_is_searched_by_them(serving, files):
    ingest = ("ingest", "--tenant", "sums", "--create", str(files), "--summaries")
    done = serving.hrag(*ingest, "section")
    assert done.returncode == 0, done.stderr
    shown = _until_summarised(serving, "sums")
    assert re.search(r"^default\tsection\t2\t0\t0$", shown, re.MULTILINE), shown
    search = ("search", "keys", "--tenant", "sums", "--mode", "summary_first")
    done = serving.hrag(*search, "--top-sections", "1", "--summary-scope", "documents")
    assert done.returncode == 0, done.stderr
    first, second, *_ = done.stdout.splitlines()
    assert re.fullmatch(r"section -?\d\.\d{3}  .+", first)
    assert second.startswith("  ")
    assert re.search(r"^1\. ", done.stdout, re.MULTILINE)
    assert len(json.loads(serving.hrag(*search, "--json").stdout)["sections"]) == 1
    assert serving.hrag(*ingest, "section").returncode == 0
    done = serving.hrag(*ingest, "page")
    assert done.returncode == 1
    assert "exists already, with summaries section, not page" in done.stderr


def test_collection_without_summaries_does_not_mention_them(serving):
    assert "summar" not in serving.hrag("status").stdout
    done = serving.hrag("search", "keys", "--mode", "summary_first")
    assert done.returncode == 1
    assert "has no summaries" in done.stderr
    done = serving.hrag("search", "keys", "--top-sections", "3")
    assert done.returncode == 2
    assert "top_sections is 3; only SUMMARY_FIRST uses it" in done.stderr


def test_search_in_an_empty_collection_reports_it(serving, tmp_path):
    (tmp_path / "broken.docx").write_bytes(b"no archive")
    serving.hrag("ingest", "--tenant", "empty", "--collection", "c", "--create", str(tmp_path))
    done = serving.hrag("search", "x", "--tenant", "empty", "--collection", "c")
    assert done.returncode == 0
    assert "nothing found" in done.stdout


def test_errors_are_one_line(serving):
    done = serving.hrag("search", "x", "--tenant", "no tenant")
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"error: tenant_id is 'no tenant'.*\n", done.stderr)


def test_tree_draws_every_chunk_of_the_document(serving):
    done = serving.hrag("tree", "guide.md")
    assert done.returncode == 0
    counts = re.search(r"chunks per level: ([\d, ]+)", done.stdout)
    assert counts is not None
    assert len(re.findall(r"#\d\.\d+ ", done.stdout)) == sum(map(int, counts[1].split(", ")))
    assert "Keys" in done.stdout


def test_status_counts_stored_documents(serving):
    shown = serving.hrag("status")
    assert "hash" in shown.stdout
    assert "collections in memory: " in shown.stdout
    status = json.loads(serving.hrag("status", "--json").stdout)
    collection = next(
        listed for listed in status["collections"] if listed["collection"]["name"] == "default"
    )
    assert collection["status"]["document_count"] == 2
    assert status["server"]["embedder"] == collection["collection"]["settings"]["embedder"]


def test_check_runs_while_the_services_run(serving):
    done = serving.hrag("check")
    assert done.returncode == 0, done.stdout
    assert "the store is sound" in done.stdout


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *slow(signal.SIGINT, signal.SIGHUP)],
)
def test_signals_stop_both_services_cleanly(tmp_path, number):
    with _serve(tmp_path) as serving:
        children = serving.children()
        assert set(children) == {"indexer_svc", "retriever_svc"}
        serving.process.send_signal(number)
        assert serving.process.wait(timeout=_START_S) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())


@pytest.mark.parametrize(
    "module", [pytest.param("indexer_svc", marks=pytest.mark.slow), "retriever_svc"]
)
def test_death_of_one_service_stops_the_other(tmp_path, module):
    with _serve(tmp_path) as serving:
        children = serving.children()
        os.kill(children[module], signal.SIGKILL)
        _, stderr = serving.process.communicate(timeout=_START_S)
        assert serving.process.returncode == 1
        name = module.removesuffix("_svc")
        assert f"error: the {name} was ended by SIGKILL (exit code -9)" in stderr
        assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())


def test_wrong_setting_of_a_service_is_shown(tmp_path):
    """Only a service reads the files that a setting names."""
    env = {**os.environ, "HRAG_AUTH": "api_key", "HRAG_DATA_DIR": str(tmp_path)}
    command = [*_HRAG, "serve", "--indexer-address", "127.0.0.1:0"]
    command += ["--retriever-address", "127.0.0.1:0"]
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "HRAG_API_KEYS_FILE" in done.stderr
    assert "exit code 2" in done.stderr
