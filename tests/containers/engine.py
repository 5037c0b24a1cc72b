"""The container engine of this machine: Docker if its daemon runs, otherwise podman.

If neither works, the tests fail with instructions. They are never skipped.
"""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess

from tests.support.until import until

ROOT = Path(__file__).resolve().parent.parent.parent
# tests/containers/prepare installs the tools of the tests and the files of podman here.
ENGINE_FOLDER = ROOT / ".containers"
PROJECT = "hrag-test"
IMAGE = "hrag"
COMPOSE_FILE = "docker-compose.yml"
# The first build of the image installs all packages, so a command may last ten minutes.
_COMMAND_S = 600.0
_HOW_TO_PREPARE = "run tests/containers/prepare as root on Debian (`make test-containers` does)"


@dataclass(frozen=True)
class Engine:
    """A container engine: its commands for containers and for compose, and the compose files."""

    container: tuple[str, ...]
    compose: tuple[str, ...]
    files: tuple[str, ...]
    env: dict[str, str]

    def extended(self, *files: str, **settings: str) -> "Engine":
        """Returns a copy of the engine that uses further compose files and settings."""
        return replace(self, files=self.files + files, env=self.env | settings)

    def run(self, *arguments: str) -> CompletedProcess[str]:
        """Runs a command of the engine, for example `run`, with its arguments."""
        return _run([*self.container, *arguments], self.env)

    def build(self, folder: Path = ROOT, image: str = IMAGE) -> None:
        """Builds an image from the Dockerfile in `folder`."""
        # The native image format of podman has no health checks, so it builds Docker's format.
        done = self.run("build", *self._build_options, "--tag", image, str(folder))
        assert done.returncode == 0, done.stderr

    def up(self, *services: str) -> None:
        """Starts the named services. Without names, starts all services that have no profile."""
        done = self._compose("up", "--detach", *services)
        assert done.returncode == 0, done.stderr

    def down(self, *options: str) -> None:
        """Stops and removes all containers, also those of services with a profile."""
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

    def run_with_files(
        self, service: str, folder: Path, *command: str, token: str
    ) -> CompletedProcess[str]:
        """Runs a command in a new container of a service, with `folder` at /files."""
        options = ("--volume", f"{folder}:/files:ro", "-e", f"HRAG_TOKEN={token}")
        return self._compose("run", "--rm", "-T", *options, service, *command)

    def keys(self, *arguments: str) -> CompletedProcess[str]:
        """Runs `docker compose run --rm -T keys`. podman-compose also needs the profile."""
        return self._compose("--profile", "keys", "run", "--rm", "-T", "keys", *arguments)

    def logs(self) -> str:
        done = self._compose("logs")
        return done.stdout + done.stderr

    @property
    def _build_options(self) -> tuple[str, ...]:
        if self.container != ("podman",):
            return ()
        # tests/containers/prepare may have built the base image. That image has the tag that the
        # Dockerfile names, but another digest.
        return ("--format", "docker", "--build-arg", f"BASE={_base_image()}")

    def _compose(self, *arguments: str) -> CompletedProcess[str]:
        files = [argument for file in self.files for argument in ("-f", file)]
        return _run([*self.compose, *files, "--project-name", PROJECT, *arguments], self.env)


def _base_image() -> str:
    """Returns the name and tag of the Dockerfile's base image, without its digest."""
    (line,) = (
        line
        for line in (ROOT / "Dockerfile").read_text("utf-8").splitlines()
        if line.startswith("ARG BASE=")
    )
    return line.removeprefix("ARG BASE=").partition("@")[0]


def find_engine(settings: dict[str, str]) -> Engine:
    """Returns the engine of this machine, with `settings`. Raises AssertionError if none works."""
    env = {**os.environ, **settings}
    if _works(["docker", "info"], env):
        return Engine(("docker",), ("docker", "compose"), (COMPOSE_FILE,), env)
    compose = ENGINE_FOLDER / "venv" / "bin" / "podman-compose"
    env["CONTAINERS_CONF"] = str(ENGINE_FOLDER / "containers.conf")
    env["CONTAINERS_STORAGE_CONF"] = str(ENGINE_FOLDER / "storage.conf")
    assert compose.exists(), (
        f"no Docker engine runs here, and podman is not set up: {_HOW_TO_PREPARE}"
    )
    assert _works(["podman", "info"], env), f"podman does not work here: {_HOW_TO_PREPARE}"
    return Engine(("podman",), (str(compose),), (COMPOSE_FILE, "deploy/podman.yml"), env)


def eventually(condition: Callable[[], object], description: str, timeout_s: float = 60.0) -> None:
    """Waits until the condition is true. After `timeout_s`, fails with the description."""
    until(condition, timeout_s, description)


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
