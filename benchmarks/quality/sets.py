"""The development sets of a folder: documents, and questions with the spans that answer.

Each set is a folder with `corpus.jsonl` (`doc_id`, `title`, `lang`, `text`), `queries.jsonl`
(`qid`, `query`, `gold`: a list of `doc_id`, `start` and `end` in code points) and `meta.json`.
Of two sets `NAME_en` and `NAME_zh` with equal questions a third one is made: Chinese questions
about the English documents.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hrag.evaluation.json_lines import json_rows
from hrag.evaluation.question_corpus import CORPUS, read_corpus
from hrag.evaluation.question_files import read_questions
from hrag.evaluation.questions import Question
from hrag.types import Document

QUERIES, META = "queries.jsonl", "meta.json"
NEEDED = f"""\
It must hold one folder for each development set, each with
  {CORPUS}    one document a line: doc_id, title, lang, text
  {QUERIES}   one question a line: qid, query, gold, which is a list of doc_id, start, end
                  in code points of the document's text
  {META}       name, license and origin
"""


class NoSets(Exception):
    """The folder holds no development set; the message says what it must hold."""


@dataclass(frozen=True, slots=True)
class QualitySet:
    """Questions about the documents of a corpus; sets of one corpus share its collection."""

    name: str
    corpus: Path
    questions: tuple[Question, ...]

    @property
    def collection(self) -> str:
        """The collection that the corpus is stored in."""
        return self.corpus.parent.name

    def documents(self) -> Iterator[Document]:
        """Yields the documents."""
        yield from read_corpus(self.corpus)


def read_sets(folder: Path, only: Sequence[str] = ()) -> list[QualitySet]:
    """Returns the sets of a folder by name, all of them or `only` some.

    Raises NoSets, or InvalidArgument for a set with a mistake.
    """
    folders = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{QUERIES}"))}
    complete = {name: path for name, path in folders.items() if _is_complete(path)}
    if not complete:
        raise NoSets(f"{folder} holds no development set. {NEEDED}")
    sets = [
        QualitySet(name, path / CORPUS, read_questions(path)) for name, path in complete.items()
    ]
    sets += _across_languages(complete, {each.name: each for each in sets})
    unknown = sorted(set(only) - {each.name for each in sets})
    if unknown:
        raise NoSets(f"{folder} has no set {', '.join(unknown)}, but {', '.join(complete)}")
    return [each for each in sets if not only or each.name in only]


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (CORPUS, QUERIES, META))


def _across_languages(
    folders: Mapping[str, Path], sets: Mapping[str, QualitySet]
) -> Iterator[QualitySet]:
    for name in folders:
        stem, _, language = name.rpartition("_")
        other = f"{stem}_zh"
        if language == "en" and other in folders:
            questions = tuple(_paired(folders[name], folders[other], sets[name], sets[other]))
            if questions:
                yield QualitySet(f"{stem}_zh_to_en", sets[name].corpus, questions)


def _paired(
    english: Path, chinese: Path, in_english: QualitySet, in_chinese: QualitySet
) -> Iterator[Question]:
    """The Chinese questions with the gold of the English ones that say the same."""
    gold = dict(zip(_origins(english), in_english.questions, strict=True))
    for origin, question in zip(_origins(chinese), in_chinese.questions, strict=True):
        if origin and origin in gold:
            yield replace(question, gold=gold[origin].gold)


def _origins(folder: Path) -> list[str]:
    """What each question was translated from; empty where that is not known."""
    return [row.text("orig_id", default="") for row in json_rows(folder / QUERIES)]
