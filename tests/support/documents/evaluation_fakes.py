"""Helpers for tests of the evaluation.

The module has functions that build passages and results, a client and a chat model whose answers
the test determines, and a disk that is nearly full.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from hrag.errors import DocumentNotFound
from hrag.evaluation import json_lines
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
