"""The programs in the manuals run unchanged, and the tutorial prints the output that it shows.

The programs find a connected `client`, and documents of the tenant `acme`.
"""

import ast
import asyncio
import inspect
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hrag.cli.processes import free_addresses
from hrag.client import AsyncClient, Client
from hrag.client.calls import TIMEOUT_S
from hrag.client.targets import INDEXER_ADDRESS, RETRIEVER_ADDRESS
from hrag.types import Document
from tests.support.manuals import MANUALS, ROOT, blocks, page_id
from tests.support.servers.processes import Running
from tests.support.servers.stores import check_store

TUTORIAL = ROOT / "docs" / "tutorial.md"
TENANT = "acme"
# Modules of this package need optional packages. A program is skipped if its packages are missing.
_INTEGRATIONS = "hrag.integrations."
_TUTORIAL_S = 300.0
# The test leaves out these commands of the tutorial: tests run in an environment that is set up.
_NOT_RUN = ("make setup",)
_DOCUMENTS = (
    Document("We decided to retry a failed call three times.", "retries", "Retries"),
    Document("Dogs bark at night. Clean the filter every three months.", "dogs", "Dogs"),
)
_PROGRAMS = [
    pytest.param(block.text, id=f"{page_id(page)}-{number}")
    for page in MANUALS
    for number, block in enumerate(blocks(page, "python"), 1)
]


@pytest.fixture
def connected(answering: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of the services. Clients that programs create without addresses use them, too."""
    defaults = (answering.indexer.address, answering.retriever.address, TIMEOUT_S)
    for client_class in (Client, AsyncClient):
        monkeypatch.setattr(client_class.__init__, "__defaults__", defaults)
    with Client() as client:
        for document in _DOCUMENTS:
            client.ingest(TENANT, document)
        yield client
        for collection in client.list_collections(TENANT).items:
            client.delete_collection(TENANT, collection.name)


@pytest.fixture(autouse=True)
def _no_paid_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces every model that a program names by one that calls each tool once."""
    models = pytest.importorskip("pydantic_ai.models")
    test = pytest.importorskip("pydantic_ai.models.test")
    monkeypatch.setattr(models, "infer_model", lambda *_: test.TestModel())


@pytest.fixture(autouse=True)
def _event_loop() -> Iterator[None]:
    """Provides an event loop, because a library would create a loop and never close it."""
    with asyncio.Runner() as runner:
        runner.get_loop()
        yield


def _imported(program: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(program, mode="exec")):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("program", _PROGRAMS)
def test_programs_in_the_manuals_run(
    program: str,
    answering: Running,
    connected: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in _imported(program):
        if not module.startswith("hrag.") or module.startswith(_INTEGRATIONS):
            pytest.importorskip(module, exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    runnable = program.replace(INDEXER_ADDRESS, answering.indexer.address)
    runnable = runnable.replace(RETRIEVER_ADDRESS, answering.retriever.address)
    code = compile(runnable, "manual", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, {"client": connected, "__name__": "__main__"})
    if inspect.iscoroutine(running):
        asyncio.run(running)


def _script() -> str:
    """Returns the tutorial as a shell script."""
    parts = ["set -e"]
    for block in blocks(TUTORIAL, "sh", "python"):
        if block.language == "python":
            parts.append(f".venv/bin/python -c {shlex.quote(block.text)}")
        elif block.text.strip() not in _NOT_RUN:
            parts.append(block.text)
    return "\n".join([*parts, "wait"])


@pytest.mark.slow
@pytest.mark.timeout(2 * _TUTORIAL_S)
def test_the_tutorial_prints_the_output_that_it_shows(tmp_path: Path) -> None:
    indexer, retriever = free_addresses(2)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    addresses = {"HRAG_INDEXER_ADDRESS": indexer, "HRAG_RETRIEVER_ADDRESS": retriever}
    with subprocess.Popen(
        ["bash", "-c", _script()],
        cwd=tmp_path,
        env={**os.environ, **addresses, "COLUMNS": "300", "NO_COLOR": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as script:
        try:
            output, errors = script.communicate(timeout=_TUTORIAL_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGKILL)
    assert script.returncode == 0, errors
    printed = output.replace(indexer, INDEXER_ADDRESS).replace(retriever, RETRIEVER_ADDRESS)
    shown = "".join(block.text for block in blocks(TUTORIAL, "text")).splitlines()
    assert [line for line in shown if line not in printed] == []
    check_store(tmp_path / "data")
