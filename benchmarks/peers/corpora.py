"""Documents and questions, and the files by which they reach a worker's process."""

import ast
import json
import pydoc_data.topics
import sysconfig
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.peer import Text
from benchmarks.peers.spans import Span

_MIN_CHARS = 1000
_SAMPLE_CHARS = 200
_NOT_LIBRARY = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its gold spans by document id; empty if there is no gold."""

    text: str
    gold: dict[str, list[Span]]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents and questions about them."""

    name: str
    chinese: bool
    documents: list[Text]
    questions: list[Question]

    @property
    def text_bytes(self) -> int:
        """Returns the length of all documents in UTF-8."""
        return sum(len(each.text.encode()) for each in self.documents)

    def save(self, path: Path) -> None:
        """Writes a file for `load`."""
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def load(cls, path: Path) -> "Corpus":
        """Returns what `save` wrote."""
        stored = json.loads(path.read_text("utf-8"))
        return cls(
            stored["name"],
            stored["chinese"],
            [Text(**each) for each in stored["documents"]],
            [Question(**each) for each in stored["questions"]],
        )


def python_documentation() -> list[str]:
    """Returns Python's manual, a text a topic, and its library's docstrings, a text a module.

    Only texts over `_MIN_CHARS`, longest first. Topics that are part of longer ones are left
    out, since repeated text would favour a store that deduplicates.
    """
    texts: list[str] = []
    for topic in sorted(pydoc_data.topics.topics.values(), key=len, reverse=True):
        if not any(topic[len(topic) // 2 :][:_SAMPLE_CHARS] in longer for longer in texts):
            texts.append(topic)
    texts += map(_docstrings, sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")))
    return sorted(
        (each for each in texts if len(each) > _MIN_CHARS), key=lambda each: (-len(each), each)
    )


def _docstrings(path: Path) -> str:
    if not _NOT_LIBRARY.isdisjoint(path.parts):
        return ""
    try:
        module = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # Test data of the library itself.
        return ""
    found = (ast.get_docstring(each) for each in ast.walk(module) if isinstance(each, _DOCUMENTED))
    return "\n\n".join(filter(None, found))


def evaluation(folder: Path) -> Corpus:
    """Reads a folder with `corpus.jsonl` and `queries.jsonl`; gold are spans of code points."""
    lines, queries = _lines(folder / "corpus.jsonl"), _lines(folder / "queries.jsonl")
    return Corpus(
        folder.name,
        any(line["lang"].startswith("zh") for line in lines),
        [Text(line["doc_id"], line["text"]) for line in lines],
        [Question(line["query"], _gold(line["gold"])) for line in queries],
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def _gold(spans: list[dict[str, Any]]) -> dict[str, list[Span]]:
    gold: dict[str, list[Span]] = defaultdict(list)
    for each in spans:
        gold[each["doc_id"]].append((each["start"], each["end"]))
    return dict(gold)
