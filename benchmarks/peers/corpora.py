"""Documents and questions, and the files through which a worker's process reads them."""

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
    """A question and, by document id, the spans that answer it (gold).

    `gold` is empty if the answer is not known.
    """

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
        """The total length of all documents in UTF-8 bytes."""
        return sum(len(document.text.encode()) for document in self.documents)

    def save(self, path: Path) -> None:
        """Writes the corpus to a file, which `load` reads."""
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def load(cls, path: Path) -> "Corpus":
        """Returns the corpus in a file that `save` wrote."""
        stored = json.loads(path.read_text("utf-8"))
        return cls(
            stored["name"],
            stored["chinese"],
            [Text(**fields) for fields in stored["documents"]],
            [Question(**fields) for fields in stored["questions"]],
        )


def python_documentation() -> list[str]:
    """Returns Python's manual and the docstrings of its library.

    Each topic of the manual is a text, and the docstrings of each module together are a text.

    Only texts of more than `_MIN_CHARS` characters are returned, the longest first. Topics that are
    part of longer topics are left out, because repeated text would favour a store that
    deduplicates.
    """
    texts: list[str] = []
    for topic in sorted(pydoc_data.topics.topics.values(), key=len, reverse=True):
        if not any(topic[len(topic) // 2 :][:_SAMPLE_CHARS] in longer for longer in texts):
            texts.append(topic)
    texts += map(_docstrings, sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")))
    return sorted(
        (text for text in texts if len(text) > _MIN_CHARS), key=lambda text: (-len(text), text)
    )


def _docstrings(path: Path) -> str:
    """Returns all docstrings of a module; an empty text if the file is not part of the library."""
    if not _NOT_LIBRARY.isdisjoint(path.parts):
        return ""
    try:
        module = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # The library contains invalid files as test data.
        return ""
    texts = (ast.get_docstring(node) for node in ast.walk(module) if isinstance(node, _DOCUMENTED))
    return "\n\n".join(filter(None, texts))


def evaluation(folder: Path) -> Corpus:
    """Returns the corpus in a folder with `corpus.jsonl` and `queries.jsonl`.

    The gold spans are in code points.
    """
    lines, queries = _lines(folder / "corpus.jsonl"), _lines(folder / "queries.jsonl")
    return Corpus(
        folder.name,
        any(line["lang"].startswith("zh") for line in lines),
        [Text(line["doc_id"], line["text"]) for line in lines],
        [Question(line["query"], _gold_spans(line["gold"])) for line in queries],
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def _gold_spans(spans: list[dict[str, Any]]) -> dict[str, list[Span]]:
    gold: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        gold[span["doc_id"]].append((span["start"], span["end"]))
    return dict(gold)
