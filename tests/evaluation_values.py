"""Passages and results, short to write."""

from typing import Any

from hrag.types import (
    Chunk,
    Passage,
    SearchMode,
    SearchPlan,
    SearchResult,
    Span,
    Timings,
)


def passage(document_id: str, start: int, content: str) -> Passage:
    """A passage of a document that begins at the character `start`."""
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
    """A result with these passages, embedded in 100 µs."""
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
