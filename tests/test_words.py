"""The language of the code: one word for one idea, whole sentences, short functions.

hrag uses the words of Lucene, RocksDB and PostgreSQL. The names that these words replaced must
not return, neither in code nor in settings, metrics or documents.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("hrag", "hrag_fast", "indexer_svc", "retriever_svc", "benchmarks", "docs", "tests")

# The code that users run. The tests of sentences and of class names read only this code.
PRODUCT = ("hrag/", "hrag_fast/", "indexer_svc/", "retriever_svc/", "protos/")

# These replaced names have no other meaning, so no file may contain them.
REPLACED = (
    # These named deleted documents and the merging of segments.
    *("_rebury", "bury", "graves", "dead_leaves", "dead_ordinals", "is_spoilt"),
    *("go_on_from", "Upkeep", "Sealer", "Sweeper", "crashpoints"),
    # These named the store and its collections.
    *("OpenCollection", "settings_beside", "wait_for_room", "require_room"),
    # These named the steps of a search.
    *("rows_that_pass", "_Taken", "Climbed"),
    # These named parts of services and models.
    *("_Gathering", "HOLD_S", "CallThreads", "AtOnce", "_Parcel"),
    # These named figures, metrics and settings.
    *("to_bare", "hrag_reader_unloads_total", "hrag_seal_seconds"),
    *("hrag_quota_waits_total", "HRAG_SEAL_LEAVES"),
)

# These replaced names are English words too: prose may use them, Python names must not.
REPLACED_IN_PYTHON = frozenset(
    {
        *("upkeep", "Inspector", "purge", "Commit", "Opened", "unloads"),
        *("Followed", "Scope", "Hits", "Selecting", "Choosing", "Choice", "Stretch", "stretches"),
        *("Rates", "Around", "Ahead", "Asked"),
    }
)

# These words end in -ing, but they are nouns of the field.
NOUNS = frozenset({"encoding", "hashing", "posting", "reasoning", "routing", "timing", "tracing"})
MODULES_RENAMED = frozenset({"metered", "lookups", "support", "naming", "exposing", "placing"})

UNSEARCHED = ("tests/test_words.py", "CHANGELOG.md", "benchmarks/results/", "hrag/text/data/")

BODY_LINES = 60

# A docstring or a comment that begins with one of these words has no subject and no verb.
FRAGMENT = re.compile(r"(?:Of|Those of|That of|By what)\b|As `")
# A docstring must not begin with these words. It says "Returns True if …" or names the thing.
CLAUSE = re.compile(r"(?:Whether|What)\b")

# The marker of comments in the languages that `tokenize` does not read.
COMMENT_MARKERS = {
    ".h": "//",
    ".js": "//",
    ".proto": "//",
    ".pxd": "#",
    ".pyi": "#",
    ".pyx": "#",
}
# A comment that begins so is a directive for a tool, not a sentence.
DIRECTIVE = re.compile(r"(?:type: ignore|noqa|pragma|fmt|ruff|cython|distutils|mypy)\b")

# Classes of the product that share a name, each with the reason why they may.
SHARED_CLASS_NAMES = {
    # Both engines have this part, and it plays the same role in each.
    "CollectionWriter": "writes collections and aliases in each engine",
    "IndexMaintenance": "the background work that each engine's writer wakes",
    "LexicalQuery": "a query's terms with their statistics in each engine",
    "MaintenanceLimits": "the limits of each engine's background work",
    "MaintenanceWorker": "seals, merges and reclaims in each engine",
    "Ranker": "ranks leaves for one request in each engine",
    "TermMatches": "the occurrences of a query's terms in each engine",
    "VectorSource": "ranks leaves by cosine in each engine",
    # Frameworks expect this name: their packages call retrievers `<Product>Retriever`.
    "HragRetriever": "the retriever for Haystack, LangChain and LlamaIndex",
}


@cache
def _tracked() -> tuple[str, ...]:
    """Returns the paths of all files of the repository, relative to its root, sorted."""
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
    """Yields the path and the contents of each file that is searched for replaced names."""
    for name in _tracked():
        if not name.startswith(UNSEARCHED):
            try:
                yield name, (ROOT / name).read_text("utf-8")
            except UnicodeDecodeError:
                continue


def _modules() -> list[str]:
    """Returns the paths of all Python modules that are not generated."""
    return [
        name
        for name in _tracked()
        if name.endswith(".py") and name.split("/")[0] in PACKAGES and "/v1/" not in name
    ]


def test_no_file_contains_a_replaced_name() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, REPLACED))})\b")
    _assert_none({name: set(pattern.findall(text)) for name, text in _texts()})


def test_no_python_name_is_a_replaced_one() -> None:
    searched = [name for name in _modules() if not name.startswith(UNSEARCHED)]
    _assert_none({name: _replaced_in(ROOT / name) for name in searched})


def _assert_none(words_by_file: dict[str, set[str]]) -> None:
    """Fails if a file has words. The message has one line for each file with words."""
    lines = [
        f"{name}: {', '.join(sorted(words))}" for name, words in words_by_file.items() if words
    ]
    assert not lines, "\n".join(lines)


def _replaced_in(path: Path) -> set[str]:
    """Returns the replaced words that a module uses as names, not only in strings or comments."""
    text = path.read_text("utf-8")
    words = REPLACED_IN_PYTHON.intersection(re.findall(r"\w+", text))
    if not words:
        return words
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return words & {token.string for token in tokens if token.type == tokenize.NAME}


def test_modules_are_named_for_things() -> None:
    """A module is named for the thing that it holds, not for what happens in it.

    So a module may be called `writer`, but not `writing`.
    """
    stems = {name: Path(name).stem for name in _modules() if not _is_test(name)}
    gerunds = {name for name, stem in stems.items() if re.search(r"ing(_|$)", _bare(stem))}
    renamed = {name for name, stem in stems.items() if stem in MODULES_RENAMED}
    assert sorted(gerunds | renamed) == []


def _is_test(name: str) -> bool:
    """Returns True for a module of tests. Its name says a behaviour, so it may be a gerund."""
    return Path(name).stem.startswith("test_")


def _bare(stem: str) -> str:
    """Returns the name of a module without the nouns that may end in -ing."""
    return "_".join(word for word in stem.split("_") if word not in NOUNS)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions() -> Iterator[tuple[str, Function]]:
    """Yields the file, line and name of each function as one text, and its syntax tree."""
    for name in _modules():
        for node in ast.walk(ast.parse((ROOT / name).read_text("utf-8"))):
            if isinstance(node, Function):
                yield f"{name}:{node.lineno} {node.name}", node


def _body_lines(function: Function) -> int:
    """Returns the count of lines of a function without decorators, signature and docstring.

    The signature of a command lists its options, and its docstring may explain many options.
    """
    assert function.end_lineno is not None
    before = function.body[0].lineno - 1
    if ast.get_docstring(function) is not None:
        before = function.body[0].end_lineno or before
    return function.end_lineno - before


def test_functions_are_short() -> None:
    lengths = {place: _body_lines(function) for place, function in _functions()}
    long = [f"{place}: {lines} lines" for place, lines in lengths.items() if lines > BODY_LINES]
    assert not long, "\n".join(long)


def _product_files(*suffixes: str) -> list[str]:
    """Returns the paths of the product's files with these suffixes that are not generated."""
    return [
        name
        for name in _tracked()
        if name.startswith(PRODUCT) and name.endswith(suffixes) and not name.startswith("hrag/v1/")
    ]


def _docstrings(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring, except the titles of packages.

    The title of a package is a question, so it may begin with "What".
    """
    if not name.endswith(".py"):
        if name.endswith((".pyx", ".pxd", ".pyi")):
            # Nothing follows the quotes at the end of a docstring on their line.
            for docstring in re.finditer(r'^[ \t]*r?"""(?=\S)(.*)', text, re.MULTILINE):
                yield text.count("\n", 0, docstring.start()) + 1, docstring[1]
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and (
            docstring := ast.get_docstring(node)
        ):
            is_title = isinstance(node, ast.Module) and name.endswith("__init__.py")
            if not (is_title and re.match(r"[^.?]+\?", docstring)):
                yield node.body[0].lineno, docstring


def _comment_lines(name: str, text: str) -> Iterator[tuple[int, bool, str]]:
    """Yields, for each comment, its line number, True if no code precedes it, and its text."""
    if name.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                is_alone = not token.line[: token.start[1]].strip()
                yield token.start[0], is_alone, token.string.lstrip("#: ")
        return
    marker = COMMENT_MARKERS[Path(name).suffix]
    comment = re.compile(rf"(?:^|(?<=\s)){marker}+:?\s*(.*)")
    for line_number, line in enumerate(text.splitlines(), 1):
        if match := comment.search(line):
            yield line_number, not line[: match.start()].strip(), match[1]


def _comments(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yields the line number and the text of the first line of each comment.

    Comments on successive lines are one comment if no code is on these lines.
    """
    last_alone = -1
    for line_number, is_alone, comment in _comment_lines(name, text):
        if not (is_alone and last_alone == line_number - 1) and not DIRECTIVE.match(comment):
            yield line_number, comment
        if is_alone:
            last_alone = line_number
    if name.endswith((".js", ".h")):
        for block in re.finditer(r"/\*+[\s*]*(.*)", text):
            yield text.count("\n", 0, block.start()) + 1, block[1]


def test_docstrings_and_comments_are_sentences() -> None:
    """No docstring and no comment of the product begins without a subject or a verb."""
    fragments, read = [], 0
    for name in _product_files(".py", *COMMENT_MARKERS):
        text = (ROOT / name).read_text("utf-8")
        docstrings = list(_docstrings(name, text))
        comments = list(_comments(name, text))
        read += len(docstrings) + len(comments)
        fragments += [
            f"{name}:{line}: {sentence.splitlines()[0]}"
            for line, sentence in docstrings
            if FRAGMENT.match(sentence) or CLAUSE.match(sentence)
        ]
        fragments += [
            f"{name}:{line}: {comment}" for line, comment in comments if FRAGMENT.match(comment)
        ]
    assert read > 4000, "hardly any docstring or comment was read"
    assert not fragments, "\n".join(fragments)


def _class_names(name: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    if name.endswith(".pyx"):
        return re.findall(r"^[ \t]*(?:c(?:p)?def )?class (\w+)", text, re.MULTILINE)
    return [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]


@cache
def _classes() -> dict[str, list[str]]:
    """Returns the modules of each class of the product, by the name of the class."""
    classes = defaultdict(list)
    for module in _product_files(".py", ".pyx"):
        for name in _class_names(module):
            classes[name].append(module)
    assert len(classes) > 500, "hardly any class was read"
    return classes


def test_class_names_are_unique() -> None:
    """A reader who searches for a class finds one, except the classes in SHARED_CLASS_NAMES."""
    known = SHARED_CLASS_NAMES.keys()
    repeated = [
        f"{name}: {', '.join(modules)}"
        for name, modules in _classes().items()
        if len(modules) > 1 and name not in known
    ]
    assert not repeated, "\n".join(repeated)


def test_every_listed_class_name_is_shared() -> None:
    """A class name that has become unique must be removed from SHARED_CLASS_NAMES."""
    classes = _classes()
    listed = list(SHARED_CLASS_NAMES)
    assert [name for name in listed if len(classes.get(name, ())) < 2] == []
