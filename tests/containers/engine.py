"""The container engine of this machine: Docker's where one runs, else podman.

Where neither can be used, tests fail and say what to run; they never pass unseen.
"""

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

ROOT = Path(__file__).resolve().parent.parent.parent
OWN = ROOT / ".containers"
PROJECT = "hrag-test"
IMAGE = "hrag"
_COMMAND_S = 600.0  # The first build installs everything.
_POLL_S = 0.2
_PREPARE = "run tests/containers/prepare as root on Debian (`make test-containers` does)"


@dataclass(frozen=True)
class Engine:
    """Its commands: one for containers, one for what docker-compose.yml describes."""

    container: tuple[str, ...]
    compose: tuple[str, ...]
    env: dict[str, str]

    def run(self, *arguments: str) -> CompletedProcess[str]:
        """As `docker run` with these arguments; see `_run`."""
        return _run([*self.container, *arguments], self.env)

    def up(self) -> None:
        """Builds the image and starts all services."""
        # podman's own format has no health checks.
        built = self.run("build", *self._build_options, "--tag", IMAGE, str(ROOT))
        assert built.returncode == 0, built.stderr
        done = self._compose("up", "--detach")
        assert done.returncode == 0, done.stderr

    def down(self, *options: str) -> None:
        done = self._compose("down", *options)
        assert done.returncode == 0, done.stderr

    def inside(self, service: str, *command: str) -> CompletedProcess[str]:
        """Runs a command in a service's container."""
        return self._compose("exec", "-T", service, *command)

    def beside(self, service: str, folder: Path, *command: str) -> CompletedProcess[str]:
        """Runs a command in another container of a service, which has `folder` at /files."""
        mount = ("--volume", f"{folder}:/files:ro")
        return self._compose("run", "--rm", *mount, service, *command)

    def logs(self) -> str:
        done = self._compose("logs")
        return done.stdout + done.stderr

    @property
    def _build_options(self) -> tuple[str, ...]:
        return ("--format", "docker") if self.container == ("podman",) else ()

    def _compose(self, *arguments: str) -> CompletedProcess[str]:
        return _run([*self.compose, "--project-name", PROJECT, *arguments], self.env)


def found(settings: dict[str, str]) -> Engine:
    """The engine to use, its compose file filled in from `settings`; AssertionError if none."""
    env = {**os.environ, **settings}
    if _works(["docker", "info"], env):
        return Engine(("docker",), ("docker", "compose"), env)
    compose = OWN / "venv" / "bin" / "podman-compose"
    env["CONTAINERS_CONF"] = str(OWN / "containers.conf")
    env["CONTAINERS_STORAGE_CONF"] = str(OWN / "storage.conf")
    assert compose.exists(), f"no Docker engine runs here, and podman is not set up: {_PREPARE}"
    assert _works(["podman", "info"], env), f"podman does not work here: {_PREPARE}"
    files = ("-f", "docker-compose.yml", "-f", "deploy/podman.yml")
    return Engine(("podman",), (str(compose), *files), env)


def eventually(true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Waits until `true`; fails with `what` otherwise."""
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, f"after {timeout_s:.0f} s still not: {what}"
        time.sleep(_POLL_S)


def _works(command: list[str], env: dict[str, str]) -> bool:
    try:
        return _run(command, env).returncode == 0
    except FileNotFoundError:
        return False


def _run(command: list[str], env: dict[str, str]) -> CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
        check=False,
    )
