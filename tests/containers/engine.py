"""The container engine of this machine: Docker's where one runs, else podman.

If neither works, the tests fail with instructions; they are never skipped.
"""

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess

ROOT = Path(__file__).resolve().parent.parent.parent
OWN = ROOT / ".containers"
PROJECT = "hrag-test"
IMAGE = "hrag"
COMPOSE_FILE = "docker-compose.yml"
_COMMAND_S = 600.0  # The first build installs everything.
_POLL_S = 0.2
_PREPARE = "run tests/containers/prepare as root on Debian (`make test-containers` does)"


@dataclass(frozen=True)
class Engine:
    """The commands of an engine: one for containers, one for compose files."""

    container: tuple[str, ...]
    compose: tuple[str, ...]
    files: tuple[str, ...]
    env: dict[str, str]

    def also(self, *files: str, **settings: str) -> "Engine":
        """Returns the engine with further compose files and settings."""
        return replace(self, files=self.files + files, env=self.env | settings)

    def run(self, *arguments: str) -> CompletedProcess[str]:
        """Runs `docker run` with these arguments; see `_run`."""
        return _run([*self.container, *arguments], self.env)

    def build(self, folder: Path = ROOT, image: str = IMAGE) -> None:
        """Builds an image from the Dockerfile in `folder`."""
        # podman's own format has no health checks.
        done = self.run("build", *self._build_options, "--tag", image, str(folder))
        assert done.returncode == 0, done.stderr

    def up(self, *services: str) -> None:
        """Starts the named services, or all without a profile."""
        done = self._compose("up", "--detach", *services)
        assert done.returncode == 0, done.stderr

    def down(self, *options: str) -> None:
        """Removes the containers, those of the profiles included."""
        done = self._compose("--profile", "monitoring", "--profile", "http", "down", *options)
        assert done.returncode == 0, done.stderr

    def kill(self, service: str) -> None:
        done = self._compose("kill", service)
        assert done.returncode == 0, done.stderr

    def stop(self, service: str) -> None:
        done = self._compose("stop", service)
        assert done.returncode == 0, done.stderr

    def inside(self, service: str, *command: str, token: str = "") -> CompletedProcess[str]:
        """Runs a command in a service's container."""
        return self._compose("exec", "-T", "-e", f"HRAG_TOKEN={token}", service, *command)

    def beside(
        self, service: str, folder: Path, *command: str, token: str
    ) -> CompletedProcess[str]:
        """Runs a command in another container of a service, which has `folder` at /files."""
        options = ("--volume", f"{folder}:/files:ro", "-e", f"HRAG_TOKEN={token}")
        return self._compose("run", "--rm", "-T", *options, service, *command)

    def keys(self, *arguments: str) -> CompletedProcess[str]:
        """Runs `docker compose run --rm -T keys`; podman-compose needs the profile."""
        return self._compose("--profile", "keys", "run", "--rm", "-T", "keys", *arguments)

    def logs(self) -> str:
        done = self._compose("logs")
        return done.stdout + done.stderr

    @property
    def _build_options(self) -> tuple[str, ...]:
        if self.container != ("podman",):
            return ()
        # The base image was made here, so it has the tag but not the digest.
        return ("--format", "docker", "--build-arg", f"BASE={_base_image()}")

    def _compose(self, *arguments: str) -> CompletedProcess[str]:
        files = [each for file in self.files for each in ("-f", file)]
        return _run([*self.compose, *files, "--project-name", PROJECT, *arguments], self.env)


def _base_image() -> str:
    """Returns the name and tag of the Dockerfile's base image."""
    (line,) = (
        line
        for line in (ROOT / "Dockerfile").read_text("utf-8").splitlines()
        if line.startswith("ARG BASE=")
    )
    return line.removeprefix("ARG BASE=").partition("@")[0]


def found(settings: dict[str, str]) -> Engine:
    """Returns the engine of this machine, with `settings`; raises AssertionError if none works."""
    env = {**os.environ, **settings}
    if _works(["docker", "info"], env):
        return Engine(("docker",), ("docker", "compose"), (COMPOSE_FILE,), env)
    compose = OWN / "venv" / "bin" / "podman-compose"
    env["CONTAINERS_CONF"] = str(OWN / "containers.conf")
    env["CONTAINERS_STORAGE_CONF"] = str(OWN / "storage.conf")
    assert compose.exists(), f"no Docker engine runs here, and podman is not set up: {_PREPARE}"
    assert _works(["podman", "info"], env), f"podman does not work here: {_PREPARE}"
    return Engine(("podman",), (str(compose),), (COMPOSE_FILE, "deploy/podman.yml"), env)


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
