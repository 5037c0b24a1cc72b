"""What the documents name exists in this repository: paths, links, settings and commands."""

import re
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from hrag.cli.app import app
from hrag.cli.option_values import parse_filters
from tests.support.manuals import DOCUMENTS, FENCE, MANUALS, ROOT, blocks, page_id

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
# These pages may have at most so many bytes. ARCHITECTURE.md must be read in ten minutes, and
# CHANGELOG.md must say only what users get.
MAX_BYTES = {"ARCHITECTURE.md": 14_000, "CHANGELOG.md": 10_000}

_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_MODULE_ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SETTING = re.compile(r"\b(?:HRAG|HIERARCHICAL|SMALL_TO_BIG|OPENAI)_[A-Z_]*[A-Z]\b")
_LOG_CALL = re.compile(r"_log\.(?:warning|error|exception)\(\s*\"(\w+)\"")
_EVENT_TABLE = re.compile(r"^\| event \|.*?\n\n", re.MULTILINE | re.DOTALL)
_CONFLICT = re.compile(r"^(?:<{7}|={7}$|>{7})", re.MULTILINE)
# A shell separates commands by words of these characters.
_OPERATORS = set("$();<>|&")
# The word after one of these options is the name of an image or a container, not a command.
_OPTIONS_BEFORE_NAMES = ("--tag", "--name")
_PATH_END = (".py", ".pyx", ".proto", ".yml", ".yaml", ".md")


@pytest.mark.parametrize(("name", "max_bytes"), MAX_BYTES.items())
def test_a_page_is_not_too_long(name: str, max_bytes: int) -> None:
    assert (ROOT / name).stat().st_size <= max_bytes


def _named_paths(line: str) -> Iterator[Path]:
    """Yields the paths that a line of text names.

    A file name without a folder is looked up in the folders that the same line names.
    """
    names = [name for name in _CODE.findall(line) if "/" in name or name.endswith(_PATH_END)]
    folders = [ROOT, *(ROOT / name for name in names if name.endswith("/"))]
    folders += [(ROOT / name).parent for name in names if "/" in name]
    for name in names:
        yield next((folder / name for folder in folders if (folder / name).exists()), ROOT / name)


def test_every_path_in_the_architecture_document_exists() -> None:
    lines = FENCE.sub("", ARCHITECTURE.read_text("utf-8")).splitlines()
    paths = [path for line in lines for path in _named_paths(line)]
    assert len(paths) > len(lines) / 4, (
        "ARCHITECTURE.md names few paths: is the pattern _CODE right?"
    )
    assert [str(path) for path in paths if not path.exists()] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=page_id)
def test_a_page_has_no_conflict_marker_and_no_repeated_row(page: Path) -> None:
    text = page.read_text("utf-8")
    assert _CONFLICT.search(text) is None
    rows = [line for line in text.splitlines() if line.startswith(("| `", "- **"))]
    assert [row for row in set(rows) if rows.count(row) > 1] == []


def _anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and GitLab compute them."""
    headings = _HEADING.findall(FENCE.sub("", page.read_text("utf-8")))
    lowered = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in lowered}


@pytest.mark.parametrize("page", DOCUMENTS, ids=page_id)
def test_links_inside_the_repository_resolve(page: Path) -> None:
    broken = []
    for link in _LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(link)
    assert broken == []


def test_the_index_of_test_helpers_lists_every_module() -> None:
    """`tests/support/README.md` has one row for each module, in the section of its folder."""
    support = ROOT / "tests" / "support"
    sections = (support / "README.md").read_text("utf-8").split("\n## ")
    rows = {_section_folder(section): set(_MODULE_ROW.findall(section)) for section in sections[1:]}
    modules: dict[str, set[str]] = defaultdict(set)
    for path in support.rglob("*.py"):
        if path.stem != "__init__":
            modules[str(path.parent.relative_to(support))].add(path.stem)
    assert rows == modules


def _section_folder(section: str) -> str:
    """Returns the folder that a section's heading names, `.` if it names none."""
    names = _CODE.findall(section.splitlines()[0])
    return names[0].rstrip("/") if names else "."


@cache
def _known_settings() -> set[str]:
    sources = [ROOT / ".env.example", ROOT / "docker-compose.yml", ROOT / "setup.py"]
    sources.append(ROOT / "tests" / "conftest.py")
    # The examples read some variables that hrag does not know.
    sources += (ROOT / "docs" / "examples").glob("*/*.mjs")
    for folder in ("hrag", "benchmarks", "deploy"):
        sources += [
            path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yml", ".cfg")
        ]
    return {name for path in sources for name in _SETTING.findall(path.read_text("utf-8"))}


@pytest.mark.parametrize("page", MANUALS, ids=page_id)
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
    assert {event for source in sources for event in _LOG_CALL.findall(source)} - listed == set()
    assert [
        event for event in listed if not any(f'"{event}"' in source for source in sources)
    ] == []


def _commands(line: str) -> Iterator[list[str]]:
    """Yields the words of each command in a line of shell code."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    for is_operator, command in groupby(words, lambda word: set(word) <= _OPERATORS):
        if not is_operator:
            yield list(command)


def _hrag_calls(page: Path) -> Iterator[list[str]]:
    """Yields the arguments of each call of `hrag` in a page's shell examples."""
    for block in blocks(page, "sh", "console"):
        lines = block.text.replace("\\\n", " ").splitlines()
        for words in (words for line in lines if "hrag" in line for words in _commands(line)):
            indices = [at for at, word in enumerate(words) if re.search(r"(^|/)hrag$", word)]
            indices = [at for at in indices if not at or words[at - 1] not in _OPTIONS_BEFORE_NAMES]
            if indices and len(words) > indices[-1] + 1:
                yield words[indices[-1] + 1 :]


def _options(words: list[str]) -> set[str]:
    """Returns the options of the command of `hrag` that the first words name.

    Raises KeyError if `hrag` has no such command.
    """
    command: Any = typer.main.get_command(app)
    for word in words:
        if not hasattr(command, "commands"):
            break
        command = command.commands[word]
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("page", MANUALS, ids=page_id)
def test_commands_and_options_in_shell_examples_exist(page: Path) -> None:
    for words in _hrag_calls(page):
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= _options(words), f"hrag {' '.join(words)}"


def test_conditions_in_the_guide_to_filters_parse() -> None:
    page = (ROOT / "docs/guide/filters.md").read_text("utf-8")
    table = page.partition("| condition |")[2].partition("\n\n")[0]
    conditions = [code for row in table.splitlines() for code in _CODE.findall(row.split("|")[1])]
    assert len(conditions) > 10
    assert parse_filters([code for code in conditions if code]) is not None


@pytest.mark.parametrize("page", MANUALS, ids=page_id)
def test_shell_examples_parse(page: Path) -> None:
    script = "\n".join(block.text for block in blocks(page, "sh"))
    parsed = subprocess.run(
        ["bash", "-n"], input=script, text=True, capture_output=True, check=False
    )
    assert parsed.stderr == ""


def _make_targets() -> set[str]:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    return set(targets)


@pytest.mark.parametrize("page", MANUALS, ids=page_id)
def test_make_targets_in_the_manuals_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    named = re.findall(r"^make ([a-z-]+)", text, re.MULTILINE) + re.findall(
        r"`make ([a-z-]+)", text
    )
    assert set(named) - _make_targets() == set()


def _pages_of(navigation: Any) -> Iterator[str]:
    """Yields the pages that the site's navigation names, from all of its nested lists."""
    if isinstance(navigation, str):
        yield navigation
    else:
        inner = navigation.values() if isinstance(navigation, dict) else navigation
        for entry in inner:
            yield from _pages_of(entry)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """A reader of the site can reach every page.

    `make docs` reports the opposite error: an entry of the navigation without a page.
    """
    (navigation,) = re.findall(r"^nav:.*", (ROOT / "mkdocs.yml").read_text("utf-8"), re.S | re.M)
    named = set(_pages_of(yaml.safe_load(navigation)))
    pages = {
        str(page.relative_to(ROOT / "docs")) for page in DOCUMENTS if ROOT / "docs" in page.parents
    }
    assert pages - named == set()


def test_no_page_no_example_and_no_message_installs_hrag_from_a_registry() -> None:
    """hrag is in no registry, so pip would install nothing, or the package of a stranger."""
    folders = ("hrag", "indexer_svc", "retriever_svc", "docs/examples")
    sources = [
        path
        for folder in folders
        for suffix in ("py", "ipynb")
        for path in ROOT.glob(f"{folder}/**/*.{suffix}")
    ]
    bare = re.compile(r"pip install [\"'`]*hrag\b")
    found = [page_id(path) for path in [*MANUALS, *sources] if bare.search(path.read_text("utf-8"))]
    assert found == []
