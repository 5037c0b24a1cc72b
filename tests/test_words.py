"""The vocabulary and the shape of the code: one word for one idea, small parts.

hrag uses the words of Lucene, RocksDB and PostgreSQL. Names that were replaced by them must
not come back, in code, settings, metrics or documents.
"""

import ast
import io
import re
import statistics
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("hrag", "hrag_fast", "indexer_svc", "retriever_svc", "benchmarks", "docs", "tests")

# Replaced names that mean nothing else: they may stand nowhere.
REPLACED = (
    # Deleted documents and the merging of segments.
    *("_rebury", "bury", "graves", "dead_leaves", "dead_ordinals", "is_spoilt"),
    *("go_on_from", "Upkeep", "Sealer", "Sweeper", "crashpoints"),
    # The store and its collections.
    *("OpenCollection", "settings_beside", "wait_for_room", "require_room"),
    # The steps of a search.
    *("rows_that_pass", "_Taken", "Climbed"),
    # Services and models.
    *("_Gathering", "HOLD_S", "CallThreads", "AtOnce", "_Parcel"),
    # Figures, metrics, settings.
    *("to_bare", "hrag_reader_unloads_total", "hrag_seal_seconds"),
    *("hrag_quota_waits_total", "HRAG_SEAL_LEAVES"),
)

# Replaced names that are English words too: prose may use them, Python names must not.
REPLACED_IN_PYTHON = frozenset(
    {
        *("upkeep", "Inspector", "purge", "Commit", "Opened", "unloads"),
        *("Followed", "Scope", "Hits", "Selecting", "Choosing", "Choice", "Stretch", "stretches"),
        *("Rates", "Around", "Ahead", "Asked"),
    }
)

# These end in -ing, but they are the field's own nouns.
NOUNS = frozenset({"hashing", "routing", "timing", "tracing"})
MODULES_RENAMED = frozenset({"metered", "lookups", "support", "naming", "exposing", "placing"})

UNSEARCHED = ("tests/test_words.py", "CHANGELOG.md", "benchmarks/results/", "hrag/text/data/")

MODULE_LINES = 450
LONGER = {"tests/support/engines/memory_engine.py": 700}  # A whole engine, to be read as one.
BODY_LINES = 60
MEDIAN_LINES = 10


@cache
def _tracked() -> tuple[str, ...]:
    """The paths of all files of the repository, from its root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.split("\0")
    return tuple(sorted(name for name in names if name and (ROOT / name).is_file()))


def _texts() -> Iterator[tuple[str, str]]:
    """Paths and contents of the files that are searched for words."""
    for name in _tracked():
        if not name.startswith(UNSEARCHED):
            try:
                yield name, (ROOT / name).read_text("utf-8")
            except UnicodeDecodeError:
                continue


def _modules() -> list[str]:
    """Paths of our own Python modules."""
    return [
        name
        for name in _tracked()
        if name.endswith(".py") and name.split("/")[0] in PACKAGES and "/v1/" not in name
    ]


def test_replaced_names_are_gone() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, REPLACED))})\b")
    _assert_none({name: set(pattern.findall(text)) for name, text in _texts()})


def test_replaced_names_are_gone_from_python() -> None:
    searched = [name for name in _modules() if not name.startswith(UNSEARCHED)]
    _assert_none({name: _replaced_in(ROOT / name) for name in searched})


def _assert_none(found: dict[str, set[str]]) -> None:
    """Fails with one line for each file that has words."""
    lines = [f"{name}: {', '.join(sorted(words))}" for name, words in found.items() if words]
    assert not lines, "\n".join(lines)


def _replaced_in(path: Path) -> set[str]:
    """The replaced identifiers in a module; strings and comments have none."""
    text = path.read_text("utf-8")
    words = REPLACED_IN_PYTHON.intersection(re.findall(r"\w+", text))
    if not words:
        return words
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return words & {token.string for token in tokens if token.type == tokenize.NAME}


def test_modules_are_named_for_things() -> None:
    """`writer` holds a writer; `writing` would be what happens in it."""
    stems = {name: Path(name).stem for name in _modules() if not _is_test(name)}
    gerunds = {name for name, stem in stems.items() if re.search(r"ing(_|$)", _bare(stem))}
    renamed = {name for name, stem in stems.items() if stem in MODULES_RENAMED}
    assert sorted(gerunds | renamed) == []


def _is_test(name: str) -> bool:
    """Tests are named for behaviour, which may be a gerund."""
    return Path(name).stem.startswith("test_")


def _bare(stem: str) -> str:
    return "_".join(word for word in stem.split("_") if word not in NOUNS)


def test_modules_are_short() -> None:
    lengths = {name: len((ROOT / name).read_text("utf-8").splitlines()) for name in _modules()}
    long = [
        f"{name}: {lines} lines"
        for name, lines in lengths.items()
        if lines > LONGER.get(name, MODULE_LINES)
    ]
    assert not long, "\n".join(long)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions() -> Iterator[tuple[str, Function]]:
    for name in _modules():
        for node in ast.walk(ast.parse((ROOT / name).read_text("utf-8"))):
            if isinstance(node, Function):
                yield f"{name}:{node.lineno} {node.name}", node


def _body_lines(function: Function) -> int:
    """Without decorators and signature: a list of options may be long."""
    assert function.end_lineno is not None
    return function.end_lineno - function.body[0].lineno + 1


def test_functions_are_short() -> None:
    lengths = {place: _body_lines(function) for place, function in _functions()}
    long = [f"{place}: {lines} lines" for place, lines in lengths.items() if lines > BODY_LINES]
    assert not long, "\n".join(long)
    assert statistics.median(lengths.values()) <= MEDIAN_LINES


@pytest.mark.parametrize("word", ["bury", "dead_leaves"])
def test_a_word_counts_as_a_whole(word: str) -> None:
    """The search must not stumble over words that merely contain a replaced one."""
    pattern = re.compile(rf"\b{word}\b")
    assert pattern.search(f"`{word}`(row)")
    assert not pattern.search(f"un{word}s")
