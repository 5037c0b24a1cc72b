"""The manuals say what is true of this tree: paths, links, settings, commands and examples."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hrag.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
MOST_BYTES = 8 * 1024  # A map to be read in ten minutes.

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SETTING = re.compile(r"\b(?:HRAG|HIERARCHICAL|SMALL_TO_BIG|OPENAI)_[A-Z_]*[A-Z]\b")
_LOGGED = re.compile(r"_log\.(?:warning|error|exception)\(\s*\"(\w+)\"")
_EVENT_TABLE = re.compile(r"^\| event \|.*?\n\n", re.MULTILINE | re.DOTALL)
_NAMING = ("--tag", "--name")  # What follows names an image or a container.
_PATH_END = (".py", ".pyx", ".proto", ".yml", ".yaml", ".md")


def _documents() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
    return sorted(page for page in pages if "node_modules" not in page.parts)


DOCUMENTS = _documents()
MANUALS = [page for page in DOCUMENTS if page.name != "CHANGELOG.md"]


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(page: Path, *languages: str) -> list[str]:
    found = _FENCE.findall(page.read_text("utf-8"))
    return [block for language, block in found if language in languages]


def test_the_map_is_short() -> None:
    assert ARCHITECTURE.stat().st_size <= MOST_BYTES


def _named_paths(line: str) -> Iterator[Path]:
    """The paths of a line; a bare file name lies in a folder that the same line names."""
    names = [name for name in _CODE.findall(line) if "/" in name or name.endswith(_PATH_END)]
    folders = [ROOT, *(ROOT / name for name in names if name.endswith("/"))]
    folders += [(ROOT / name).parent for name in names if "/" in name]
    for name in names:
        yield next((folder / name for folder in folders if (folder / name).exists()), ROOT / name)


def test_every_path_on_the_map_exists() -> None:
    lines = _FENCE.sub("", ARCHITECTURE.read_text("utf-8")).splitlines()
    paths = [path for line in lines for path in _named_paths(line)]
    assert len(paths) > len(lines) / 4, "the map names hardly a path: is the pattern right?"
    assert [str(path) for path in paths if not path.exists()] == []


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and GitLab make them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text("utf-8")))
    lowered = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in lowered}


@pytest.mark.parametrize("page", DOCUMENTS, ids=_id)
def test_links_inside_the_repository_resolve(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(link)
    assert broken == []


@cache
def _known_settings() -> set[str]:
    sources = [ROOT / ".env.example", ROOT / "docker-compose.yml"]
    for folder in ("hrag", "benchmarks", "deploy"):
        sources += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yml")]
    return {name for path in sources for name in _SETTING.findall(path.read_text("utf-8"))}


@pytest.mark.parametrize("page", MANUALS, ids=_id)
def test_settings_in_the_manuals_exist(page: Path) -> None:
    named = set(_SETTING.findall(page.read_text("utf-8")))
    assert named - _known_settings() == set()


def test_log_events_that_need_attention_are_listed() -> None:
    sources = [
        path.read_text("utf-8")
        for package in ("hrag", "indexer_svc", "retriever_svc")
        for path in (ROOT / package).rglob("*.py")
    ]
    table = _EVENT_TABLE.search((ROOT / "docs/operations/monitoring.md").read_text("utf-8"))
    assert table is not None
    rows = [line.split("|")[1] for line in table[0].strip().splitlines()]
    listed = {event for row in rows for event in _CODE.findall(row)}
    assert {event for source in sources for event in _LOGGED.findall(source)} - listed == set()
    assert [event for event in listed if not any(f'"{event}"' in each for each in sources)] == []


def _hrag_calls(page: Path) -> Iterator[list[str]]:
    """The words behind `hrag` of every call in a page's shell examples."""
    for block in _blocks(page, "sh", "console"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            words = [word.rstrip(")") for word in words if word != "&"]
            ours = [at for at, word in enumerate(words) if re.search(r"(^|/|\()hrag$", word)]
            ours = [at for at in ours if not at or words[at - 1] not in _NAMING]
            if ours and len(words) > ours[-1] + 1:
                yield words[ours[-1] + 1 :]


def _options(words: list[str]) -> set[str]:
    """Those of the command that the first words name; KeyError where there is none."""
    command: Any = typer.main.get_command(app)
    for word in words:
        if not hasattr(command, "commands"):
            break
        command = command.commands[word]
    return {option for each in command.params for option in each.opts}


@pytest.mark.parametrize("page", MANUALS, ids=_id)
def test_commands_and_options_in_shell_examples_exist(page: Path) -> None:
    for words in _hrag_calls(page):
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= _options(words), f"hrag {' '.join(words)}"


def _imported(block: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hrag"):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("page", MANUALS, ids=_id)
def test_python_examples_parse_and_import_what_exists(page: Path) -> None:
    for block in _blocks(page, "python"):
        for module, name in _imported(block):
            assert hasattr(import_module(module), name), f"{module}.{name}"
