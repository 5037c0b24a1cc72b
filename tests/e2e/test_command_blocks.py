"""The shell commands of README and of the guides run as they are printed, in the page's order.

A page is one session of a shell, in a folder with the files that the page names. Services listen
on free ports, so addresses of the page are replaced. Before a block that starts services, earlier
services are stopped. A page without such a block finds running services.

The session must print the output that the page shows. A comment in the line before a block of
output names the command that prints it, if the page does not show the command, or says what the
block is instead.

The tutorial has a test of its own in `test_manuals`, which also compares its output.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from hrag.cli.processes import free_addresses
from tests.support.documents.pdfs import pdf_of
from tests.support.manuals import (
    ROOT,
    CommandBlock,
    OutputBlock,
    command_blocks,
    page_id,
    session_blocks,
)
from tests.support.shown_output import matches, unprinted

_PAGES = [
    ROOT / "README.md",
    *(
        page
        for folder in ("guide", "jobs", "operations")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
# The pages whose commands run as a session: all that have a block without a reason not to run.
_RUN = [page for page in _PAGES if any(not block.norun for block in command_blocks(page))]
_TUTORIAL = ROOT / "docs" / "tutorial.md"
_SHELL_FENCE = re.compile(r"^[ >]*(?:```|~~~) *(?:sh|bash|shell|console|zsh)\b", re.MULTILINE)
_SESSION_S = 240.0
# Names in the pages that stand for a value of the reader.
_PLACEHOLDERS = {
    "revoke ID ": "revoke $(.venv/bin/hrag keys list --json | jq -r '.[0].id') ",
    "tree DOCUMENT_ID ": "tree retries.md ",
    "page handbook.pdf --page 7 ": "page handbook.pdf --page 1 ",
    '"handbook.pdf#0.12"': '"handbook.pdf#0.0"',
}
_ADDRESSES = ("127.0.0.1:50051", "127.0.0.1:50052", "127.0.0.1:8080", "9461", "9462")
_SERVES = re.compile(r"hrag serve|hrag gateway|-m \w+_svc")
# A page may show services in the foreground; a session needs the shell for the next commands.
_FOREGROUND = re.compile(r"^(.*hrag (?:serve|gateway)\b[^#&\n]*?)( *(?:#.*)?)$", re.MULTILINE)
_STARTED = (
    # A reply with an error's status ends the session, too.
    'set -eo pipefail\ncurl() { command curl --fail-with-body "$@"; }\n'
    "stop() { kill $(jobs -p) 2>/dev/null || true; wait; }\ntrap stop EXIT\n"
)
# A page without a start of services finds them with these documents.
_SERVED = """.venv/bin/hrag serve --data-dir ./data --http 127.0.0.1:8080 &
until .venv/bin/hrag health >/dev/null; do sleep 0.2; done
hrag ingest docs/ handbook.pdf
hrag ingest docs/ --tenant acme
"""
# A busy machine may need longer to start a service than a command waits for it, and `curl` does
# not wait at all.
_SERVING = "until .venv/bin/hrag health >/dev/null; do sleep 0.2; done\n"
_LISTENING = "until curl -s -o reply http://127.0.0.1:8080/; do sleep 0.2; done\n"
_TEXTS = {
    "notes/retries.md": "# Retries\n\nWe decided to retry a failed call three times.\n",
    "docs/guide.md": "# Guide\n\nRotate every key once a month.\n",
    "docs/old.md": "# Old\n\nThe old way.\n",
    "handbook/people.md": "# People\n\nDogs bark. Holidays are thirty days.\n",
    "guide.md": "# Guide\n\nRotate every key once a month.\n",
    "docs/older.md": "# Older\n\nThe older way.\n",
    "logs/2026/a.log": "The call failed.\n",
    "page.html": "<html><body><h1>Page</h1><p>Dogs bark at night.</p></body></html>\n",
    "questions.csv": "question,quote\nHow often is a key rotated?,Rotate every key once a month.\n",
    "questions.jsonl": '{"qid": "1", "query": "How often is a call retried?", "gold": '
    '[{"quote": "We decided to retry a failed call three times."}]}\n',
}


@pytest.mark.parametrize("page", [*_PAGES, _TUTORIAL], ids=page_id)
def test_every_shell_block_of_a_page_is_read(page: Path) -> None:
    """A block in a form that is not recognised would neither run nor need a reason."""
    assert len(_SHELL_FENCE.findall(page.read_text("utf-8"))) == len(command_blocks(page))


@pytest.mark.parametrize("page", [*_PAGES, _TUTORIAL], ids=page_id)
def test_a_block_that_does_not_run_says_why(page: Path) -> None:
    """A comment that is not in the line before a block would be ignored."""
    reasons = [block.norun for block in command_blocks(page) if block.norun]
    assert len(reasons) == page.read_text("utf-8").count("<!-- norun")
    assert all(len(reason.split()) > 2 for reason in reasons)


@pytest.mark.parametrize("page", [page for page in _PAGES if page not in _RUN], ids=page_id)
def test_output_of_a_page_without_a_session_says_what_it_is(page: Path) -> None:
    assert [block.text for block in _outputs(page) if not block.not_printed] == []


@pytest.mark.parametrize("page", _PAGES, ids=page_id)
def test_every_comment_about_output_is_read(page: Path) -> None:
    """A comment that is not in the line before a block would be ignored."""
    text = page.read_text("utf-8")
    comments = text.count("<!-- printed by:") + text.count("<!-- not printed:")
    assert comments == sum(bool(block.command or block.not_printed) for block in _outputs(page))


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ({"a": 1, "b": ["x"]}, {"a": 1, "b": ["x"]}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": "..."}, {"a": {"b": 2}}, True),
        ({"score": 0.67}, {"score": 0.5}, True),
        ({"score": 0.67}, {"score": "high"}, False),
        ({"meta": {"timestamp": "2026-01-01"}}, {"meta": {"timestamp": "2027-02-02"}}, True),
    ],
)
def test_shown_output_may_differ_only_in_what_varies(
    shown: object, printed: object, is_same: bool
) -> None:
    assert matches(shown, printed) == is_same


def test_output_that_was_not_printed_is_found() -> None:
    text = OutputBlock("text", "first\nsecond\n", "", "")
    assert unprinted(text, "the first line") == ["second"]
    shown = OutputBlock("json", '{"a": 1}\n{"a": 2}\n', "", "")
    assert unprinted(shown, 'log {x} {"a": 2}{"b": 1}') == ['{"a": 1}']


@pytest.mark.parametrize("text", ["", "[1, 2]", "{broken: 1}", '{"a": 1}\n{"a": 2', '{"a": 1} …'])
def test_a_block_of_json_that_could_not_be_compared_is_refused(text: str) -> None:
    with pytest.raises(AssertionError, match="must be JSON objects"):
        unprinted(OutputBlock("json", text, "", ""), '{"a": 1}')


def _outputs(page: Path) -> list[OutputBlock]:
    return [block for block in session_blocks(page) if isinstance(block, OutputBlock)]


def _commands(block: CommandBlock | OutputBlock) -> str:
    """Returns the commands of a block. One that the page does not show may fail."""
    if isinstance(block, OutputBlock):
        return f"{block.command} || true\n" if block.command else ""
    return "" if block.norun else textwrap.dedent(block.text)


def _waiting(text: str) -> str:
    """Returns the commands with a wait after those that start services."""
    lines = text.splitlines(keepends=True)
    parts = []
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        parts.append(line)
        if _SERVES.search(line) and not _SERVES.search(next_line):
            parts += [_SERVING, _LISTENING if "8080" in line else ""]
    return "".join(parts)


def _script(page: Path, addresses: list[str]) -> str:
    blocks = [*filter(None, map(_commands, session_blocks(page)))]
    parts = [_STARTED]
    if not any(map(_SERVES.search, blocks)):
        parts.append(_SERVED)
    for text in blocks:
        if _SERVES.search(text):
            parts.append("stop\n")
        parts.append(_waiting(_FOREGROUND.sub(r"\1 &\2", text)))
    script = "".join(parts)
    for name, value in _PLACEHOLDERS.items():
        script = script.replace(name, value)
    for shown, used in zip(_ADDRESSES, addresses, strict=True):
        script = script.replace(shown, used if ":" in shown else used.rpartition(":")[2])
    return script


def _write_files(folder: Path) -> None:
    for name, text in _TEXTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("handbook.pdf", "report.pdf"):
        (folder / name).write_bytes(pdf_of(["Dogs bark. Holidays are thirty days."]))
    (folder / "notes.log").write_bytes("zażółć\n".encode("cp1250"))
    with zipfile.ZipFile(folder / "mails.zip", "w") as archive:
        archive.writestr("first.txt", "The first mail is about dogs.")


@pytest.mark.slow
@pytest.mark.timeout(2 * _SESSION_S)
@pytest.mark.parametrize("page", _RUN, ids=page_id)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    _write_files(tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    addresses = free_addresses(len(_ADDRESSES))
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        # A page of the command line reads an original.
        "HRAG_KEEP_ORIGINALS": "true",
        "HRAG_INDEXER_ADDRESS": addresses[0],
        "HRAG_RETRIEVER_ADDRESS": addresses[1],
        "NO_COLOR": "1",
    }
    with subprocess.Popen(
        ["bash", "-c", _script(page, addresses)],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    ) as session:
        try:
            output, _ = session.communicate(timeout=_SESSION_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(session.pid, signal.SIGKILL)
    assert session.returncode == 0, output
    for shown, used in zip(_ADDRESSES, addresses, strict=True):
        output = output.replace(used, shown)
    missing = [line for block in _outputs(page) for line in _unprinted(block, output)]
    assert missing == [], output


def _unprinted(block: OutputBlock, output: str) -> list[str]:
    return [] if block.not_printed else unprinted(block, output)
