"""Helpers for tests of the evaluation.

The module has functions that build passages and results, a client and a chat model whose answers
the test determines, reports of a comparison, and a disk that is nearly full.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from hrag.errors import DocumentNotFound
from hrag.evaluation import json_lines
from hrag.evaluation.bootstrap import Estimate
from hrag.evaluation.chat_calls import ChatUsage
from hrag.evaluation.context_budget import BudgetedText
from hrag.evaluation.judge import (
    CRITERIA,
    AnswerCost,
    Balance,
    JudgedAnswer,
    JudgedPair,
    JudgedQuestion,
    JudgeFigures,
    JudgeResult,
    PairFigures,
)
from hrag.evaluation.questions import Question
from hrag.evaluation.report_files import Report
from hrag.evaluation.report_parts import build_report
from hrag.evaluation.retrieved import KeptPassage, RetrievalResult
from hrag.evaluation.searches import Outcome, SearchTarget
from hrag.evaluation.systems import parse_systems
from hrag.models.chat import ChatEnd, Completion, Pieces
from hrag.types import (
    Chunk,
    Passage,
    SearchMode,
    SearchPlan,
    SearchResult,
    Span,
    Timings,
)
from hrag.values.answers import FinishReason
from hrag.values.deadline import Deadline


def passage(document_id: str, start: int, content: str) -> Passage:
    """Returns a passage of a document that begins at the character `start`."""
    end = start + len(content)
    chunk = Chunk(
        chunk_id=f"{document_id}#0.{start}",
        document_id=document_id,
        level=0,
        index=0,
        content=content,
        token_count=len(content),
        span=Span(start, end, start, end),
        section_path=(),
        first_page=0,
        last_page=0,
        title=f"About {document_id}",
        source="",
        metadata={},
    )
    return Passage(chunk, 1.0, ())


def result(*passages: Passage, **changed: Any) -> SearchResult:
    """Returns a search result with these passages. `changed` replaces other fields of it.

    By default, the timings say that embedding the query took 100 µs.
    """
    fields: dict[str, Any] = {
        "mode": SearchMode.STANDARD,
        "matched_at_level": 0,
        "returned_at_level": 0,
        "candidates_considered": 1,
        "exhausted": True,
        "sequence": 7,
        "timings": Timings(100, 1, 1, 1, 200),
        "plan": SearchPlan.SCAN,
        "eligible_leaves": 9,
    }
    return SearchResult(passages=passages, **fields | changed)


class ScriptedClient:
    """A client whose searches return what `find` returns. Its only chunk is `a#0.0`.

    `calls` records the arguments of the searches.
    """

    def __init__(self, find: Callable[..., SearchResult]) -> None:
        self._find = find
        self.calls: list[dict[str, Any]] = []

    def search(self, tenant_id: str, query: str, **options: Any) -> SearchResult:
        self.calls.append({"tenant_id": tenant_id, "query": query, **options})
        return self._find(query, **options)

    def get_chunk(self, tenant_id: str, chunk_id: str, *, collection: str) -> None:
        if chunk_id != "a#0.0":
            raise DocumentNotFound(f"no {chunk_id} in {tenant_id} {collection}")


class ScriptedChat:
    """A chat model that answers a prompt with what `reply` returns; `prompts` records prompts."""

    name = "scripted"

    def __init__(self, reply: Callable[[str], str]) -> None:
        self._reply = reply
        self._lock = Lock()
        self.prompts: list[str] = []

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        with self._lock:
            self.prompts.append(prompt)
        return Completion(self._reply(prompt), ChatEnd(FinishReason.STOP, 100, 10))

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        raise AssertionError("the evaluation asks for whole replies")


@contextmanager
def nearly_full_disk(free_bytes: int) -> Iterator[None]:
    """Lets files of JSON lines grow by `free_bytes` bytes in total inside the block.

    Further writes fail, as on a full disk.
    """

    class File(FileIO):
        def write(self, data: Any) -> int:
            nonlocal free_bytes
            if not free_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = super().write(data[:free_bytes])
            free_bytes -= written
            return written

    def open_on_full_disk(path: Path, mode: str, **_: Any) -> File:
        return File(path, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "open", open_on_full_disk, raising=False)
        yield


def kept(document_id: str, start: int, text: str) -> KeptPassage:
    """Returns a passage as reports keep it."""
    return KeptPassage(f"{document_id}#0.{start}", f"About {document_id}", document_id, start, text)


def retrieval(*passages: KeptPassage, quotes: int = 0, tokens: int = 9) -> RetrievalResult:
    """Returns the result of a search that returned these passages, for a budget of 1,000 tokens.

    `quotes` is the number of pieces of the question's gold; none of them was found as a quote.
    """
    spans = tuple(one.span for one in passages)
    texts = {1000: BudgetedText(spans, tokens)}
    return RetrievalResult(spans, texts, ((),) * quotes, 1500, 1, 1, passages=passages)


def comparison(
    questions: Sequence[Question],
    outcomes: Mapping[str, Sequence[Outcome]],
    judged: JudgeResult | None = None,
    **options: Any,
) -> Report:
    """Returns the report on the outcomes of systems; the last system is the baseline."""
    systems = parse_systems(",".join(outcomes))
    where = SearchTarget("acme", "docs", (1000,))
    fields: dict[str, Any] = {"located": {}, "span_texts": {}, "seed": 0, "resamples": 100}
    report = build_report(
        questions, systems, systems[-1].name, where, outcomes, judged, **fields | options
    )
    about = {"collection": "docs", "date": "2026-11-27", "baseline": systems[-1].name}
    return replace(report, about=about)


def judgement(questions: Sequence[Question], better: int, reason: str = "") -> JudgeResult:
    """Returns the verdicts of a judge for `context` against `standard`.

    `better` is the outcome of every question: 1 if the answers of `context` win.
    """
    answer = JudgedAnswer("Forty [1].", (1,), (kept("a", 0, "It is forty."),), 1, 100, 10, 5000)
    pair = JudgedPair(dict.fromkeys(CRITERIA, better), (reason, reason))
    balance = Balance(
        better * len(questions) if better > 0 else 0,
        0 if better else len(questions),
        len(questions) if better < 0 else 0,
        Estimate(better, better, better, len(questions)),
    )
    figures = JudgeFigures(
        usage=ChatUsage("scripted", 4, 0, 400, 40),
        passage_tokens=1000,
        questions=len(questions),
        with_reference=0,
        pairs=(
            PairFigures("context", "standard", dict.fromkeys(CRITERIA, balance), 1.0, 0.5, 0, ()),
        ),
        warnings=(),
        costs=tuple(AnswerCost(name, 1, 100, 10, 5000) for name in ("context", "standard")),
    )
    both = {"context": answer, "standard": answer}
    return JudgeResult(
        figures,
        tuple(JudgedQuestion(one.question_id, both, {"context": pair}) for one in questions),
    )
