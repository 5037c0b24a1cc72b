"""The development sets in a folder: documents, and questions with the spans that answer them.

Each set is a folder with `corpus.jsonl` (`doc_id`, `title`, `lang`, `text`), `queries.jsonl`
(`qid`, `query`, `gold`: a list of `doc_id`, `start` and `end` in code points) and `meta.json`. If
there are two sets `NAME_en` and `NAME_zh` with equal questions, a third set is made of both:
Chinese questions about the English documents.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hrag.evaluation.json_lines import json_rows
from hrag.evaluation.question_corpus import CORPUS, read_corpus
from hrag.evaluation.question_files import read_questions
from hrag.evaluation.questions import Question
from hrag.types import Document

QUERIES, META = "queries.jsonl", "meta.json"
NEEDED = f"""\
It must contain one folder for each development set, each with
  {CORPUS}    one document per line: doc_id, title, lang, text
  {QUERIES}   one question per line: qid, query, gold, which is a list of doc_id, start, end
                  in code points of the document's text
  {META}       name, license and origin
"""


class NoSets(Exception):
    """The folder contains no development set. The message says what it must contain."""


@dataclass(frozen=True, slots=True)
class QualitySet:
    """Questions about the documents of a corpus. Sets with the same corpus share its collection.

    `documents` returns the documents of the corpus.
    """

    name: str
    collection: str
    documents: Callable[[], Iterable[Document]]
    questions: tuple[Question, ...]


def read_sets(folder: Path, only: Sequence[str] = ()) -> list[QualitySet]:
    """Returns the sets in a folder whose names are in `only`; all sets if `only` is empty.

    Raises NoSets if there are none or if a name is unknown. Raises InvalidArgument if a set has a
    mistake.
    """
    folders = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{QUERIES}"))}
    complete = {name: path for name, path in folders.items() if _is_complete(path)}
    if not complete:
        raise NoSets(f"{folder} contains no development set. {NEEDED}")
    sets = [
        QualitySet(name, name, partial(read_corpus, path / CORPUS), read_questions(path))
        for name, path in complete.items()
    ]
    sets += _across_languages(complete, {known.name: known for known in sets})
    unknown = sorted(set(only) - {known.name for known in sets})
    if unknown:
        raise NoSets(f"{folder} has no set {', '.join(unknown)}, but {', '.join(complete)}")
    return [known for known in sets if not only or known.name in only]


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (CORPUS, QUERIES, META))


def _across_languages(
    folders: Mapping[str, Path], sets: Mapping[str, QualitySet]
) -> Iterator[QualitySet]:
    for name in folders:
        stem, _, language = name.rpartition("_")
        chinese_name = f"{stem}_zh"
        if language == "en" and chinese_name in folders:
            questions = tuple(
                _pair_questions(
                    folders[name], folders[chinese_name], sets[name], sets[chinese_name]
                )
            )
            if questions:
                yield replace(sets[name], name=f"{stem}_zh_to_en", questions=questions)


def _pair_questions(
    english: Path, chinese: Path, in_english: QualitySet, in_chinese: QualitySet
) -> Iterator[Question]:
    """Yields the Chinese questions with the gold spans of the equal English questions."""
    gold = dict(zip(_origins(english), in_english.questions, strict=True))
    for origin, question in zip(_origins(chinese), in_chinese.questions, strict=True):
        if origin and origin in gold:
            yield replace(question, gold=gold[origin].gold)


def _origins(folder: Path) -> list[str]:
    """Returns the ids of the questions from which each question was translated.

    An id is empty if it is not known.
    """
    return [row.text("orig_id", default="") for row in json_rows(folder / QUERIES)]
