"""The lists of versions: complete, hashed, without addresses, and apart for run time and tools."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "constraints"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RUNTIME_EXTRAS = ("server", "formats", "gateway", "mcp", "otel", "postgres")
LISTS = ("runtime", "development", "benchmarks", "build", "docs", "tools")
CLASSIFIERS = "\n".join(PROJECT["project"]["classifiers"])
VERSIONS_OF_PYTHON = re.findall(r"Python :: (3\.\d+)", CLASSIFIERS)
TOOLS = ("pytest", "ruff", "mypy", "hypothesis", "buf-bin", "grpcio-tools", "matplotlib", "pip")


def _entries(name: str) -> dict[str, tuple[Requirement, int]]:
    """The requirements of a list by name, each with the number of its hashes."""
    text = (FOLDER / f"{name}.txt").read_text("utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line.partition(" --hash")[0].strip())
            hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)
            found[canonicalize_name(requirement.name)] = (requirement, len(hashes))
    return found


@pytest.mark.parametrize("name", LISTS)
def test_every_version_is_exact_and_hashed_and_has_no_address(name: str) -> None:
    for requirement, hashes in _entries(name).values():
        assert [each.operator for each in requirement.specifier] == ["=="]
        assert requirement.url is None
        assert hashes >= 1
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    assert not re.search(r"://|index-url|find-links", text)


def _allows(entries: dict[str, tuple[Requirement, int]], requirement: Requirement) -> bool:
    found = entries.get(canonicalize_name(requirement.name))
    if found is None:
        return False
    (exact,) = found[0].specifier
    return requirement.specifier.contains(exact.version, prereleases=True)


@pytest.mark.parametrize("name", ["runtime", "development", "benchmarks"])
def test_whatever_hrag_requires_is_listed_in_an_allowed_version(name: str) -> None:
    entries = _entries(name)
    extras = PROJECT["project"]["optional-dependencies"]
    chosen = list(RUNTIME_EXTRAS)
    if name != "runtime":
        chosen += ["dev"]
    if name == "benchmarks":
        chosen += ["bench"]
    needed = [
        *PROJECT["project"]["dependencies"],
        *(each for extra in chosen for each in extras[extra]),
    ]
    ours = [Requirement(each) for each in needed if not each.startswith("hrag[")]
    assert [each.name for each in ours if not _allows(entries, each)] == []


def test_a_release_has_wheels_for_the_versions_of_python_that_are_tested() -> None:
    assert VERSIONS_OF_PYTHON[0] == PROJECT["project"]["requires-python"].removeprefix(">=")
    built = re.findall(r"cp3(\d+)-", PROJECT["tool"]["cibuildwheel"]["build"])
    assert [f"3.{minor}" for minor in built] == VERSIONS_OF_PYTHON


@pytest.mark.parametrize("python", VERSIONS_OF_PYTHON)
@pytest.mark.parametrize("name", ["runtime", "development"])
def test_whatever_the_listed_require_is_listed_too(name: str, python: str) -> None:
    """By the metadata of what is installed here."""
    entries = _entries(name)
    environment = default_environment() | {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "extra": "",
    }
    missing = []
    for listed, (requirement, _) in entries.items():
        try:
            needed = map(Requirement, requires(listed) or ())
        except PackageNotFoundError:
            assert requirement.marker is not None  # Only for other systems.
            continue
        applies = [e for e in needed if e.marker is None or e.marker.evaluate(environment)]
        missing += [f"{listed}: {each}" for each in applies if not _allows(entries, each)]
    assert missing == []


def test_run_time_has_no_tools_of_development() -> None:
    runtime = _entries("runtime")
    assert runtime.keys() & set(TOOLS) == set()
    assert not any(name.startswith(("types-", "pytest-")) for name in runtime)


def test_the_lists_agree_on_versions() -> None:
    everything = _entries("benchmarks")
    for name in ("runtime", "development", "build"):
        for listed, (requirement, _) in _entries(name).items():
            if listed in everything:
                assert requirement.specifier == everything[listed][0].specifier, (name, listed)
    assert _entries("runtime").keys() <= _entries("development").keys() <= everything.keys()


def test_what_compiles_hrag_is_listed() -> None:
    entries = _entries("build")
    needed = map(Requirement, PROJECT["build-system"]["requires"])
    assert [each.name for each in needed if not _allows(entries, each)] == []
