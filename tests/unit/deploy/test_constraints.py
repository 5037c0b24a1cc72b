"""The version lists in constraints/ are complete and hashed; the list for run time has no tools."""

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
    """Returns the requirements of a list by name, each with the count of its hashes."""
    text = (FOLDER / f"{name}.txt").read_text("utf-8").replace("\\\n", " ")
    entries = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line.partition(" --hash")[0].strip())
            hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)
            entries[canonicalize_name(requirement.name)] = (requirement, len(hashes))
    return entries


@pytest.mark.parametrize("name", LISTS)
def test_every_version_is_exact_and_hashed_and_has_no_address(name: str) -> None:
    for requirement, hashes in _entries(name).values():
        assert [specifier.operator for specifier in requirement.specifier] == ["=="]
        assert requirement.url is None
        assert hashes >= 1
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    assert not re.search(r"://|index-url|find-links", text)


def _allows(entries: dict[str, tuple[Requirement, int]], requirement: Requirement) -> bool:
    """Returns True if the list has the package in a version that the requirement allows."""
    entry = entries.get(canonicalize_name(requirement.name))
    if entry is None:
        return False
    (exact,) = entry[0].specifier
    return requirement.specifier.contains(exact.version, prereleases=True)


@pytest.mark.parametrize("name", ["runtime", "development", "benchmarks"])
def test_every_requirement_of_hrag_is_listed_in_an_allowed_version(name: str) -> None:
    entries = _entries(name)
    extras = PROJECT["project"]["optional-dependencies"]
    extras_of_list = list(RUNTIME_EXTRAS)
    if name != "runtime":
        extras_of_list += ["dev"]
    if name == "benchmarks":
        extras_of_list += ["bench"]
    needed = [
        *PROJECT["project"]["dependencies"],
        *(requirement for extra in extras_of_list for requirement in extras[extra]),
    ]
    external = [Requirement(text) for text in needed if not text.startswith("hrag[")]
    assert [requirement.name for requirement in external if not _allows(entries, requirement)] == []


def test_a_release_has_wheels_for_the_versions_of_python_that_are_tested() -> None:
    assert VERSIONS_OF_PYTHON[0] == PROJECT["project"]["requires-python"].removeprefix(">=")
    built = re.findall(r"cp3(\d+)-", PROJECT["tool"]["cibuildwheel"]["build"])
    assert [f"3.{minor}" for minor in built] == VERSIONS_OF_PYTHON


@pytest.mark.parametrize("python", VERSIONS_OF_PYTHON)
@pytest.mark.parametrize("name", ["runtime", "development"])
def test_the_requirements_of_listed_packages_are_listed_too(name: str, python: str) -> None:
    """The requirements come from the metadata of the packages that are installed here."""
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
            assert requirement.marker is not None  # The package is only for other systems.
            continue
        applicable = [r for r in needed if r.marker is None or r.marker.evaluate(environment)]
        missing += [f"{listed}: {r}" for r in applicable if not _allows(entries, r)]
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


def test_the_packages_that_compile_hrag_are_listed() -> None:
    entries = _entries("build")
    needed = map(Requirement, PROJECT["build-system"]["requires"])
    assert [requirement.name for requirement in needed if not _allows(entries, requirement)] == []
